/* SPDX-License-Identifier: MIT */
/* See train_model.h. */
#include "tests/gpu/train/model.h"

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEED = 20260102, TOKENS = 1000 /* stream of the first step's tokens */ };

step_options model_options(const model_shape *s, const precision *policy)
{
    step_options o = step_defaults();
    o.config = s->config;
    o.batch = s->batch;
    o.seq = s->seq;
    o.clip_norm = s->clip_norm;
    o.precision = policy;
    o.attention = "unfused";
    o.fusion = FUSION_KERNELS;
    o.overlap = OVERLAP_NONE;
    o.share_grad_memory = false;
    return o;
}

/* Rounded to bf16, which every policy holds. */
static void write_params(trainer *t)
{
    const params *p = trainer_params(t);
    for (int i = 0; i < p->count; i++) {
        const param_tensor *of = &p->tensors[i];
        const bool gain = of->rows == 1;
        const float scale = gain                          ? 0.3f
                            : of->kind == PARAM_EMBEDDING ? 1
                                                          : sqrtf(2.0f / (float)(of->rows + of->columns));
        OWNED float *x = xmalloc((size_t)of->count * sizeof *x);
        rng_normal(x, (size_t)of->count, SEED, (uint32_t)i, 0, scale);
        for (int64_t j = 0; j < of->count; j++)
            x[j] = bf16_to_float(bf16_from_float(gain ? 1 + x[j] : x[j]));
        trainer_write_param(t, of, x);
    }
}

trainer *model_create(const model_bed *b, const step_options *o, char *why, size_t why_bytes)
{
    trainer *t = trainer_create(b->dev, b->mem, b->kernels, b->ctx, o, why, why_bytes);
    if (t)
        write_params(t);
    return t;
}

void model_tokens(trainer *t, int of_step)
{
    draw_tokens(t, SEED, (uint32_t)(TOKENS + of_step));
}

static bool run_steps(trainer *t, outcome *out)
{
    const step_options *o = trainer_options_of(t);
    out->before = all_params(t);
    out->logits = xmalloc((size_t)o->batch * (size_t)o->seq * (size_t)o->config.vocab * sizeof *out->logits);
    model_tokens(t, 0);
    if (!trainer_read_logits(t, out->logits))
        return false;
    for (int s = 0; s < MODEL_STEPS; s++) {
        model_tokens(t, s);
        if (!trainer_step(t))
            return false;
        out->losses[s] = trainer_loss(t);
        if (s == 0)
            out->first_grads = all_grads(t);
    }
    out->grads = all_grads(t);
    out->after = all_params(t);
    return true;
}

bool model_run(const model_bed *b, const step_options *o, outcome *out, char *why, size_t why_bytes)
{
    *out = (outcome){.logits = NULL};
    trainer *t = model_create(b, o, why, why_bytes);
    if (!t)
        return false;
    if (o->precision->loss_scaling)
        trainer_set_loss_scale(t, 1024); /* no step may be skipped */
    const bool ok = run_steps(t, out);
    if (!ok) {
        snprintf(why, why_bytes, "%s", sb_last_message());
        outcome_free(out);
    }
    trainer_free(t);
    memory_release_all(b->mem);
    return ok;
}

void outcome_free(outcome *o)
{
    free(o->logits);
    free(o->first_grads);
    free(o->grads);
    free(o->before);
    free(o->after);
    *o = (outcome){.logits = NULL};
}

double model_worst(const model_config *c, const float *want, const float *got, char *name, size_t name_bytes)
{
    params *p = params_create(c);
    int which = -1;
    const double worst = worst_tensor(p, want, got, &which);
    snprintf(name, name_bytes, "%s", which < 0 ? "none" : p->tensors[which].name);
    params_free(p);
    return worst;
}
