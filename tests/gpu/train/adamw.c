/* SPDX-License-Identifier: MIT */
/* AdamW: every combination of dtypes and masters that the CUDA backend has, several steps with optimizer_begin ahead of
 * each, lengths of no whole vectors, bounded numbers of blocks, and steps that are skipped. */
#include "tests/gpu/train/ops.h"

#include "common/core/numeric.h"

#include <math.h>
#include <string.h>

enum { SLOT_STATE, SLOT_GRAD, SLOT_M, SLOT_V, SLOT_PARAM, SLOT_MASTER }; /* the master behind the parameters */
enum { STEPS, SKIP };
static const float learning_rate = 0.01f, loss_scale = 4;

typedef struct combination {
    sb_dtype param, grad, moments;
    sb_master master;
} combination;
static const combination combinations[] = {
    {SB_FP32, SB_FP32, SB_FP32, SB_MASTER_NONE},  {SB_TF32, SB_FP32, SB_TF32, SB_MASTER_NONE},
    {SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT}, {SB_BF16, SB_FP32, SB_FP32, SB_MASTER_SPLIT},
    {SB_BF16, SB_BF16, SB_BF16, SB_MASTER_SPLIT}, {SB_BF16, SB_FP32, SB_BF16, SB_MASTER_SPLIT},
    {SB_BF16, SB_BF16, SB_FP32, SB_MASTER_FP32},  {SB_BF16, SB_FP32, SB_FP32, SB_MASTER_FP32},
    {SB_BF16, SB_BF16, SB_BF16, SB_MASTER_FP32},  {SB_BF16, SB_FP32, SB_BF16, SB_MASTER_FP32},
    {SB_BF16, SB_BF16, SB_FP32, SB_MASTER_NONE},  {SB_BF16, SB_FP32, SB_FP32, SB_MASTER_NONE},
    {SB_BF16, SB_BF16, SB_BF16, SB_MASTER_NONE},  {SB_BF16, SB_FP32, SB_BF16, SB_MASTER_NONE},
    {SB_FP16, SB_FP16, SB_FP32, SB_MASTER_FP32},  {SB_FP16, SB_FP32, SB_FP32, SB_MASTER_FP32},
    {SB_FP16, SB_FP16, SB_FP16, SB_MASTER_FP32},  {SB_FP16, SB_FP32, SB_FP16, SB_MASTER_FP32},
    {SB_FP16, SB_FP16, SB_FP32, SB_MASTER_NONE},  {SB_FP16, SB_FP32, SB_FP32, SB_MASTER_NONE},
    {SB_FP16, SB_FP16, SB_FP16, SB_MASTER_NONE},  {SB_FP16, SB_FP32, SB_FP16, SB_MASTER_NONE},
    {SB_FP32, SB_BF16, SB_FP32, SB_MASTER_NONE},  {SB_FP32, SB_FP32, SB_BF16, SB_MASTER_NONE},
    {SB_BF16, SB_BF16, SB_BF16, SB_MASTER_SPLIT}, {SB_BF16, SB_FP32, SB_BF16, SB_MASTER_SPLIT},
    {SB_BF16, SB_BF16, SB_BF16, SB_MASTER_FP32},  {SB_BF16, SB_FP32, SB_BF16, SB_MASTER_NONE},
    {SB_FP16, SB_FP16, SB_BF16, SB_MASTER_FP32},  {SB_FP16, SB_FP32, SB_BF16, SB_MASTER_NONE},
    {SB_FP32, SB_BF16, SB_BF16, SB_MASTER_NONE},
};
enum { COMBINATIONS = sizeof combinations / sizeof *combinations, NEAREST = 23 };
enum { STOCHASTIC_SPLIT = NEAREST + 1 }; /* the moments of those from NEAREST on are rounded by chance */

static void add_case(case_list *l, const train_op *op, const combination *x, size_t n, int max_blocks, int steps,
                     bool skip, bool small)
{
    static const char *const masters[] = {"", "-split", "-master"};
    const bool stochastic = x - combinations >= NEAREST;
    train_case *c = case_add(l, op, case_dtype_names[x->param], "%zu-g%s-m%s%s%s-blocks%d-steps%d%s", n,
                             case_dtype_names[x->grad], case_dtype_names[x->moments], stochastic ? "-stochastic" : "",
                             masters[x->master], max_blocks, steps, skip ? "-skip" : "");
    c->p.adamw = (sb_adamw){.dtype_param = x->param,
                            .dtype_grad = x->grad,
                            .dtype_moments = x->moments,
                            .master_kind = x->master,
                            .stochastic = stochastic,
                            .first = stochastic && n % 2 ? 4 * UINT64_C(0x123456789) : 0,
                            .n = n,
                            .beta1 = 0.9,
                            .beta2 = stochastic ? 0.999 : 0.95,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .max_blocks = max_blocks};
    c->variant[STEPS] = steps;
    c->variant[SKIP] = skip;
    c->small = small;
    c->elements = n * 5;
}

