/* SPDX-License-Identifier: MIT */
/* Linear layers of a step: forward, the gradient of the input, the gradient of the weight. Weights that share their input
 * lie side by side and are one product, or one by one in an eager step. */
#include "common/step/linear.h"

#include "common/record/nvtx.h"
#include "common/step/exchange.h"
#include "common/step/linear_float8.h"
#include "common/step/ops.h"
#include "common/step/streams.h"
#include "common/step/tensors.h"
#include "common/step/units.h"

static linear linear_of(const step *s, int which)
{
    switch (which) {
    case LINEAR_QKV: return (linear){"qkv", PARAM_Q, s->d, 3, {s->width, s->kv, s->kv}};
    case LINEAR_O: return (linear){"o", PARAM_O, s->width, 1, {s->d}};
    case LINEAR_GATE_UP: return (linear){"gate_up", PARAM_W1, s->d, 2, {s->f, s->f}};
    case LINEAR_W2: return (linear){"w2", PARAM_W2, s->f, 1, {s->d}};
    default: return (linear){"lm_head", PARAM_LM_HEAD, s->d, 1, {s->vocab}};
    }
}

static int linear_out(const linear *l)
{
    int sum = 0;
    for (int i = 0; i < l->parts; i++)
        sum += l->out[i];
    return sum;
}

static sb_matmul product(const step *s, int m, int n, int k)
{
    return (sb_matmul){.dtype = s->o.precision->compute,
                       .dtype_out = s->dtype,
                       .m = m,
                       .n = n,
                       .k = k,
                       .split = s->o.precision->compute == SB_FP32 ? s->o.split : SB_FMA};
}

/* Runs a product whose pointers are set (or NULL while planning), with a workspace of its own or the side stream's. */
static void linear_run(step *s, const linear *l, const char *pass, int layer, sb_matmul p, arena_slot workspace,
                       void *stream)
{
    p.workspace_bytes = s->k->train->matmul_workspace(s->ctx, &p);
    arena_slot own = workspace < 0 ? step_take(s, p.workspace_bytes, MEMORY_WORKSPACE, layer, "matmul") : -1;
    p.workspace = step_pointer(s, workspace < 0 ? own : workspace);
    if (arena_planning(s->arena))
        products_note(&s->products, l->name, pass, &p);
    if (step_go(s)) {
        range_push(l->name);
        step_done(s, s->k->train->matmul(s->ctx, &p, stream));
        range_pop();
    }
    step_drop(s, &own);
}

/* Parts as they are multiplied: all in one product, or one by one in an eager step. */
static linear parts_of(const step *s, int which)
{
    linear l = linear_of(s, which);
    if (!s->eager)
        l.out[0] = linear_out(&l), l.parts = 1;
    return l;
}

static void forward_here(step *s, int which, int layer, const share_piece *x, bool part, arena_slot residual,
                         arena_slot y)
{
    const linear l = parts_of(s, which), whole = linear_of(s, which);
    const int ldy = linear_out(&whole);
    arena_slot sum = -1;
    if (s->eager && residual >= 0) { /* the addition is a pass of its own there */
        sum = y;
        y = step_take(s, step_rows(s, ldy), MEMORY_TEMPORARY, layer, "linear");
    }
    for (int i = 0, row = 0; i < l.parts; row += l.out[i++]) {
        sb_matmul p = product(s, x->count, l.out[i], l.in);
        p.transpose_b = true;
        p.lda = l.in, p.ldb = l.in, p.ldd = ldy;
        p.a = step_at(step_pointer(s, x->rows), (int64_t)x->from * l.in * s->element);
        p.b = step_at(step_param(s, l.first, layer), (int64_t)row * l.in * s->param_element);
        p.d = step_at(share_place(s, y, x, ldy, part), (int64_t)row * s->element);
        if (residual >= 0 && sum < 0)
            p.c = arena_planning(s->arena) ? (void *)p.b : step_pointer(s, residual), p.ldc = ldy;
        float8_operands cast = float8_take(s, which, layer, PASS_Y, false, false, &p, s->main);
        linear_run(s, &l, "forward", layer, p, -1, s->main);
        float8_drop(s, &cast, false);
    }
    if (sum >= 0) {
        eager_add(s, layer, residual, y, sum);
        step_drop(s, &y);
    }
}

