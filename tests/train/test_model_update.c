/* SPDX-License-Identifier: MIT */
/* What updates parameters: the learning rate, the loss scale, clipping, the optimizer alone; and parameters written and
 * read back. */
#include "tests/support/model_problem.h"
#include "tests/support/test.h"

#include "common/core/rng.h"
#include "common/train/feed.h"
#include "common/train/update.h"

TEST(learning_rate)
{
    for (int i = 0; i < POLICIES; i++) {
        step_options o = small_options();
        o.precision = precision_find(policies[i]);
        OWNED_TRAINER trainer *t = create(&o);
        OWNED float *before = all_params(t);
        trainer_set_lr(t, 0);
        step(t);
        float *after = all_params(t);
        same_bits(trainer_params(t), before, after, "a step with a learning rate of 0");
        trainer_set_lr(t, 1e-2);
        step(t);
        free(after);
        after = all_params(t);
        assert_true(worst_tensor(trainer_params(t), before, after, NULL) > 1e-4);
        free(after);
    }
}

enum { FED_STEPS = 5 };

/* A table of rates gives the bits of a rate set before each step, staged tokens those of tokens that were set; losses and norms
 * of all steps can be had afterwards. */
TEST(a_run_is_fed_without_a_wait)
{
    static const float rates[FED_STEPS - 1] = {1e-3f, 2e-2f, 5e-3f, 3e-3f};
    for (int i = 0; i < POLICIES; i++) {
        step_options o = small_options();
        o.precision = precision_find(policies[i]);
        o.micro_batches = 1 + i % 2;
        o.clip_norm = 0.5;
        OWNED_TRAINER trainer *t = create(&o), *fed = create(&o);
        const size_t n = (size_t)o.batch * (size_t)o.seq * (size_t)o.micro_batches;
        OWNED int32_t *tokens = malloc(FED_STEPS * 2 * n * sizeof *tokens);
        float losses[FED_STEPS * 2], norms[FED_STEPS - 1];
        double want[FED_STEPS], want_norms[FED_STEPS];
        for (size_t at = 0; at < FED_STEPS * 2 * n; at++)
            tokens[at] = (int32_t)(rng_uniform(5, 1, at) * o.config.vocab);
        for (int at = 0; at < FED_STEPS; at++) {
            sb_optimizer_state now;
            trainer_set_lr(t, rates[at < FED_STEPS - 2 ? at : FED_STEPS - 2]);
            trainer_set_tokens(t, tokens + (size_t)at * 2 * n, tokens + ((size_t)at * 2 + 1) * n);
            step(t);
            want[at] = trainer_loss(t);
            trainer_optimizer_state(t, &now);
            want_norms[at] = now.grad_norm;
        }
        assert_true(trainer_keep_history(fed, rates, FED_STEPS - 1));
        for (int at = 0; at < FED_STEPS; at++) {
            trainer_stage_tokens(fed, tokens + (size_t)at * 2 * n, tokens + ((size_t)at * 2 + 1) * n);
            assert_true(trainer_step(fed));
            if (at < FED_STEPS - 1)
                trainer_keep_loss(fed, at);
        }
        trainer_fetch_history(fed, 0, FED_STEPS - 1, losses, norms);
        trainer_loss(fed); /* waits */
        for (int at = 0; at < FED_STEPS - 1; at++) {
            const float *loss = losses + at * o.micro_batches;
            assert_true(want[at] == (o.micro_batches == 1 ? loss[0] : ((double)loss[0] + loss[1]) / 2));
            assert_true(norms[at] == (float)want_norms[at] && norms[at] > 0);
        }
        OWNED float *a = all_params(t), *b = all_params(fed);
        same_bits(trainer_params(t), a, b, policies[i]);
    }
}

/* Values come back as they were written where there is a master, and rounded once where there is none. */
TEST(parameters_in_and_out)
{
    for (int i = 0; i < POLICIES; i++) {
        step_options o = small_options();
        o.precision = precision_find(policies[i]);
        OWNED_TRAINER trainer *t = create(&o);
        const int64_t n = trainer_params(t)->parameters;
        OWNED float *values = malloc((size_t)n * sizeof *values);
        rng_normal(values, (size_t)n, 1, 2, 0, 1);
        set_params(t, values);
        OWNED float *back = all_params(t);
        if (strcmp(policies[i], "bf16-pure") == 0)
            tensors_close(trainer_params(t), values, back, 0x1p-8, policies[i]);
        else
            same_bits(trainer_params(t), values, back, policies[i]);
    }
}

TEST(loss_scale)
{
    step_options o = small_options();
    o.precision = precision_find("fp16");
    OWNED_TRAINER trainer *t = create(&o);
    sb_optimizer_state s;
    golden_params(t);
    golden_tokens(t, 0);
    OWNED float *before = all_params(t);
    trainer_set_loss_scale(t, 0x1p24);
    step(t);
    trainer_optimizer_state(t, &s);
    assert_true(s.step == 0 && s.skipped == 1 && s.loss_scale == 0x1p23f);
    float *after = all_params(t);
    same_bits(trainer_params(t), before, after, "a step whose gradients overflow");
    for (int i = 0; s.step == 0 && i < 24; i++) {
        step(t);
        trainer_optimizer_state(t, &s);
    }
    assert_true(s.step == 1 && s.skipped >= 2 && s.loss_scale * (float)(1 << s.skipped) == 0x1p24f);
    free(after);
    after = all_params(t);
    assert_true(worst_tensor(trainer_params(t), before, after, NULL) > 1e-4);
    free(after);
}

