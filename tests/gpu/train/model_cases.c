/* SPDX-License-Identifier: MIT */
/* Runs the cases of the whole training step; see train_model.h. */
#include "tests/gpu/train/model.h"

#include "common/core/error.h"
#include "common/train/tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OVERFIT_STEPS = 200 };
static const double overfit_loss = 0.01, pure_moved = 1e-2; /* the latter of parameters that have 8 bits */

typedef struct model_test {
    runner *r;
    model_bed bed;
    outcome references[MODEL_SHAPES]; /* fp32 on the CPU, where they are needed */
    bool needed[MODEL_SHAPES];
    /* The outcome that the MODEL_BITS cases, which come in a row, must repeat. */
    outcome base;
    const model_case *base_of;
} model_test;

static bool fail(const model_test *m, const model_case *c, const char *what)
{
    return runner_fail(m->r, MODEL_OP, c->policy->name, c->name, "%s", what);
}

static step_options options_of(const model_case *c)
{
    step_options o = model_options(c->shape, precision_find(c->policy->precision));
    o.split = c->policy->split;
    o.moments = c->policy->moments;
    o.attention = c->way->attention;
    o.fusion = c->way->fusion;
    o.overlap = c->way->overlap;
    o.grad_fp32 = c->way->grad_fp32;
    return o;
}

/* With an eps of this size an update is a smooth function of the gradient: with a small one it is nearly its sign,
 * which rounding decides where it is near zero. */
static void make_smooth(step_options *o)
{
    o->eps = 1;
    o->lr = 0.5;
}

static void prepare_reference(void *context, int i)
{
    model_test *m = context;
    char why[256];
    if (!m->needed[i])
        return;
    model_bed b = {.dev = device_open(DEVICE_CPU, 0), .kernels = sb_kernels_cpu()};
    b.mem = memory_create(b.dev);
    step_options o = model_options(&model_shapes[i], precision_find("fp32"));
    make_smooth(&o);
    if (b.kernels->create(0, &b.ctx) != SB_OK)
        die(EXIT_CODE_FAILURE, "the CPU backend: %s", sb_last_message());
    if (!model_run(&b, &o, &m->references[i], why, sizeof why))
        die(EXIT_CODE_FAILURE, "the CPU's training step of %s: %s", model_shapes[i].name, why);
    b.kernels->destroy(b.ctx);
    memory_destroy(b.mem);
    device_close(b.dev);
}

static void subtract(float *from, const float *what, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        from[i] -= what[i];
}

static bool close_enough(const model_test *m, const model_case *c, double error, double bound, const char *what)
{
    char text[160];
    snprintf(text, sizeof text, "%s: rel_l2 %.2e, allowed are %.1e", what, error, bound);
    return error <= bound || fail(m, c, text);
}

/* Logits, losses, the first gradients, and what the steps have moved. */
static bool judge_outcome(const model_test *m, const model_case *c, outcome *got, double *worst)
{
    const model_config *config = &c->shape->config;
    const outcome *want = &m->references[c->shape - model_shapes];
    const int64_t n = model_parameters(config), logits = (int64_t)c->shape->batch * c->shape->seq * config->vocab;
    const double bound = c->policy->bound;
    const bool pure = strcmp(c->policy->name, "bf16-pure") == 0;
    char name[64], what[96];
    bool ok = true;
    double error = relative_l2(want->logits, got->logits, logits);
    *worst = fmax(*worst, error);
    ok = close_enough(m, c, error, bound, "logits") && ok;
    for (int s = 0; s < MODEL_STEPS; s++) {
        snprintf(what, sizeof what, "loss of step %d, %.7g not %.7g", s, got->losses[s], want->losses[s]);
        ok = close_enough(m, c, fabs(got->losses[s] / want->losses[s] - 1), bound / 10, what) && ok;
    }
    error = model_worst(config, want->first_grads, got->first_grads, name, sizeof name);
    *worst = fmax(*worst, error);
    snprintf(what, sizeof what, "gradient of %s", name);
    ok = close_enough(m, c, error, bound, what) && ok;
    OWNED float *moved = xmalloc((size_t)n * sizeof *moved);
    memcpy(moved, want->after, (size_t)n * sizeof *moved);
    if (!pure) {
        subtract(moved, want->before, n);
        subtract(got->after, got->before, n);
    }
    error = model_worst(config, moved, got->after, name, sizeof name);
    snprintf(what, sizeof what, "%s of %s after %d steps", pure ? "values" : "change", name, MODEL_STEPS);
    ok = close_enough(m, c, error, pure ? pure_moved : 3 * bound, what) && ok;
    return ok;
}

static bool compare(model_test *m, const model_case *c, double *worst)
{
    char why[256];
    outcome got;
    step_options o = options_of(c);
    make_smooth(&o);
    if (!model_run(&m->bed, &o, &got, why, sizeof why))
        return fail(m, c, why);
    const bool ok = judge_outcome(m, c, &got, worst);
    outcome_free(&got);
    return ok;
}

/* ---- the same bits ---- */

static step_options plain_options(const model_case *c)
{
    step_options o = options_of(c);
    o.deterministic = true;
    o.overlap = OVERLAP_NONE;
    o.fusion = FUSION_KERNELS;
    return o;
}

