/* SPDX-License-Identifier: MIT */
/* Linear layers of a step: forward, the gradient of the input, the gradient of the weight. Weights that share their input
 * lie side by side and are one product, or one by one in an eager step. */
#include "common/profile/nvtx.h"
#include "common/step/step.h"

linear step_linear(const trainer *t, int which)
{
    switch (which) {
    case LINEAR_QKV: return (linear){"qkv", PARAM_Q, t->d, 3, {t->d, t->kv, t->kv}};
    case LINEAR_O: return (linear){"o", PARAM_O, t->d, 1, {t->d}};
    case LINEAR_GATE_UP: return (linear){"gate_up", PARAM_W1, t->d, 2, {t->f, t->f}};
    case LINEAR_W2: return (linear){"w2", PARAM_W2, t->f, 1, {t->d}};
    default: return (linear){"lm_head", PARAM_LM_HEAD, t->d, 1, {t->vocab}};
    }
}

int linear_out(const linear *l)
{
    int sum = 0;
    for (int i = 0; i < l->parts; i++)
        sum += l->out[i];
    return sum;
}

static sb_matmul product(const trainer *t, int m, int n, int k)
{
    return (sb_matmul){.dtype = t->o.precision->compute,
                       .dtype_out = t->dtype,
                       .m = m,
                       .n = n,
                       .k = k,
                       .split = t->o.precision->compute == SB_FP32 ? t->o.split : SB_FMA};
}

/* Runs a product whose pointers are set (or NULL while planning), with a workspace of its own or the side stream's. */
static void run(trainer *t, const linear *l, const char *pass, int layer, sb_matmul p, arena_slot workspace,
                void *stream)
{
    p.workspace_bytes = t->k->train->matmul_workspace(t->ctx, &p);
    arena_slot own = workspace < 0 ? step_take(t, p.workspace_bytes, MEMORY_WORKSPACE, layer, "matmul") : -1;
    p.workspace = step_pointer(t, workspace < 0 ? own : workspace);
    if (arena_planning(t->arena))
        product_note(t, l->name, pass, &p);
    if (step_go(t)) {
        range_push(l->name);
        step_done(t, t->k->train->matmul(t->ctx, &p, stream));
        range_pop();
    }
    step_drop(t, &own);
}

/* Parts as they are multiplied: all in one product, or one by one in an eager step. */
static linear parts_of(const trainer *t, int which)
{
    linear l = step_linear(t, which);
    if (!t->eager)
        l.out[0] = linear_out(&l), l.parts = 1;
    return l;
}

void linear_forward(trainer *t, int which, int layer, arena_slot x, arena_slot residual, arena_slot y)
{
    const linear l = parts_of(t, which), whole = step_linear(t, which);
    const int ldy = linear_out(&whole);
    arena_slot sum = -1;
    if (t->eager && residual >= 0) { /* the addition is a pass of its own there */
        sum = y;
        y = step_take(t, step_rows(t, ldy), MEMORY_TEMPORARY, layer, "linear");
    }
    for (int i = 0, row = 0; i < l.parts; row += l.out[i++]) {
        sb_matmul p = product(t, t->tokens, l.out[i], l.in);
        p.transpose_b = true;
        p.lda = l.in, p.ldb = l.in, p.ldd = ldy;
        p.a = step_pointer(t, x);
        p.b = step_at(step_param(t, l.first, layer), (int64_t)row * l.in * t->param_element);
        p.d = step_at(step_pointer(t, y), (int64_t)row * t->element);
        if (residual >= 0 && sum < 0)
            p.c = arena_planning(t->arena) ? (void *)p.b : step_pointer(t, residual), p.ldc = ldy;
        run(t, &l, "forward", layer, p, -1, t->main);
    }
    if (sum >= 0) {
        eager_add(t, layer, residual, y, sum);
        step_drop(t, &y);
    }
}