static void list(case_list *l, const train_op *op)
{
    static const size_t sizes[] = {1, 3, 5, 2047, 2049, 100003};
    static const int blocks[] = {0, 1, 7};
    for (int i = 0; i < COMBINATIONS; i++) {
        const combination *x = &combinations[i];
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            add_case(l, op, x, sizes[s], blocks[(s + (size_t)i) % 3], 3, false, s == 3);
        for (int b = 0; b < 3; b++)
            add_case(l, op, x, 300001, blocks[b], 1, false, false);
        add_case(l, op, x, 10007, 0, 1, true, false);
        add_case(l, op, x, 1003, 0, 4, true, i % 5 == 2);
    }
    for (int i = 0; i < COMBINATIONS; i++)
        if (i == 0 || i == 2 || i == 3 || i == 14 || i == STOCHASTIC_SPLIT)
            for (int b = 0; b < 3; b += 2)
                add_case(l, op, &combinations[i], 10000003, blocks[b], 2, false, false);
}

/* ---- one case ---- */

/* The error of a step's update, which is up to about four learning rates: the roundings of fp32, or of a moment in 16 bits
 * that falls on the other side and changes the updates after it. */
static double update_error(sb_dtype moments)
{
    static const double relative[] = {0x1p-7, 0x1p-10, 2e-6, 2e-6};
    return 4 * relative[moments] * learning_rate;
}

static void fill_params(train_case *c)
{
    const sb_adamw *p = &c->p.adamw;
    const double update = update_error(p->dtype_moments) * c->variant[STEPS];
    const slot_bound precise = {.units = 1, .relative = 1e-6, .absolute = update, .scale = 1};
    slot *param = slot_input(c, "param", p->dtype_param, p->n, 0.5);
    param->role = SLOT_INOUT;
    param->bound = precise;
    param->bound.units = p->master_kind == SB_MASTER_NONE ? 2 : 1; /* rounded once a step, or the rounded master */
    if (p->master_kind == SB_MASTER_FP32) {
        slot *master = slot_input(c, "master", SB_FP32, p->n, 0.5); /* other draws: the parameter is only written */
        master->role = SLOT_INOUT;
        master->bound = precise;
    } else if (p->master_kind == SB_MASTER_SPLIT) {
        slot *rest = slot_add_content(c, "remainder", SLOT_INOUT, SLOT_REMAINDERS, p->n);
        rest->bound = precise;
        for (size_t i = 0; i < p->n; i++) {
            uint16_t high;
            const float x = slot_get(param, i) * (1 + (float)((double)(i % 255) - 127) * 0x1p-17f);
            float_split(x, &high, (int16_t *)rest->before + i);
            memcpy(param->before + i * sizeof high, &high, sizeof high);
        }
    }
}

static void fill(train_case *c)
{
    const sb_adamw *p = &c->p.adamw;
    const sb_optimizer_state state = {
        .lr = learning_rate, .loss_scale = loss_scale, .found_nonfinite = c->variant[SKIP]};
    slot *s = slot_add_content(c, "state", SLOT_INOUT, SLOT_STATES, 1);
    memset(s->before, 0, STATE_BYTES);
    memcpy(s->before, &state, sizeof state);
    /* Away from zero: squares of small gradients are coarse in 16 bits. */
    slot *grad = slot_input(c, "grad", p->dtype_grad, p->n, 1);
    for (size_t i = 0; i < p->n; i++)
        slot_set(grad, i, loss_scale * (slot_get(grad, i) + (slot_get(grad, i) < 0 ? -0.25f : 0.25f)));
    for (int i = 0; i < 2; i++) {
        slot *moment = slot_input(c, i ? "v" : "m", p->dtype_moments, p->n, 0.1);
        moment->role = SLOT_INOUT;
        if (!p->stochastic) /* else bit for bit */
            moment->bound = (slot_bound){.units = 2, .relative = 2e-6, .absolute = 1e-6};
        for (size_t j = 0; i == 1 && j < p->n; j++)
            slot_set(moment, j, 0.25f + fabsf(slot_get(moment, j)));
    }
    fill_params(c);
}

static sb_status run(const train_case *c, const train_call *x)
{
    const sb_train_ops *ops = x->kernels->train;
    sb_adamw p = c->p.adamw;
    p.state = x->at[SLOT_STATE];
    p.param = x->at[SLOT_PARAM];
    p.master = p.master_kind == SB_MASTER_NONE ? NULL : x->at[SLOT_MASTER];
    p.grad = x->at[SLOT_GRAD];
    p.m = x->at[SLOT_M];
    p.v = x->at[SLOT_V];
    const sb_optimizer_begin begin = {.state = x->at[SLOT_STATE], .beta1 = p.beta1, .beta2 = p.beta2};
    sb_status s = SB_OK;
    for (int i = 0; i < c->variant[STEPS] && s == SB_OK; i++) {
        s = ops->optimizer_begin(x->ctx, &begin, x->stream);
        if (s == SB_OK)
            s = ops->adamw(x->ctx, &p, x->stream);
    }
    return s;
}

const train_op train_adamw = {"adamw", list, fill, NULL, run, NULL};
