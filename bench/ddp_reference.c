/* What a slice must come to: one rank computes the batches of all ranks one after another, adds up their gradients
 * in the order of ranks in fp32, and updates everything itself. It knows neither communicators nor strategies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ddp.h"
#include "common/core/error.h"
#include "common/device/watchdog.h"
#include "common/model/dtypes.h"

void ddp_reference_clear(ddp_reference *r)
{
    free(r->grads);
    free(r->start);
    free(r->after);
    *r = (ddp_reference){.key = ""};
}

typedef struct batches {
    trainer *t;
    device *d;
    int of, ranks; /* whose gradients come next */
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
        b->sum[i] = b->of == 0 ? b->one[i] : b->sum[i] + b->one[i];
    watchdog_beat();
    if (b->of < b->ranks - 1)
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

static bool run(ddp_case *k, trainer *t, bool whole, ddp_reference *r)
{
    const size_t n = (size_t)r->elements;
    batches b = {.t = t,
                 .d = k->s->dev,
                 .ranks = k->ranks,
                 .n = n,
                 .sum = xmalloc(n * sizeof *b.sum),
                 .one = xmalloc(n * sizeof *b.one),
                 .first_sums = r->grads,
                 .raw = xmalloc(n * sizeof(float))};
    bool ok = true;
    ddp_quiet_scale(t);
    trainer_set_hooks(t, &(trainer_hooks){.user = &b, .update = add_up});
    if (whole)
        ddp_read_params(t, r->start);
    for (int step = 0; step < (whole ? DDP_CHECK_STEPS : 1) && ok; step++)
        for (b.of = 0; b.of < b.ranks && ok; b.of++) {
            ddp_set_tokens(t, k->o.seed, b.of);
            ok = trainer_step(t);
        }
    if (whole)
        ddp_read_params(t, r->after);
    free(b.sum);
    free(b.one);
    free(b.raw);
    return ok;
}

bool ddp_reference_make(ddp_case *k, const trainer_options *slice, const char *key, ddp_reference *r, char *why,
                        size_t why_bytes)
{
    const model_bench *b = k->s->user;
    const bool whole = launch_rank(k->l) == 0;
    trainer_options o = *slice;
    if (strcmp(r->key, key) == 0)
        return true;
    ddp_reference_clear(r);
    o.ranks = k->ranks;
    o.granularity = parallel_granularity(k->ranks);
    o.state_elements = 0;
    trainer *t = trainer_create(k->s->dev, k->s->mem, b->kernels, b->ctx, &o, why, why_bytes);
    if (!t)
        return false;
    r->elements = trainer_params(t)->elements;
    r->grads = xcalloc((unsigned long)r->elements, sizeof *r->grads);
    if (whole) {
        r->start = xcalloc((unsigned long)r->elements, sizeof *r->start);
        r->after = xcalloc((unsigned long)r->elements, sizeof *r->after);
    }
    const bool ok = run(k, t, whole, r);
    if (ok)
        snprintf(r->key, sizeof r->key, "%s", key);
    else
        snprintf(why, why_bytes, "a step of the reference: %s", sb_last_message());
    trainer_free(t);
    return ok;
}