void linear_dx(trainer *t, int which, int layer, arena_slot dy, arena_slot dx)
{
    const linear l = parts_of(t, which), whole = step_linear(t, which);
    const int ldy = linear_out(&whole);
    for (int i = 0, row = 0; i < l.parts; row += l.out[i++]) {
        sb_matmul p = product(t, t->tokens, l.in, l.out[i]);
        p.lda = ldy, p.ldb = l.in, p.ldd = l.in;
        p.a = step_at(step_pointer(t, dy), (int64_t)row * t->element);
        p.b = step_at(step_param(t, l.first, layer), (int64_t)row * l.in * t->param_element);
        p.d = step_pointer(t, dx);
        if (i > 0)
            p.c = arena_planning(t->arena) ? (void *)p.b : p.d, p.ldc = l.in;
        run(t, &l, "dx", layer, p, -1, t->main);
    }
}

static sb_matmul dw_product(const trainer *t, const linear *l, int part, int ldy)
{
    sb_matmul p = product(t, l->out[part], l->in, t->tokens);
    p.dtype_out = t->made_dtype;
    p.transpose_a = true;
    p.lda = ldy, p.ldb = l->in, p.ldd = l->in;
    return p;
}

/* ---- the head, some tokens at a time ---- */

void head_chunk_forward(trainer *t, int first, int rows, arena_slot x, arena_slot y)
{
    const linear l = step_linear(t, LINEAR_HEAD);
    sb_matmul p = product(t, rows, t->vocab, t->d);
    p.transpose_b = true;
    p.lda = p.ldb = t->d, p.ldd = t->vocab;
    p.a = step_at(step_pointer(t, x), (int64_t)first * t->d * t->element);
    p.b = step_param(t, l.first, -1);
    p.d = step_pointer(t, y);
    run(t, &l, "forward", -1, p, -1, t->main);
}

void head_chunk_backward(trainer *t, int first, int rows, arena_slot dy, arena_slot x, arena_slot dx, char *dw)
{
    const linear l = step_linear(t, LINEAR_HEAD);
    sb_matmul p = product(t, t->vocab, t->d, rows);
    p.dtype_out = t->made_dtype;
    p.transpose_a = true;
    p.lda = t->vocab, p.ldb = p.ldd = t->d;
    p.a = step_pointer(t, dy);
    p.b = step_at(step_pointer(t, x), (int64_t)first * t->d * t->element);
    p.d = dw;
    if (first > 0) /* added to what the chunks before gave; while planning only that matters, and that it is aligned */
        p.c = arena_planning(t->arena) ? (const void *)t : dw, p.ldc = t->d;
    run(t, &l, "dw", -1, p, -1, t->main);
    p = product(t, rows, t->d, t->vocab);
    p.lda = t->vocab, p.ldb = p.ldd = t->d;
    p.a = step_pointer(t, dy);
    p.b = step_param(t, l.first, -1);
    p.d = step_at(step_pointer(t, dx), (int64_t)first * t->d * t->element);
    run(t, &l, "dx", -1, p, -1, t->main);
}

size_t step_side_workspace(const trainer *t)
{
    size_t most = 0;
    for (int which = 0; which < LINEARS; which++) {
        if (which == LINEAR_HEAD && t->o.loss_chunk) /* not on the side stream */
            continue;
        const linear l = parts_of(t, which), whole = step_linear(t, which);
        for (int i = 0; i < l.parts; i++) {
            const sb_matmul p = dw_product(t, &l, i, linear_out(&whole));
            const size_t bytes = t->k->train->matmul_workspace(t->ctx, &p);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

void linear_dw(trainer *t, int which, int layer, arena_slot dy, arena_slot x)
{
    const linear l = parts_of(t, which), whole = step_linear(t, which);
    const int ldy = linear_out(&whole);
    const int64_t count = (int64_t)ldy * l.in;
    char *dw = step_grad(t, l.first, layer, count); /* clears padding on main: before the side stream follows it */
    void *stream = side_fork(t);
    for (int i = 0, row = 0; i < l.parts; row += l.out[i++]) {
        sb_matmul p = dw_product(t, &l, i, ldy);
        p.a = step_at(step_pointer(t, dy), (int64_t)row * t->element);
        p.b = step_pointer(t, x);
        p.d = step_at(dw, (int64_t)row * l.in * t->made_element);
        run(t, &l, "dw", layer, p, t->side_workspace, stream);
    }
    step_ready(t, l.first, layer, count, stream);
}
