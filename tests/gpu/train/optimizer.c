/* SPDX-License-Identifier: MIT */
/* Gradient statistics with gradients that are not finite at either end, and what optimizer_begin makes of a sequence of
 * good and bad steps. */
#include "tests/gpu/train/ops.h"

#include <math.h>
#include <string.h>

/* ---- grad_stats ---- */

enum { STATS_GRAD, STATS_STATE };
typedef enum gradients { ALL_FINITE, INF_FIRST, NAN_FIRST, NAN_LAST, MINUS_INF_LAST, VERY_LARGE, GRADIENTS } gradients;

static void list_stats(case_list *l, const train_op *op)
{
    static const char *const kinds[] = {"finite", "inf-first", "nan-first", "nan-last", "minus-inf-last", "large"};
    static const size_t sizes[] = {1, 7, 255, 1001, 100003, 10000001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++)
            for (int kind = 0; kind < GRADIENTS; kind++) {
                if ((dtype == SB_TF32 && s != 3) || (sizes[s] > 1000000 && kind != ALL_FINITE && kind != NAN_LAST))
                    continue;
                train_case *c = case_add(l, op, case_dtype_names[dtype], "%zu-%s", sizes[s], kinds[kind]);
                c->p.grad_stats = (sb_grad_stats){.dtype = (sb_dtype)dtype, .n = sizes[s]};
                c->variant[0] = kind;
                c->small = dtype != SB_TF32 && s == 3 && (kind == ALL_FINITE || kind == NAN_LAST);
                c->elements = sizes[s];
            }
}

static slot *state_slot(train_case *c, sb_optimizer_state state)
{
    slot *s = slot_add_content(c, "state", SLOT_INOUT, SLOT_STATES, 1);
    memset(s->before, 0, STATE_BYTES);
    memcpy(s->before, &state, sizeof state);
    return s;
}

static void fill_stats(train_case *c)
{
    const sb_grad_stats *p = &c->p.grad_stats;
    const gradients kind = (gradients)c->variant[0];
    /* Squares of fp32 fit in fp32, and their sums do not need to. */
    const double scale = kind != VERY_LARGE ? 3 : p->dtype == SB_FP16 ? 1e4 : 1e17;
    slot *grad = slot_input(c, "grad", p->dtype, p->n, scale);
    if (kind == INF_FIRST || kind == NAN_FIRST)
        slot_set(grad, 0, kind == INF_FIRST ? INFINITY : NAN);
    else if (kind == NAN_LAST || kind == MINUS_INF_LAST)
        slot_set(grad, p->n - 1, kind == NAN_LAST ? NAN : -INFINITY);
    state_slot(c, (sb_optimizer_state){.step = 5, .lr = 0.5f, .loss_scale = 8});
}

static size_t workspace_stats(const train_case *c, const sb_kernels *k, sb_context *ctx)
{
    return k->train->grad_stats_workspace(ctx, &c->p.grad_stats);
}

static sb_status run_stats(const train_case *c, const train_call *x)
{
    sb_grad_stats p = c->p.grad_stats;
    p.grad = x->at[STATS_GRAD];
    p.state = x->at[STATS_STATE];
    p.workspace = x->workspace;
    p.workspace_bytes = x->workspace_bytes;
    return x->kernels->train->grad_stats(x->ctx, &p, x->stream);
}

/* ---- optimizer_begin ---- */

/* A plan has a letter a step: g, a good one; b, one with a gradient that is not finite. Each step is grad_stats, begin,
 * and a copy of the state to the history. */
enum { BEGIN_GOOD, BEGIN_BAD, BEGIN_STATE, BEGIN_HISTORY, BEGIN_RATES, BEGIN_NORMS };
enum { BEGIN_N = 1000, BEGIN_UPDATES = 3 /* fewer than the longest plan has */ };

