/* SPDX-License-Identifier: MIT */
/* The matmul with SwiGLU at its end: shapes with a part of a tile in every dimension, tiles of every width, many rounds of
 * them, gaps between the rows of x and dy, with and without what need not be written. */
#include "tests/gpu/train/ops.h"
#include "tests/gpu/train/run.h"

#include <math.h>

enum { PARTIAL, GAP }; /* in variant[]: forward writes no gate_up, backward no h; elements between rows */

/* 1000 x 2568 x 64 has one step of k, fewer than a tile has chunks; 2048 x 6400 x 520 takes two launches. */
static const struct shape {
    int rows, f, d;
    bool small;
} shapes[] = {{1, 8, 8, false},        {7, 40, 64, true},        {64, 64, 72, false},      {128, 96, 520, false},
              {130, 264, 136, true},   {257, 128, 24, false},    {300, 1000, 200, false},  {512, 3072, 768, false},
              {1000, 2568, 64, false}, {2100, 2568, 136, false}, {2048, 6400, 520, false}, {4096, 3072, 768, false}};

static void list(case_list *l, const train_op *op)
{
    static const int gaps[] = {0, 8, 24};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dtype = SB_BF16; dtype <= SB_FP16; dtype++)
            for (int partial = 0; partial < 2; partial++) {
                const struct shape *s = &shapes[i];
                const int gap = gaps[(i + (size_t)(dtype + partial)) % 3];
                train_case *c = case_add(l, op, case_dtype_names[dtype], "%dx%dx%d-gap%d%s", s->rows, s->f, s->d, gap,
                                         partial ? "-partial" : "");
                c->p.swiglu_matmul = (sb_swiglu_matmul){
                    .dtype = (sb_dtype)dtype, .rows = s->rows, .f = s->f, .d = s->d, .lda = s->d + gap};
                c->variant[PARTIAL] = partial;
                c->variant[GAP] = gap;
                c->small = s->small;
                c->may_be_unsupported = true; /* another GPU */
                c->elements = (size_t)s->rows * (size_t)s->f * 6 + (size_t)s->rows * (size_t)s->f * (size_t)s->d / 100;
            }
}

/* Rows of x or dy, without a gap behind the last one. */
static void rows_slot(train_case *c, const char *name)
{
    const sb_swiglu_matmul *p = &c->p.swiglu_matmul;
    slot *s = slot_add(c, name, SLOT_IN, p->dtype, (size_t)(p->rows - 1) * (size_t)p->lda + (size_t)p->d);
    slot_fill(c, s, 0, (size_t)p->rows, (size_t)p->d, (size_t)p->lda, 1);
}

static double unit_of(sb_dtype t)
{
    return t == SB_BF16 ? 0x1p-7 : 0x1p-10;
}

/* ---- forward ---- */

enum { FORWARD_X, FORWARD_W13, FORWARD_H, FORWARD_GATE_UP };

/* A gate or an up whose sum is between two numbers of the dtype may be either of them, and h follows. */
static void fill_forward(train_case *c)
{
    const sb_swiglu_matmul *p = &c->p.swiglu_matmul;
    const size_t n = (size_t)p->rows * (size_t)p->f;
    const double unit = unit_of(p->dtype);
    const slot_bound sums = {.units = 1, .relative = 1e-6, .absolute = 2e-6 + 4e-7 * sqrt(p->d), .rel_l2 = unit / 64},
                     h = {.units = 1, .relative = 3 * unit, .absolute = unit / 2, .rel_l2 = unit / 8};
    rows_slot(c, "x");
    slot_input(c, "w13", p->dtype, 2 * (size_t)p->f * (size_t)p->d, 2 / sqrt(p->d));
    slot_output(c, "h", p->dtype, n, h);
    if (!c->variant[PARTIAL])
        slot_output(c, "gate_up", p->dtype, 2 * n, sums);
}

static sb_status run_forward(const train_case *c, const train_call *x)
{
    sb_swiglu_matmul p = c->p.swiglu_matmul;
    const sb_status s = x->kernels->train->swiglu_matmul_supported(x->ctx, &p);
    p.x = x->at[FORWARD_X];
    p.w13 = x->at[FORWARD_W13];
    p.h = x->at[FORWARD_H];
    p.gate_up = c->variant[PARTIAL] ? NULL : x->at[FORWARD_GATE_UP];
    return s != SB_OK ? s : x->kernels->train->swiglu_matmul_forward(x->ctx, &p, x->stream);
}

/* h has the bits that the separate op makes of the gate_up that was stored: a step that recomputes it relies on that. */
static bool check_h(train_bed *bed, const train_case *c)
{
    if (c->variant[PARTIAL])
        return true;
    instance x = instance_create(bed, c);
    guarded separate = guarded_create(bed->r, x.slots[FORWARD_H].bytes);
    const sb_swiglu p = {.dtype = c->p.swiglu_matmul.dtype,
                         .rows = c->p.swiglu_matmul.rows,
                         .f = c->p.swiglu_matmul.f,
                         .gate_up = x.call.at[FORWARD_GATE_UP],
                         .h = separate.data};
    bool ok = instance_run(bed, &x, " before the separate op");
    ok = ok && (bed->r->kernels->train->swiglu_forward(x.call.ctx, &p, x.call.stream) == SB_OK ||
                case_fail(bed->r, c, "swiglu_forward is refused: %s", sb_last_message()));
    device_sync(bed->r->dev);
    ok = ok && instance_slot_equals(bed, &x, FORWARD_H, &separate, "swiglu_forward's h");
    guarded_free(bed->r, &separate);
    instance_free(bed, &x);
    return ok;
}

/* ---- backward ---- */

enum { BACKWARD_DY, BACKWARD_W2, BACKWARD_GATE_UP, BACKWARD_H };

/* Like the forward's, for dh and the gradients. */
static void fill_backward(train_case *c)
{
    const sb_swiglu_matmul *p = &c->p.swiglu_matmul;
    const size_t n = (size_t)p->rows * (size_t)p->f;
    const double unit = unit_of(p->dtype);
    const slot_bound gradients = {.units = 1, .relative = 1.02 * unit, .absolute = 1e-5, .rel_l2 = unit / 8},
                     h = {.units = 1, .relative = 4e-6, .absolute = 2e-6};
    rows_slot(c, "dy");
    slot_input(c, "w2", p->dtype, (size_t)p->f * (size_t)p->d, 1 / sqrt(p->d));
    slot *gate_up = slot_add(c, "gate_up", SLOT_INOUT, p->dtype, 2 * n);
    slot_fill(c, gate_up, 0, 1, 2 * n, 2 * n, 2);
    gate_up->bound = gradients;
    if (!c->variant[PARTIAL])
        slot_output(c, "h", p->dtype, n, h);
}

static sb_status run_backward(const train_case *c, const train_call *x)
{
    sb_swiglu_matmul p = c->p.swiglu_matmul;
    const sb_status s = x->kernels->train->swiglu_matmul_supported(x->ctx, &p);
    p.dy = x->at[BACKWARD_DY];
    p.w2 = x->at[BACKWARD_W2];
    p.gate_up = x->at[BACKWARD_GATE_UP];
    p.h = c->variant[PARTIAL] ? NULL : x->at[BACKWARD_H];
    return s != SB_OK ? s : x->kernels->train->swiglu_matmul_backward(x->ctx, &p, x->stream);
}

const train_op train_swiglu_matmul_forward = {"swiglu_matmul_forward", list, fill_forward, NULL, run_forward, check_h};
const train_op train_swiglu_matmul_backward = {"swiglu_matmul_backward", list, fill_backward, NULL, run_backward, NULL};