static bool same_bits(model_test *m, const model_case *c)
{
    char why[256];
    outcome got;
    step_options o = plain_options(c);
    const model_variation *v = c->variation;
    if (!m->base_of || m->base_of->shape != c->shape || m->base_of->policy != c->policy || m->base_of->way != c->way) {
        outcome_free(&m->base);
        m->base_of = NULL;
        if (!model_run(&m->bed, &o, &m->base, why, sizeof why))
            return fail(m, c, why);
        m->base_of = c;
    }
    o.fusion = v->graph ? FUSION_GRAPH : FUSION_KERNELS;
    o.overlap = v->overlap;
    o.optimizer_blocks = v->blocks;
    o.share_grad_memory = v->share;
    o.recompute = v->recompute;
    o.recompute_every = v->every;
    if (!model_run(&m->bed, &o, &got, why, sizeof why))
        return fail(m, c, why);
    const size_t bytes = (size_t)model_parameters(&c->shape->config) * sizeof(float);
    bool ok = true;
    if (memcmp(got.losses, m->base.losses, sizeof got.losses) != 0)
        ok = fail(m, c, "the losses are not the same bit for bit");
    if (memcmp(got.first_grads, m->base.first_grads, bytes) != 0)
        ok = fail(m, c, "the gradients of the first step are not the same bit for bit");
    if (memcmp(got.grads, m->base.grads, bytes) != 0)
        ok = fail(m, c, "the gradients of the last step are not the same bit for bit");
    if (memcmp(got.after, m->base.after, bytes) != 0)
        ok = fail(m, c, "the parameters are not the same bit for bit");
    outcome_free(&got);
    return ok;
}

/* ---- learning, and tuning ---- */

static bool overfit(model_test *m, const model_case *c)
{
    char why[256];
    step_options o = options_of(c);
    o.lr = c->policy->rate;
    trainer *t = model_create(&m->bed, &o, why, sizeof why);
    if (!t)
        return fail(m, c, why);
    bool ok = true;
    model_tokens(t, 0);
    for (int i = 0; i < OVERFIT_STEPS && ok; i++)
        ok = trainer_step(t) || fail(m, c, sb_last_message());
    const double loss = trainer_loss(t);
    if (ok && !(loss < overfit_loss)) {
        snprintf(why, sizeof why, "the loss of one batch is %g after %d steps", loss, OVERFIT_STEPS);
        ok = fail(m, c, why);
    }
    trainer_free(t);
    memory_release_all(m->bed.mem);
    return ok;
}

/* Tuning changes no parameter, and leaves a step that is right. */
static bool tune(model_test *m, const model_case *c)
{
    char why[256];
    step_options o = options_of(c);
    o.overlap = OVERLAP_AUTO;
    trainer *t = model_create(&m->bed, &o, why, sizeof why);
    if (!t)
        return fail(m, c, why);
    const int64_t logits = (int64_t)o.batch * o.seq * o.config.vocab;
    OWNED float *before = all_params(t), *got = xmalloc((size_t)logits * sizeof *got);
    model_tokens(t, 0);
    bool ok = trainer_tune(t, NULL) || fail(m, c, sb_last_message());
    OWNED float *after = all_params(t);
    if (ok && memcmp(before, after, (size_t)model_parameters(&o.config) * sizeof *before) != 0)
        ok = fail(m, c, "tuning has changed parameters");
    ok = ok && (trainer_read_logits(t, got) || fail(m, c, sb_last_message())) &&
         close_enough(m, c, relative_l2(m->references[0].logits, got, logits), c->policy->bound, "tuned logits");
    trainer_free(t);
    memory_release_all(m->bed.mem);
    return ok;
}

static bool run_case(model_test *m, const model_case *c, double *worst)
{
    switch (c->kind) {
    case MODEL_COMPARE: return compare(m, c, worst);
    case MODEL_BITS: return same_bits(m, c);
    case MODEL_OVERFIT: return overfit(m, c);
    case MODEL_TUNE: return tune(m, c);
    }
    return false;
}

void run_model_cases(runner *r, const arguments *x)
{
    const model_list l = model_cases(x);
    model_test m = {.r = r, .bed = {.dev = r->dev, .kernels = r->kernels, .ctx = r->ctx}};
    m.bed.mem = memory_create(r->dev);
    for (int i = 0; i < l.n; i++)
        if (l.items[i].kind == MODEL_COMPARE || l.items[i].kind == MODEL_TUNE)
            m.needed[l.items[i].shape - model_shapes] = true;
    in_parallel(MODEL_SHAPES, prepare_reference, &m);
    for (int i = 0; i < l.n; i++) {
        const model_case *c = &l.items[i];
        tally *t = runner_tally(r, MODEL_OP, c->policy->name);
        double worst = 0;
        phase_set("%s %s %s", MODEL_OP, c->policy->name, c->name);
        const bool ok = run_case(&m, c, &worst);
        t->passed += ok;
        t->failed += !ok;
        t->worst = fmax(t->worst, worst);
        runner_progress(i + 1, l.n, "training steps");
    }
    for (int i = 0; i < MODEL_SHAPES; i++)
        outcome_free(&m.references[i]);
    outcome_free(&m.base);
    memory_destroy(m.bed.mem);
    free(l.items);
}
