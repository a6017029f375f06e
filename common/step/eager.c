/* SPDX-License-Identifier: MIT */
/* What an eager framework launches for the ops that fused kernels do in one pass: RMSNorm, SwiGLU and the residual
 * additions as one pass over memory for each arithmetic operation, with the statistics of the norm in fp32. */
#include "common/step/step.h"

/* A (rows, columns) operand: where it lies, in what dtype, and how far its rows are apart. */
typedef struct operand {
    void *p;
    sb_dtype dtype;
    int ld;
} operand;

static operand activation(const trainer *t, arena_slot s, int columns)
{
    return (operand){step_pointer(t, s), t->dtype, columns};
}

static operand wide(const trainer *t, arena_slot s, int columns) /* fp32 */
{
    return (operand){step_pointer(t, s), SB_FP32, columns};
}

static void point(trainer *t, sb_point op, int columns, operand a, operand b, sb_spread spread, float scalar,
                  operand out)
{
    const sb_pointwise p = {.op = op,
                            .dtype_a = a.dtype,
                            .dtype_b = b.dtype,
                            .dtype_out = out.dtype,
                            .rows = t->tokens,
                            .columns = columns,
                            .lda = a.ld,
                            .ldb = b.ld,
                            .ld_out = out.ld,
                            .spread_b = spread,
                            .a = a.p,
                            .b = b.p,
                            .out = out.p,
                            .scalar = scalar};
    if (step_go(t))
        step_done(t, t->k->train->pointwise(t->ctx, &p, t->main));
}

static void sum(trainer *t, int layer, int columns, operand x, bool over_rows, float scale, operand out)
{
    sb_reduce p = {.dtype = x.dtype,
                   .dtype_out = out.dtype,
                   .rows = t->tokens,
                   .columns = columns,
                   .ld = x.ld,
                   .over_rows = over_rows,
                   .scale = scale,
                   .x = x.p,
                   .out = out.p};
    p.workspace_bytes = t->k->train->reduce_workspace(t->ctx, &p);
    arena_slot workspace = step_take(t, p.workspace_bytes, MEMORY_WORKSPACE, layer, "reduce");
    p.workspace = step_pointer(t, workspace);
    if (step_go(t))
        step_done(t, t->k->train->reduce(t->ctx, &p, t->main));
    step_drop(t, &workspace);
}

static const operand none = {0};

static arena_slot take_wide(trainer *t, int layer, int columns)
{
    return step_take(t, (size_t)t->tokens * (size_t)columns * sizeof(float), MEMORY_TEMPORARY, layer, "eager");
}

static arena_slot take(trainer *t, int layer, int columns)
{
    return step_take(t, step_rows(t, columns), MEMORY_TEMPORARY, layer, "eager");
}

void eager_add(trainer *t, int layer, arena_slot a, arena_slot b, arena_slot out)
{
    const int d = t->d;
    (void)layer;
    point(t, SB_POINT_ADD, d, activation(t, a, d), activation(t, b, d), SB_SPREAD_FULL, 0, activation(t, out, d));
}

void eager_norm_forward(trainer *t, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd)
{
    const int d = t->d;
    arena_slot x32 = take_wide(t, layer, d), square = take_wide(t, layer, d);
    const operand wx = wide(t, x32, d), ws = wide(t, square, d), r = {step_pointer(t, rstd), SB_FP32, 1};
    const operand gain = {step_param(t, kind, layer), t->param_dtype, d};
    point(t, SB_POINT_COPY, d, activation(t, x, d), none, SB_SPREAD_FULL, 0, wx);
    point(t, SB_POINT_MUL, d, wx, wx, SB_SPREAD_FULL, 0, ws);
    sum(t, layer, d, ws, false, 1.0f / (float)d, r);
    point(t, SB_POINT_SHIFT, 1, r, none, SB_SPREAD_FULL, t->o.config.norm_eps, r);
    point(t, SB_POINT_RSQRT, 1, r, none, SB_SPREAD_FULL, 0, r);
    point(t, SB_POINT_MUL, d, wx, r, SB_SPREAD_ROW, 0, ws);
    point(t, SB_POINT_MUL, d, ws, gain, SB_SPREAD_COLUMN, 0, activation(t, y, d));
    step_drop(t, &x32);
    step_drop(t, &square);
}

