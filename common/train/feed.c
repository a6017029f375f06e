/* SPDX-License-Identifier: MIT */
/* Tables of a run on the device: rates by update, losses by step, norms; and tokens without a wait. See feed.h. */
#include "common/train/feed.h"

#include "common/train/internal.h"

static float *table(trainer *t, int64_t n, const char *name)
{
    const size_t bytes = (size_t)n * sizeof(float);
    float *p = memory_alloc(t->mem, bytes, name);
    if (!p)
        return NULL;
    device_memset(t->step.dev, p, 0, bytes);
    t->resident[MEMORY_OTHER] += (int64_t)bytes;
    return p;
}

bool trainer_keep_history(trainer *t, const float *rates, int64_t steps)
{
    step *s = &t->step;
    s->updates = steps;
    if (!(s->losses = table(t, steps * s->micro_batches, "losses of a run")) ||
        !(s->norms = table(t, steps, "norms of a run")) || (rates && !(s->rates = table(t, steps, "rates of a run"))))
        return false;
    device_sync(s->dev); /* an upload does not wait for the stream */
    if (rates)
        device_upload(s->dev, s->rates, rates, (size_t)steps * sizeof *rates);
    return true;
}

void trainer_stage_tokens(trainer *t, const int32_t *ids, const int32_t *targets)
{
    step *s = &t->step;
    const size_t bytes = (size_t)s->tokens * (size_t)s->micro_batches * sizeof *ids;
    device_stream_copy(s->dev, s->main, s->ids, ids, bytes);
    device_stream_copy(s->dev, s->main, s->targets, targets, bytes);
}

void trainer_read_tokens(trainer *t, int32_t *ids, int32_t *targets)
{
    step *s = &t->step;
    const size_t bytes = (size_t)s->tokens * (size_t)s->micro_batches * sizeof *ids;
    device_sync(s->dev);
    device_download(s->dev, ids, s->ids, bytes);
    device_download(s->dev, targets, s->targets, bytes);
}

void trainer_keep_loss(trainer *t, int64_t at)
{
    step *s = &t->step;
    const size_t n = (size_t)s->micro_batches;
    device_stream_copy(s->dev, s->main, s->losses + (size_t)at * n, s->loss, n * sizeof *s->loss);
}

void trainer_fetch_history(trainer *t, int64_t first, int64_t steps, float *losses, float *norms)
{
    step *s = &t->step;
    const size_t n = (size_t)s->micro_batches, count = (size_t)steps;
    device_stream_copy(s->dev, s->main, losses, s->losses + (size_t)first * n, count * n * sizeof *losses);
    device_stream_copy(s->dev, s->main, norms, s->norms + first, count * sizeof *norms);
}
