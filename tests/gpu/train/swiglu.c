/* SPDX-License-Identifier: MIT */
/* SwiGLU with gates of every size, outputs on inputs, and h written again by backward. */
#include "tests/gpu/train/ops.h"
#include "tests/gpu/train/run.h"

#include <math.h>

typedef enum gates { GATES_NORMAL, GATES_WIDE, GATES_HUGE, GATES } gates;
enum { ALIAS, VALUES };
enum { H_ELSEWHERE, H_IS_DH, H_LEFT_OUT, H_WAYS }; /* backward; times two: d_gate_up is gate_up */

static void add_case(case_list *l, const train_op *op, sb_swiglu p, int alias, gates values, bool small)
{
    static const char *const value_names[] = {"normal", "wide", "huge"}, *const h_names[] = {"-h", "-h=dh", ""};
    train_case *c = case_add(l, op, case_dtype_names[p.dtype], "%dx%d-%s%s%s", p.rows, p.f, value_names[values],
                             alias < 0 ? "" : h_names[alias % H_WAYS], alias >= H_WAYS ? "-inplace" : "");
    c->p.swiglu = p;
    c->variant[ALIAS] = alias;
    c->variant[VALUES] = values;
    c->small = small;
    c->elements = (size_t)p.rows * (size_t)p.f * 8;
}

static void list(case_list *l, const train_op *op, bool backward)
{
    static const int sizes[] = {1, 3, 7, 64, 100, 255, 1001, 3072, 6400, 11008}, rows[] = {1, 3, 130};
    int nth = 0;
    for (size_t f = 0; f < sizeof sizes / sizeof *sizes; f++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++)
                for (int values = 0; values < GATES; values++, nth++) {
                    const sb_swiglu p = {.dtype = (sb_dtype)dtype, .rows = rows[r], .f = sizes[f]};
                    if (dtype == SB_TF32 && (r != 1 || values != GATES_NORMAL))
                        continue;
                    const bool small = dtype != SB_TF32 && r == 1 && (f == 2 || f == 3);
                    add_case(l, op, p, backward ? (int)(nth + (int)f) % (2 * H_WAYS) : -1, (gates)values, small);
                }
}

static void list_forward(case_list *l, const train_op *op)
{
    list(l, op, false);
}

static void list_backward(case_list *l, const train_op *op)
{
    list(l, op, true);
}

/* Sigmoids from 0 to 1, also where an exponential overflows. Products may not, since a result at the edge of a dtype's
 * range is infinite or not by one rounding. */
static slot *gates_and_ups(train_case *c, slot_role role)
{
    static const float huge[] = {0, -0.0f, 1, -1, 20, -20, 87, -87, 88.8f, -88.8f, 104, -104, 1000, -1000, 3e4f, -3e4f};
    const sb_swiglu *p = &c->p.swiglu;
    const size_t f = (size_t)p->f, rows = (size_t)p->rows;
    slot *x = slot_add(c, "gate_up", role, p->dtype, 2 * rows * f);
    slot_fill(c, x, 0, 1, x->n, x->n, 1);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < f; i++) {
            const size_t at = 2 * row * f + i;
            if (c->variant[VALUES] == GATES_WIDE)
                slot_set(x, at, 30 * slot_get(x, at));
            else if (c->variant[VALUES] == GATES_HUGE)
                slot_set(x, at, huge[(row * 5 + i) % (sizeof huge / sizeof *huge)]);
            if (c->variant[VALUES] == GATES_HUGE) /* at most 1, for 3e4 times it is a number of fp16 */
                slot_set(x, at + f, tanhf(slot_get(x, at + f)));
        }
    return x;
}

/* Where a gate is far below zero its sigmoid is nothing beside 1; where silu' vanishes, its terms are about 1. */
static const slot_bound bound = {.units = 1, .relative = 4e-6, .absolute = 2e-6, .scale = 1};