void eager_norm_backward(trainer *t, param_kind kind, int layer, arena_slot x, arena_slot rstd, arena_slot dy,
                         arena_slot d_residual, arena_slot dx, void *dweight)
{
    const int d = t->d;
    arena_slot a = take_wide(t, layer, d), b = take_wide(t, layer, d), c = take_wide(t, layer, d);
    arena_slot mean = take_wide(t, layer, 1);
    const operand g = wide(t, a, d), normed = wide(t, b, d), product = wide(t, c, d);
    const operand r = {step_pointer(t, rstd), SB_FP32, 1}, m = {step_pointer(t, mean), SB_FP32, 1};
    const operand gain = {step_param(t, kind, layer), t->param_dtype, d}, dw = {dweight, t->made_dtype, d};
    point(t, SB_POINT_MUL, d, activation(t, x, d), r, SB_SPREAD_ROW, 0, normed);
    point(t, SB_POINT_MUL, d, activation(t, dy, d), normed, SB_SPREAD_FULL, 0, product);
    sum(t, layer, d, product, true, 1, dw);
    point(t, SB_POINT_MUL, d, activation(t, dy, d), gain, SB_SPREAD_COLUMN, 0, g);
    point(t, SB_POINT_MUL, d, g, normed, SB_SPREAD_FULL, 0, product);
    sum(t, layer, d, product, false, 1.0f / (float)d, m);
    point(t, SB_POINT_MUL, d, normed, m, SB_SPREAD_ROW, 0, normed);
    point(t, SB_POINT_SUB, d, g, normed, SB_SPREAD_FULL, 0, g);
    point(t, SB_POINT_MUL, d, g, r, SB_SPREAD_ROW, 0, d_residual >= 0 ? g : activation(t, dx, d));
    if (d_residual >= 0)
        point(t, SB_POINT_ADD, d, g, activation(t, d_residual, d), SB_SPREAD_FULL, 0, activation(t, dx, d));
    step_drop(t, &a);
    step_drop(t, &b);
    step_drop(t, &c);
    step_drop(t, &mean);
}

/* The two halves of a (T, 2F) tensor. */
static operand half(const trainer *t, arena_slot gate_up, int which)
{
    char *p = step_pointer(t, gate_up);
    return (operand){p ? p + (size_t)which * (size_t)t->f * (size_t)t->element : NULL, t->dtype, 2 * t->f};
}

void eager_swiglu_forward(trainer *t, int layer, arena_slot gate_up, arena_slot h)
{
    const int f = t->f;
    arena_slot silu = take(t, layer, f);
    point(t, SB_POINT_SILU, f, half(t, gate_up, 0), none, SB_SPREAD_FULL, 0, activation(t, silu, f));
    point(t, SB_POINT_MUL, f, activation(t, silu, f), half(t, gate_up, 1), SB_SPREAD_FULL, 0, activation(t, h, f));
    step_drop(t, &silu);
}

void eager_swiglu_backward(trainer *t, int layer, arena_slot gate_up, arena_slot dh, arena_slot h)
{
    const int f = t->f;
    arena_slot silu = take(t, layer, f), d_silu = take(t, layer, f);
    const operand gate = half(t, gate_up, 0), up = half(t, gate_up, 1), s = activation(t, silu, f),
                  ds = activation(t, d_silu, f), g = activation(t, dh, f);
    point(t, SB_POINT_SILU, f, gate, none, SB_SPREAD_FULL, 0, s);
    point(t, SB_POINT_MUL, f, g, up, SB_SPREAD_FULL, 0, ds);
    if (h >= 0)
        point(t, SB_POINT_MUL, f, s, up, SB_SPREAD_FULL, 0, activation(t, h, f));
    point(t, SB_POINT_MUL, f, g, s, SB_SPREAD_FULL, 0, up);
    point(t, SB_POINT_SILU_GRAD, f, gate, ds, SB_SPREAD_FULL, 0, gate);
    step_drop(t, &silu);
    step_drop(t, &d_silu);
}
