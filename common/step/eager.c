/* SPDX-License-Identifier: MIT */
/* What an eager framework launches for the ops that fused kernels do in one pass: RMSNorm, SwiGLU and the residual
 * additions as one pass over memory for each arithmetic operation, with the statistics of the norm in fp32. */
#include "common/step/ops.h"

#include "common/step/tensors.h"

/* A (rows, columns) operand: where it lies, in what dtype, and how far its rows are apart. */
typedef struct operand {
    void *p;
    sb_dtype dtype;
    int ld;
} operand;

static operand activation(const step *s, arena_slot slot, int columns)
{
    return (operand){step_pointer(s, slot), s->dtype, columns};
}

static operand wide(const step *s, arena_slot slot, int columns) /* fp32 */
{
    return (operand){step_pointer(s, slot), SB_FP32, columns};
}

static void point(step *s, sb_point op, int columns, operand a, operand b, sb_spread spread, float scalar, operand out)
{
    const sb_pointwise p = {.op = op,
                            .dtype_a = a.dtype,
                            .dtype_b = b.dtype,
                            .dtype_out = out.dtype,
                            .rows = s->tokens,
                            .columns = columns,
                            .lda = a.ld,
                            .ldb = b.ld,
                            .ld_out = out.ld,
                            .spread_b = spread,
                            .a = a.p,
                            .b = b.p,
                            .out = out.p,
                            .scalar = scalar};
    if (step_go(s))
        step_done(s, s->k->train->pointwise(s->ctx, &p, s->main));
}

static void sum(step *s, int layer, int columns, operand x, bool over_rows, float scale, operand out)
{
    sb_reduce p = {.dtype = x.dtype,
                   .dtype_out = out.dtype,
                   .rows = s->tokens,
                   .columns = columns,
                   .ld = x.ld,
                   .over_rows = over_rows,
                   .scale = scale,
                   .x = x.p,
                   .out = out.p};
    p.workspace_bytes = s->k->train->reduce_workspace(s->ctx, &p);
    arena_slot workspace = step_take(s, p.workspace_bytes, MEMORY_WORKSPACE, layer, "reduce");
    p.workspace = step_pointer(s, workspace);
    if (step_go(s))
        step_done(s, s->k->train->reduce(s->ctx, &p, s->main));
    step_drop(s, &workspace);
}

static const operand none = {0};

static arena_slot take_wide(step *s, int layer, int columns)
{
    return step_take(s, (size_t)s->tokens * (size_t)columns * sizeof(float), MEMORY_TEMPORARY, layer, "eager");
}

static arena_slot take(step *s, int layer, int columns)
{
    return step_take(s, step_rows(s, columns), MEMORY_TEMPORARY, layer, "eager");
}

void eager_add(step *s, int layer, arena_slot a, arena_slot b, arena_slot out)
{
    const int d = s->d;
    (void)layer;
    point(s, SB_POINT_ADD, d, activation(s, a, d), activation(s, b, d), SB_SPREAD_FULL, 0, activation(s, out, d));
}

void eager_norm_forward(step *s, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd)
{
    const int d = s->d;
    arena_slot x32 = take_wide(s, layer, d), square = take_wide(s, layer, d);
    const operand wx = wide(s, x32, d), ws = wide(s, square, d), r = {step_pointer(s, rstd), SB_FP32, 1};
    const operand gain = {step_param(s, kind, layer), s->param_dtype, d};
    point(s, SB_POINT_COPY, d, activation(s, x, d), none, SB_SPREAD_FULL, 0, wx);
    point(s, SB_POINT_MUL, d, wx, wx, SB_SPREAD_FULL, 0, ws);
    sum(s, layer, d, ws, false, 1.0f / (float)d, r);
    point(s, SB_POINT_SHIFT, 1, r, none, SB_SPREAD_FULL, s->o.config.norm_eps, r);
    point(s, SB_POINT_RSQRT, 1, r, none, SB_SPREAD_FULL, 0, r);
    point(s, SB_POINT_MUL, d, wx, r, SB_SPREAD_ROW, 0, ws);
    point(s, SB_POINT_MUL, d, ws, gain, SB_SPREAD_COLUMN, 0, activation(s, y, d));
    step_drop(s, &x32);
    step_drop(s, &square);
}