enum { FORWARD_GATE_UP, FORWARD_H };

static void fill_forward(train_case *c)
{
    gates_and_ups(c, SLOT_IN);
    slot_output(c, "h", c->p.swiglu.dtype, (size_t)c->p.swiglu.rows * (size_t)c->p.swiglu.f, bound);
}

static sb_status run_forward(const train_case *c, const train_call *x)
{
    sb_swiglu p = c->p.swiglu;
    p.gate_up = x->at[FORWARD_GATE_UP];
    p.h = x->at[FORWARD_H];
    return x->kernels->train->swiglu_forward(x->ctx, &p, x->stream);
}

enum { BACKWARD_GATE_UP, BACKWARD_DH, BACKWARD_MORE }; /* more: d_gate_up and h, where they are not on inputs */

static void fill_backward(train_case *c)
{
    const sb_swiglu *p = &c->p.swiglu;
    const size_t n = (size_t)p->rows * (size_t)p->f;
    const bool in_place = c->variant[ALIAS] >= H_WAYS;
    const int h = c->variant[ALIAS] % H_WAYS;
    slot *gate_up = gates_and_ups(c, in_place ? SLOT_INOUT : SLOT_IN);
    gate_up->bound = bound;
    slot *dh = slot_input(c, "dh", p->dtype, n, 0.3);
    dh->role = h == H_IS_DH ? SLOT_INOUT : SLOT_IN;
    dh->bound = bound;
    if (!in_place)
        slot_output(c, "d_gate_up", p->dtype, 2 * n, bound);
    if (h == H_ELSEWHERE)
        slot_output(c, "h", p->dtype, n, bound);
}

static sb_status run_backward(const train_case *c, const train_call *x)
{
    const bool in_place = c->variant[ALIAS] >= H_WAYS;
    const int h = c->variant[ALIAS] % H_WAYS;
    sb_swiglu p = c->p.swiglu;
    p.gate_up = x->at[BACKWARD_GATE_UP];
    p.dh = x->at[BACKWARD_DH];
    p.d_gate_up = x->at[in_place ? BACKWARD_GATE_UP : BACKWARD_MORE];
    p.h = h == H_LEFT_OUT ? NULL : h == H_IS_DH ? x->at[BACKWARD_DH] : x->at[BACKWARD_MORE + !in_place];
    return x->kernels->train->swiglu_backward(x->ctx, &p, x->stream);
}

/* h as backward writes it again has the bits of forward's: a step that recomputes it relies on that. */
static bool check_h_again(train_bed *bed, const train_case *c)
{
    const bool in_place = c->variant[ALIAS] >= H_WAYS;
    const int h = c->variant[ALIAS] % H_WAYS, h_slot = h == H_IS_DH ? BACKWARD_DH : BACKWARD_MORE + !in_place;
    if (h == H_LEFT_OUT)
        return true;
    instance x = instance_create(bed, c);
    guarded forward = guarded_create(bed->r, x.slots[h_slot].bytes);
    sb_swiglu p = c->p.swiglu;
    p.gate_up = x.call.at[BACKWARD_GATE_UP];
    p.h = forward.data;
    instance_reset(bed, &x);
    bool ok = bed->r->kernels->train->swiglu_forward(x.call.ctx, &p, x.call.stream) == SB_OK ||
              case_fail(bed->r, c, "forward is refused: %s", sb_last_message());
    device_sync(bed->r->dev);
    ok =
        ok && instance_run(bed, &x, " after forward") && instance_slot_equals(bed, &x, h_slot, &forward, "forward's h");
    guarded_free(bed->r, &forward);
    instance_free(bed, &x);
    return ok;
}

const train_op train_swiglu_forward = {"swiglu_forward", list_forward, fill_forward, NULL, run_forward, NULL};
const train_op train_swiglu_backward = {"swiglu_backward", list_backward, fill_backward, NULL,
                                        run_backward,      check_h_again};
