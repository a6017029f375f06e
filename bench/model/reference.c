/* SPDX-License-Identifier: MIT */
/* Running the reference step and keeping its tensors on the host; see reference.h. */
#include "bench/model/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/context.h"
#include "common/core/error.h"

void reference_clear(reference *r)
{
    for (int i = 0; i < r->count; i++)
        free(r->tensors[i]);
    free(r->tensors);
    *r = (reference){.loss = NAN};
}

static bool is_forward(const trainer *t)
{
    return trainer_options_of(t)->mode == STEP_FORWARD;
}

static int compared_tensors(const trainer *t)
{
    return is_forward(t) ? 1 : trainer_params(t)->count;
}

int64_t compared_count(const trainer *t, int i)
{
    const step_options *o = trainer_options_of(t);
    return is_forward(t) ? (int64_t)o->batch * o->seq * o->config.vocab : trainer_params(t)->tensors[i].count;
}

bool compared_read(trainer *t, int i, float *out)
{
    if (is_forward(t))
        return trainer_read_logits(t, out);
    trainer_read_grad(t, &trainer_params(t)->tensors[i], out);
    return true;
}

void slice_describe(const step_options *o, char *out, size_t out_bytes)
{
    const model_config *c = &o->config;
    snprintf(out, out_bytes, "V %d d %d F %d L %d H %d Hkv %d theta %g eps %g B %d S %d seed %llu%s%s", c->vocab,
             c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, (double)c->rope_theta, (double)c->norm_eps,
             o->batch, o->seq, (unsigned long long)o->seed, o->mode == STEP_FORWARD ? " forward" : "",
             o->fusion == FUSION_NONE ? " eager" : "");
}

static step_options reference_of(const step_options *slice)
{
    step_options r = *slice;
    r.mode = slice->mode == STEP_FORWARD ? STEP_FORWARD : STEP_FORWARD_BACKWARD;
    r.precision = precision_find("fp32");
    r.split = SB_FMA;
    r.batch *= step_micro_batches(slice);
    r.micro_batches = 1;
    r.clip_norm = 0;
    r.grad_fp32 = r.share_grad_memory = false;
    r.overlap = OVERLAP_NONE;
    r.attention = "unfused";
    r.recompute = RECOMPUTE_NONE;
    r.recompute_every = 1;
    r.schedule = NULL;
    r.offload = 0;
    r.loss_chunk = 0;
    r.fusion = slice->fusion == FUSION_NONE ? FUSION_KERNELS : FUSION_NONE;
    r.deterministic = true;
    return r;
}

static bool reference_steps(trainer *t, reference *r)
{
    if (!trainer_step(t))
        return false;
    r->loss = trainer_loss(t); /* waits for the step */
    phase_set("check: reading what plain fp32 gave");
    r->count = compared_tensors(t);
    r->tensors = xcalloc((size_t)r->count, sizeof *r->tensors);
    bool ok = true;
    for (int i = 0; ok && i < r->count; i++) {
        r->tensors[i] = xmalloc((size_t)compared_count(t, i) * sizeof(float));
        ok = compared_read(t, i, r->tensors[i]);
    }
    return ok;
}

static trainer *create(session *s, const step_options *o, char *why, size_t why_bytes)
{
    model_bench *b = s->user;
    step_options again = *o;
    trainer *t = trainer_create(s->dev, s->mem, b->kernels, b->ctx, o, why, why_bytes);
    size_t bytes;
    const char *tag;
    if (t || !memory_failed(s->mem, &bytes, &tag))
        return t;
    memory_release_all(s->mem);
    memory_failed_clear(s->mem);
    again.attention = "flash";
    return trainer_create(s->dev, s->mem, b->kernels, b->ctx, &again, why, why_bytes);
}

bool reference_make(session *s, const step_options *slice, reference *r, row *w)
{
    const step_options o = reference_of(slice);
    char key[sizeof r->key], why[512] = "";
    slice_describe(&o, key, sizeof key);
    if (strcmp(r->key, key) == 0)
        return true;
    phase_set("check: plain fp32 of a slice: %s", key);
    reference_clear(r);
    trainer *t = create(s, &o, why, sizeof why);
    if (!t) {
        row_status_set(w, ROW_SKIP, "the fp32 reference of the check: %s", why);
        return false;
    }
    const bool ok = reference_steps(t, r);
    if (ok) {
        memcpy(r->key, key, sizeof key);
    } else {
        row_status_set(w, ROW_FAIL, "the fp32 reference of the check: %s", sb_last_message());
        reference_clear(r);
    }
    trainer_free(t);
    memory_release_all(s->mem);
    return ok;
}