/* Where ranks share a weight's outputs, all rows of x are gathered; where they share its inputs, y is a part of a sum. */
void linear_forward_behind(step *s, int which, int layer, arena_slot x, arena_slot residual, arena_slot y,
                           void (*before)(step *s, int layer, int first, int rows))
{
    const param_kind kind = linear_of(s, which).first;
    const bool sum = share_inputs(s, kind);
    arena_slot all = share_outputs(s, kind) ? share_input(s, layer, x, false) : x;
    arena_slot out = sum ? share_partial(s, layer, y) : y;
    for (int i = 0; i < share_pieces(s, all, sum); i++) {
        const share_piece p = share_begin(s, all, i, sum);
        if (before)
            before(s, layer, p.from, p.count);
        forward_here(s, which, layer, &p, sum, sum ? -1 : residual, out);
        share_end(s, out, &p, sum);
    }
    share_drop(s, x, &all, false);
    if (sum)
        share_sum(s, &out, residual, y);
}

static void dx_here(step *s, int which, int layer, arena_slot dy, const share_piece *x, bool part, arena_slot dx)
{
    const linear l = parts_of(s, which), whole = linear_of(s, which);
    const int ldy = linear_out(&whole);
    for (int i = 0, row = 0; i < l.parts; row += l.out[i++]) {
        sb_matmul p = product(s, x->count, l.in, l.out[i]);
        p.lda = ldy, p.ldb = l.in, p.ldd = l.in;
        p.a = step_at(step_pointer(s, dy), ((int64_t)x->from * ldy + row) * s->element);
        p.b = step_at(step_param(s, l.first, layer), (int64_t)row * l.in * s->param_element);
        p.d = share_place(s, dx, x, l.in, part);
        if (i > 0)
            p.c = arena_planning(s->arena) ? (void *)p.b : p.d, p.ldc = l.in;
        float8_operands cast = float8_take(s, which, layer, PASS_DX, !s->micro->split, false, &p, s->main);
        linear_run(s, &l, "dx", layer, p, -1, s->main);
        float8_drop(s, &cast, false);
    }
}

/* A part of a sum goes piece by piece only where that spares its copy. */
arena_slot linear_dx_part(step *s, int which, int layer, arena_slot dy, arena_slot dx)
{
    const bool sum = share_outputs(s, linear_of(s, which).first), push = sum && s->o.push;
    arena_slot out = sum ? share_partial(s, layer, dx) : dx;
    share_whole(s, dy, s->main);
    for (int i = 0; i < share_pieces(s, -1, push); i++) {
        const share_piece p = share_begin(s, -1, i, push);
        dx_here(s, which, layer, dy, &p, push, out);
        share_end(s, out, &p, push);
    }
    if (sum && !push)
        share_give(s, out);
    return out;
}

void linear_dx_sum(step *s, int which, arena_slot *part, arena_slot dx)
{
    if (share_outputs(s, linear_of(s, which).first))
        share_sum(s, part, -1, dx);
}

void linear_dx(step *s, int which, int layer, arena_slot dy, arena_slot dx)
{
    arena_slot part = linear_dx_part(s, which, layer, dy, dx);
    linear_dx_sum(s, which, &part, dx);
}

void linear_forward(step *s, int which, int layer, arena_slot x, arena_slot residual, arena_slot y)
{
    linear_forward_behind(s, which, layer, x, residual, y, NULL);
}

static sb_matmul dw_product(const step *s, const linear *l, int part, int ldy)
{
    sb_matmul p = product(s, l->out[part], l->in, s->tokens);
    p.dtype_out = s->made_dtype;
    p.transpose_a = true;
    p.lda = ldy, p.ldb = l->in, p.ldd = l->in;
    return p;
}

/* The sum in d grows by the product. While planning it matters only that c is d, and that it is aligned. */
static void add_to(const step *s, sb_matmul *p, void *d)
{
    p->d = arena_planning(s->arena) ? (void *)s : d; /* NOLINT: nothing is written */
    p->c = p->d, p->ldc = p->ldd;
}

static const char *dw_name(bool adds)
{
    return adds ? "dw sum" : "dw";
}

/* ---- the head, some tokens at a time ---- */

void head_chunk_forward(step *s, int first, int rows, arena_slot x, arena_slot y)
{
    const linear l = linear_of(s, LINEAR_HEAD);
    sb_matmul p = product(s, rows, s->vocab, s->d);
    p.transpose_b = true;
    p.lda = p.ldb = s->d, p.ldd = s->vocab;
    p.a = step_at(step_pointer(s, x), (int64_t)first * s->d * s->element);
    p.b = step_param(s, l.first, -1);
    p.d = step_pointer(s, y);
    linear_run(s, &l, "forward", -1, p, -1, s->main);
}