TEST(clipping)
{
    step_options o = small_options();
    o.eps = 1; /* so that the size of a gradient matters for the update */
    o.lr = 0.5;
    o.weight_decay = 0.1;
    for (int clip = 0; clip < 3; clip++) {
        o.clip_norm = (const double[]){0, 0.25, 100}[clip];
        OWNED_TRAINER trainer *t = create(&o);
        const params *p = trainer_params(t);
        golden_params(t);
        golden_tokens(t, 0);
        float *before = all_params(t);
        step_options plain = o;
        plain.mode = STEP_FORWARD_BACKWARD;
        plain.clip_norm = 0;
        trainer *other = create(&plain);
        golden_params(other);
        golden_tokens(other, 0);
        step(other);
        float *grads = all_grads(other);
        trainer_free(other);
        step(t);
        float *after = all_params(t), *want = malloc((size_t)p->parameters * sizeof *want);
        double norm = 0;
        for (int64_t i = 0; i < p->parameters; i++)
            norm += (double)grads[i] * grads[i];
        norm = sqrt(norm);
        assert_true(norm > 0.5 && norm < 100);
        const double factor = clip == 1 ? 0.25 / norm : 1;
        for (int64_t i = 0; i < p->parameters;
             i++) { /* in the first step m / correction1 is g, sqrt(v) / correction2 is |g| */
            const double g = grads[i] * factor, kept = before[i] * (1 - 0.5 * 0.1);
            want[i] = (float)(kept - 0.5 * g / (fabs(g) + 1));
        }
        tensors_close(p, want, after, 1e-6, "the update of clipped gradients");
        sb_optimizer_state s;
        trainer_optimizer_state(t, &s);
        if (clip > 0)
            assert_true(fabs(s.grad_norm - norm) < 1e-5 * norm);
        free(before), free(grads), free(after), free(want);
    }
}

/* The optimizer alone does what it does in a step. */
TEST(optimizer_alone)
{
    step_options o = small_options();
    OWNED_TRAINER trainer *t = create(&o);
    step(t);
    float *before = all_params(t), *grads = all_grads(t);
    assert_true(trainer_optimizer(t));
    float *after = all_params(t), *grads_after = all_grads(t);
    same_bits(trainer_params(t), grads, grads_after, "gradients beside the optimizer");
    assert_true(worst_tensor(trainer_params(t), before, after, NULL) > 1e-4);
    sb_optimizer_state s;
    trainer_optimizer_state(t, &s);
    assert_true(s.step == 2);
    assert_true(trainer_optimizer_bytes(t) == 28.0 * (double)trainer_params(t)->elements); /* p, m, v twice; g */
    step(t);
    free(before), free(grads), free(after), free(grads_after);
}

/* Moments in bf16: what updates beside the backward make has the bits of one range over all; and the
 * bytes of an update. */
TEST(moments_in_16_bits)
{
    static const double bytes[] = {20, 20, 18, 14, 20}; /* of the policies: p, m, v and master part twice; g */
    for (int i = 0; i < POLICIES; i++) {
        float *params[2] = {NULL};
        uint16_t *moments[2] = {NULL};
        size_t n = 0;
        for (int way = 0; way < 2; way++) {
            step_options o = small_options();
            o.precision = precision_find(policies[i]);
            o.moments = MOMENTS_BF16;
            o.overlap = way ? OVERLAP_ALL : OVERLAP_NONE;
            OWNED_TRAINER trainer *t = create(&o);
            assert_true(trainer_state_of(t).moments_dtype == SB_BF16);
            if (o.precision->loss_scaling)
                trainer_set_loss_scale(t, 1);
            for (int s = 0; s < 3; s++)
                step(t);
            n = (size_t)trainer_params(t)->parameters;
            params[way] = all_params(t);
            moments[way] = malloc(2 * n * sizeof **moments);
            const param_tensor all = {.count = (int64_t)n};
            trainer_read_moments(t, &all, moments[way], moments[way] + n);
            assert_true(trainer_optimizer_bytes(t) == bytes[i] * (double)trainer_params(t)->elements);
            same_bits(trainer_params(t), params[0], params[way], policies[i]);
            assert_memory_equal(moments[0], moments[way], 2 * n * sizeof **moments);
        }
        int kept = 0;
        for (size_t j = 0; j < 2 * n; j++)
            kept += moments[0][j] != 0;
        assert_true(kept > (int)n);
        for (int way = 0; way < 2; way++) {
            free(params[way]);
            free(moments[way]);
        }
    }
}

TESTS_WITH(bed_create, bed_destroy)