/* The gradient of a gain; to add it to those before is a pass of its own. */
static void sum_gain(step *s, int layer, operand products, operand dw)
{
    const int d = s->d;
    if (!s->adds) {
        sum(s, layer, d, products, true, 1, dw);
        return;
    }
    arena_slot slot = step_take(s, (size_t)d * (size_t)s->made_element, MEMORY_TEMPORARY, layer, "eager");
    const operand one = {step_pointer(s, slot), dw.dtype, d};
    sum(s, layer, d, products, true, 1, one);
    if (step_go(s))
        step_sum(s, dw.p, dw.dtype, one.p, dw.dtype, true, 1, d, s->main);
    step_drop(s, &slot);
}

void eager_norm_backward(step *s, param_kind kind, int layer, arena_slot x, arena_slot rstd, arena_slot dy,
                         arena_slot d_residual, arena_slot dx, void *dweight)
{
    const int d = s->d;
    arena_slot a = take_wide(s, layer, d), b = take_wide(s, layer, d), c = take_wide(s, layer, d);
    arena_slot mean = take_wide(s, layer, 1);
    const operand g = wide(s, a, d), normed = wide(s, b, d), product = wide(s, c, d);
    const operand r = {step_pointer(s, rstd), SB_FP32, 1}, m = {step_pointer(s, mean), SB_FP32, 1};
    const operand gain = {step_param(s, kind, layer), s->param_dtype, d}, dw = {dweight, s->made_dtype, d};
    point(s, SB_POINT_MUL, d, activation(s, x, d), r, SB_SPREAD_ROW, 0, normed);
    point(s, SB_POINT_MUL, d, activation(s, dy, d), normed, SB_SPREAD_FULL, 0, product);
    sum_gain(s, layer, product, dw);
    point(s, SB_POINT_MUL, d, activation(s, dy, d), gain, SB_SPREAD_COLUMN, 0, g);
    point(s, SB_POINT_MUL, d, g, normed, SB_SPREAD_FULL, 0, product);
    sum(s, layer, d, product, false, 1.0f / (float)d, m);
    point(s, SB_POINT_MUL, d, normed, m, SB_SPREAD_ROW, 0, normed);
    point(s, SB_POINT_SUB, d, g, normed, SB_SPREAD_FULL, 0, g);
    point(s, SB_POINT_MUL, d, g, r, SB_SPREAD_ROW, 0, d_residual >= 0 ? g : activation(s, dx, d));
    if (d_residual >= 0)
        point(s, SB_POINT_ADD, d, g, activation(s, d_residual, d), SB_SPREAD_FULL, 0, activation(s, dx, d));
    step_drop(s, &a);
    step_drop(s, &b);
    step_drop(s, &c);
    step_drop(s, &mean);
}

/* The two halves of a (T, 2F) tensor. */
static operand half(const step *s, arena_slot gate_up, int which)
{
    char *p = step_pointer(s, gate_up);
    return (operand){p ? p + (size_t)which * (size_t)s->f * (size_t)s->element : NULL, s->dtype, 2 * s->f};
}

void eager_swiglu_forward(step *s, int layer, arena_slot gate_up, arena_slot h)
{
    const int f = s->f;
    arena_slot silu = take(s, layer, f);
    point(s, SB_POINT_SILU, f, half(s, gate_up, 0), none, SB_SPREAD_FULL, 0, activation(s, silu, f));
    point(s, SB_POINT_MUL, f, activation(s, silu, f), half(s, gate_up, 1), SB_SPREAD_FULL, 0, activation(s, h, f));
    step_drop(s, &silu);
}

void eager_swiglu_backward(step *s, int layer, arena_slot gate_up, arena_slot dh, arena_slot h)
{
    const int f = s->f;
    arena_slot silu = take(s, layer, f), d_silu = take(s, layer, f);
    const operand gate = half(s, gate_up, 0), up = half(s, gate_up, 1), activated = activation(s, silu, f),
                  ds = activation(s, d_silu, f), g = activation(s, dh, f);
    point(s, SB_POINT_SILU, f, gate, none, SB_SPREAD_FULL, 0, activated);
    point(s, SB_POINT_MUL, f, g, up, SB_SPREAD_FULL, 0, ds);
    if (h >= 0)
        point(s, SB_POINT_MUL, f, activated, up, SB_SPREAD_FULL, 0, activation(s, h, f));
    point(s, SB_POINT_MUL, f, g, activated, SB_SPREAD_FULL, 0, up);
    point(s, SB_POINT_SILU_GRAD, f, gate, ds, SB_SPREAD_FULL, 0, gate);
    step_drop(s, &silu);
    step_drop(s, &d_silu);
}