void head_chunk_backward(step *s, int first, int rows, arena_slot dy, arena_slot x, arena_slot dx, char *dw)
{
    const linear l = linear_of(s, LINEAR_HEAD);
    sb_matmul p = product(s, s->vocab, s->d, rows);
    p.dtype_out = s->made_dtype;
    p.transpose_a = true;
    p.lda = s->vocab, p.ldb = p.ldd = s->d;
    p.a = step_pointer(s, dy);
    p.b = step_at(step_pointer(s, x), (int64_t)first * s->d * s->element);
    p.d = dw;
    if (first > 0 || s->adds) /* to what the chunks before gave, or the micro-batches before */
        add_to(s, &p, dw);
    linear_run(s, &l, dw_name(p.c), -1, p, -1, s->main);
    p = product(s, rows, s->d, s->vocab);
    p.lda = s->vocab, p.ldb = p.ldd = s->d;
    p.a = step_pointer(s, dy);
    p.b = step_param(s, l.first, -1);
    p.d = step_at(step_pointer(s, dx), (int64_t)first * s->d * s->element);
    linear_run(s, &l, "dx", -1, p, -1, s->main);
}

size_t linear_side_workspace(const step *s)
{
    size_t most = 0;
    for (int which = s->heads ? 0 : LINEAR_GATE_UP; which < LINEARS; which++) {
        if (which == LINEAR_HEAD && s->o.loss_chunk) /* not on the side stream */
            continue;
        const linear l = parts_of(s, which), whole = linear_of(s, which);
        for (int i = 0; i < l.parts; i++) {
            sb_matmul p = dw_product(s, &l, i, linear_out(&whole));
            float8_shape(s, which, PASS_DW, &p);
            for (int added = 0; added <= s->sums_in_products; added++) {
                if (added)
                    p.c = p.d = (void *)s, p.ldc = p.ldd; /* NOLINT: nothing is written */
                const size_t bytes = s->k->train->matmul_workspace(s->ctx, &p);
                most = bytes > most ? bytes : most;
            }
        }
    }
    return most;
}

/* `turned`: x is the input in float8, transposed. `aside`: on the side stream, where there is one. */
static void make_dw(step *s, int which, int layer, arena_slot dy, arena_slot x, bool turned, bool aside)
{
    const linear l = parts_of(s, which), whole = linear_of(s, which);
    const int ldy = linear_out(&whole);
    const int64_t count = (int64_t)ldy * l.in;
    char *dw = step_grad(s, l.first, layer, count); /* clears padding on main: before the side stream follows it */
    void *stream = aside ? side_fork(s) : s->main;
    share_whole(s, dy, stream);
    share_whole(s, x, stream);
    for (int i = 0, row = 0; i < l.parts; row += l.out[i++]) {
        sb_matmul p = dw_product(s, &l, i, ldy);
        p.a = step_at(step_pointer(s, dy), (int64_t)row * s->element);
        p.b = step_pointer(s, x);
        p.d = step_at(dw, (int64_t)row * l.in * s->made_element);
        if (s->adds)
            add_to(s, &p, p.d);
        float8_operands cast = float8_take(s, which, layer, PASS_DW, aside, turned, &p, stream);
        linear_run(s, &l, dw_name(p.c), layer, p, aside ? s->work.workspace : -1, stream);
        float8_drop(s, &cast, aside);
    }
    if (which == LINEAR_QKV && share_keys(s) && !unit_ready_whole(s)) {
        side_join(s);
        share_keys_sum(s, step_at(dw, (int64_t)s->width * s->d * s->made_element), s->made_dtype);
        stream = s->main;
    }
    step_ready(s, l.first, layer, count, stream);
}

void linear_dw(step *s, int which, int layer, arena_slot dy, arena_slot x)
{
    arena_slot none = -1, *copy = which == LINEAR_HEAD ? &none : &s->micro->blocks[layer].turned[which];
    const bool turned = *copy >= 0;
    arena_slot all = turned ? *copy : share_outputs(s, linear_of(s, which).first) ? share_input(s, layer, x, true) : x;
    if (s->micro->split)
        step_defer(s, (step_note){NOTE_PRODUCT, which, layer, dy, all, turned});
    else
        make_dw(s, which, layer, dy, all, turned, true);
    if (turned)
        side_drop(s, copy);
    else
        share_drop(s, x, &all, true);
}

void linear_dw_left(step *s, const step_note *n)
{
    make_dw(s, n->which, n->layer, n->dy, n->x, n->turned, false);
}
