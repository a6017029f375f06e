/* SPDX-License-Identifier: MIT */
/* What a slice must come to: one rank computes the batches of all ranks one after another, adds up their gradients
 * in the order of ranks in fp32, and updates everything itself. It knows neither communicators nor strategies.
 *
 * Where another order of the same additions gives another sum, it does so a second time in the opposite order: how far
 * its own parameters then are apart is what an order may change. The last bit of an fp32 sum is little, but it moves some
 * weights across a boundary of 16 bits, and everything that the next steps compute from them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ddp/reference.h"
#include "bench/model/context.h"
#include "common/core/error.h"
#include "common/session/watchdog.h"
#include "common/model/dtypes.h"

typedef struct batches {
    trainer *t;
    device *d;
    int turn, ranks; /* how many have been added in this step */
    size_t n;
    float *sum, *one;
    float *first_sums; /* a copy of the first step's; NULL when it is made */
    void *raw;
} batches;

/* In place of the update of one batch. */
static void add_up(void *user)
{
    batches *b = user;
    const sb_dtype dtype = trainer_grad_dtype(b->t);
    const size_t bytes = b->n * (size_t)sb_dtype_bytes(dtype);
    device_sync(b->d);
    device_download(b->d, b->raw, trainer_grad_arena(b->t), bytes);
    dtype_load(dtype, b->one, b->raw, b->n);
    for (size_t i = 0; i < b->n; i++)
        b->sum[i] = b->turn == 0 ? b->one[i] : b->sum[i] + b->one[i];
    watchdog_beat();
    if (b->turn < b->ranks - 1)
        return;
    if (b->first_sums)
        memcpy(b->first_sums, b->sum, b->n * sizeof *b->sum);
    b->first_sums = NULL;
    dtype_store(dtype, b->raw, b->sum, b->n);
    device_upload(b->d, trainer_grad_arena(b->t), b->raw, bytes);
    trainer_update_all(b->t);
}

void ddp_read_params(trainer *t, float *out)
{
    const params *p = trainer_params(t);
    for (int i = 0; i < p->count; i++)
        trainer_read_param(t, &p->tensors[i], out + p->tensors[i].first);
}

/* Parameters after `steps` to `after`, unless that is NULL. */
static bool run(ddp_case *k, trainer *t, int steps, bool reversed, float *first_sums, float *after)
{
    const size_t n = (size_t)trainer_params(t)->elements;
    batches b = {.t = t,
                 .d = k->s->dev,
                 .ranks = k->ranks,
                 .n = n,
                 .sum = xmalloc(n * sizeof *b.sum),
                 .one = xmalloc(n * sizeof *b.one),
                 .first_sums = first_sums,
                 .raw = xmalloc(n * sizeof(float))};
    bool ok = true;
    replica_set_safe_loss_scale(t);
    trainer_set_hooks(t, &(trainer_hooks){.user = &b, .update = add_up});
    for (int step = 0; step < steps && ok; step++)
        for (b.turn = 0; b.turn < b.ranks && ok; b.turn++) {
            replica_set_tokens(t, k->o.seed, reversed ? b.ranks - 1 - b.turn : b.turn);
            ok = trainer_step(t);
        }
    if (ok && after)
        ddp_read_params(t, after);
    free(b.sum);
    free(b.one);
    free(b.raw);
    return ok;
}

/* One rank's model anew. NULL with a sentence in why. */
static trainer *alone(ddp_case *k, const trainer_options *slice, char *why, size_t why_bytes)
{
    const model_bench *b = k->s->user;
    trainer_options o = *slice;
    o.ranks = k->ranks;
    o.granularity = parallel_granularity(k->ranks);
    o.state_elements = 0;
    return trainer_create(k->s->dev, k->s->mem, b->kernels, b->ctx, &o, why, why_bytes);
}

static bool make(ddp_case *k, const trainer_options *slice, ddp_reference *r, char *why, size_t why_bytes)
{
    const bool whole = launch_rank(k->l) == 0, ordered = k->ranks > 2;
    trainer *t = alone(k, slice, why, why_bytes);
    if (!t)
        return false;
    const unsigned long n = (unsigned long)trainer_params(t)->elements;
    r->elements = (int64_t)n;
    r->grads = xcalloc(n, sizeof *r->grads);
    if (whole) {
        r->start = xcalloc(n, sizeof *r->start);
        r->after = xcalloc(n, sizeof *r->after);
        ddp_read_params(t, r->start);
    }
    bool ok = run(k, t, whole ? DDP_CHECK_STEPS : 1, false, r->grads, r->after);
    if (ok && whole && ordered) {
        trainer_free(t);
        if (!(t = alone(k, slice, why, why_bytes)))
            return false;
        r->reversed = xcalloc(n, sizeof *r->reversed);
        ok = run(k, t, DDP_CHECK_STEPS, true, NULL, r->reversed);
    }
    if (!ok)
        snprintf(why, why_bytes, "a step of the reference: %s", sb_last_message());
    trainer_free(t);
    return ok;
}

static void clear(void *reference)
{
    ddp_reference *r = reference;
    free(r->grads);
    free(r->start);
    free(r->after);
    free(r->reversed);
}

const ddp_reference *ddp_reference_of(ddp_case *k, const trainer_options *slice, const char *key, char *why,
                                      size_t why_bytes)
{
    cache *kept = k->s->kept;
    ddp_reference *r = cache_find(kept, "reference", key);
    if (r)
        return r;
    cache_drop(kept, "reference"); /* each is a few times as large as its slice */
    r = cache_add(kept, "reference", key, sizeof *r, clear);
    if (make(k, slice, r, why, why_bytes))
        return r;
    cache_drop(kept, "reference");
    return NULL;
}