typedef struct dynamics {
    const char *name, *plan;
    bool dynamic;
    int growth_interval;
    float loss_scale, clip_norm;
} dynamics;
static const dynamics all_dynamics[] = {
    {"corrections", "gggggggggggggggggggg", false, 0, 1, 0},
    {"fixed-scale", "ggbgbbgg", false, 0, 128, 0},
    {"growth-3", "ggggbbgggggggb", true, 3, 65536, 0},
    {"growth-1", "gbggbg", true, 1, 1024, 0},
    {"smallest-scale", "bbbg", true, 4, 0x1p-13f, 0},
    {"largest-scale", "gggbg", true, 1, 0x1p23f, 0},
    {"clipped", "ggbg", false, 0, 4, 0.5f},
    {"clip-not-reached", "gg", false, 0, 4, 1e6f},
    {"clipped-and-dynamic", "gggbgggg", true, 2, 256, 1},
};
enum { DYNAMICS = sizeof all_dynamics / sizeof *all_dynamics };

static void list_begin(case_list *l, const train_op *op)
{
    for (int i = 0; i < DYNAMICS; i++) {
        const dynamics *d = &all_dynamics[i];
        train_case *c = case_add(l, op, "fp32", "%s", d->name);
        c->p.begin = (sb_optimizer_begin){.beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .clip_norm = d->clip_norm,
                                          .dynamic_scale = d->dynamic,
                                          .growth_interval = d->growth_interval};
        c->variant[0] = i;
        c->small = i == 2 || i == 6;
        c->elements = 2 * BEGIN_N;
    }
}

static void fill_begin(train_case *c)
{
    const dynamics *d = &all_dynamics[c->variant[0]];
    slot_input(c, "good", SB_FP32, BEGIN_N, 3);
    slot_set(slot_input(c, "bad", SB_FP32, BEGIN_N, 3), BEGIN_N / 2, INFINITY);
    state_slot(c, (sb_optimizer_state){.lr = 0.5f, .loss_scale = d->loss_scale});
    slot_add_content(c, "history", SLOT_OUT, SLOT_STATES, strlen(d->plan));
    slot_input(c, "rates", SB_FP32, BEGIN_UPDATES, 1);
    slot *norms = slot_input(c, "norms", SB_FP32, BEGIN_UPDATES, 1);
    norms->role = SLOT_INOUT;
    norms->bound.relative = 1e-5;
}

static sb_grad_stats stats_of(const train_call *x, int grad)
{
    return (sb_grad_stats){.state = x->at[BEGIN_STATE],
                           .dtype = SB_FP32,
                           .n = BEGIN_N,
                           .grad = x->at[grad],
                           .workspace = x->workspace,
                           .workspace_bytes = x->workspace_bytes};
}

static size_t workspace_begin(const train_case *c, const sb_kernels *k, sb_context *ctx)
{
    const sb_grad_stats p = {.dtype = SB_FP32, .n = BEGIN_N};
    (void)c;
    return k->train->grad_stats_workspace(ctx, &p);
}

static sb_status run_begin(const train_case *c, const train_call *x)
{
    const sb_train_ops *ops = x->kernels->train;
    const char *plan = all_dynamics[c->variant[0]].plan;
    sb_status s = SB_OK;
    for (int i = 0; plan[i] && s == SB_OK; i++) {
        const sb_grad_stats stats = stats_of(x, plan[i] == 'g' ? BEGIN_GOOD : BEGIN_BAD);
        sb_optimizer_begin begin = c->p.begin;
        begin.state = x->at[BEGIN_STATE];
        begin.rates = x->at[BEGIN_RATES], begin.norms = x->at[BEGIN_NORMS], begin.updates = BEGIN_UPDATES;
        s = ops->grad_stats(x->ctx, &stats, x->stream);
        if (s == SB_OK)
            s = ops->optimizer_begin(x->ctx, &begin, x->stream);
        if (s == SB_OK)
            s = x->kernels->copy(x->ctx, (char *)x->at[BEGIN_HISTORY] + i * STATE_BYTES, begin.state, STATE_BYTES,
                                 x->stream);
    }
    return s;
}

const train_op train_grad_stats = {"grad_stats", list_stats, fill_stats, workspace_stats, run_stats, NULL};
const train_op train_optimizer_begin = {"optimizer_begin", list_begin, fill_begin, workspace_begin, run_begin, NULL};
