/* SPDX-License-Identifier: MIT */
/* Costs of recomputation per block; see costs.h. */
#include "bench/recompute/costs.h"

#include <math.h>
#include <stdio.h>

#include "bench/model/context.h"
#include "common/core/cache.h"
#include "common/core/stats.h"

enum { WARMUP = 3, STEPS = 9, COPIES = 3, NEST_LAYERS = 4 /* fewer blocks never pass over one */ };

typedef struct medians {
    double step, forward, backward;
} medians;

/* The times of a few steps; NAN after setting the row's status, or when there is no memory. */
static medians times_of(session *s, const step_options *o, row *w)
{
    trainer *t = model_trainer_untimed(s, o, w); /* whole steps are too many to race */
    samples step = {0}, forward = {0}, backward = {0};
    bool ok = t != NULL;
    for (int i = 0; ok && i < WARMUP + STEPS; i++) {
        ok = trainer_step(t);
        const step_times ms = ok ? trainer_times(t) : (step_times){0};
        if (!ok || i < WARMUP)
            continue;
        samples_add(&step, ms.step);
        samples_add(&forward, ms.forward);
        samples_add(&backward, ms.backward);
    }
    if (t && !ok)
        row_status_set(w, ROW_FAIL, "a step with few blocks: %s", sb_last_message());
    medians m = {NAN, NAN, NAN};
    if (ok)
        m = (medians){stats_of(&step).median, stats_of(&forward).median, stats_of(&backward).median};
    samples_free(&step);
    samples_free(&forward);
    samples_free(&backward);
    trainer_free(t);
    return m;
}

static medians few_blocks(session *s, const step_options *o, row *w, int layers, recompute what)
{
    step_options few = *o;
    few.config.layers = layers;
    few.recompute = what;
    few.recompute_every = 1;
    few.schedule = NULL;
    return times_of(s, &few, w);
}

static double step_of(session *s, const step_options *o, row *w, int layers, recompute what)
{
    return few_blocks(s, o, w, layers, what).step;
}

static int calibration_layers(const step_options *o)
{
    return o->config.layers < CALIBRATION_LAYERS ? o->config.layers : CALIBRATION_LAYERS;
}

/* Everything that a cost depends on. */
static void key_of(const step_options *o, char *out, size_t bytes)
{
    const model_config *c = &o->config;
    snprintf(out, bytes, "%d %d %d %d %d/%d %d %d/%d %s %s %d %d %d %d %d %d %d", c->vocab, c->d_model, c->d_ff,
             calibration_layers(o), c->heads, c->heads_kv, o->batch, o->seq, o->loss_chunk, o->precision->name,
             o->attention, o->mode, o->split, o->grad_fp32, o->moments, o->fusion, o->deterministic, o->overlap);
}

/* Noise may make a cheap kind seem to gain time. */
static double cost(double with, double without, int blocks)
{
    return fmax(with - without, 0) / blocks;
}

static bool calibrate(session *s, const step_options *o, row *w, step_costs *c)
{
    const int layers = calibration_layers(o);
    const int half = layers / 2;
    medians all = few_blocks(s, o, w, layers, RECOMPUTE_NONE);
    const medians some = half ? few_blocks(s, o, w, half, RECOMPUTE_NONE) : (medians){0};
    double *again = c->again.again_ms, with[RECOMPUTE_KINDS] = {0};
    for (int what = RECOMPUTE_SELECTIVE; what <= RECOMPUTE_BLOCK && !isnan(all.step + some.step); what++) {
        with[what] = step_of(s, o, w, layers, (recompute)what);
        if (isnan(with[what]))
            return false;
    }
    if (with[RECOMPUTE_BLOCK] < all.step) /* something else ran on the device meanwhile */
        all = few_blocks(s, o, w, layers, RECOMPUTE_NONE);
    const double none = all.step, shallow = some.step;
    for (int what = RECOMPUTE_SELECTIVE; what <= RECOMPUTE_BLOCK && !isnan(none + shallow); what++)
        again[what] = cost(with[what], none, layers);
    c->block_ms = (none - shallow) / (layers - half);
    c->base_ms = none - layers * c->block_ms;
    c->again.offload.forward_ms = cost(all.forward, some.forward, layers - half);
    c->again.offload.backward_ms = cost(all.backward, some.backward, layers - half);
    again[RECOMPUTE_NESTED] = c->again.pass_ms = again[RECOMPUTE_BLOCK];
    const recompute_schedule nested = recompute_uniform(layers, RECOMPUTE_NESTED, 1);
    const recompute_work work = recompute_work_of(&nested);
    if (layers >= NEST_LAYERS && work.passed)
        c->again.pass_ms =
            cost(step_of(s, o, w, layers, RECOMPUTE_NESTED), none + work.kept * again[RECOMPUTE_BLOCK], work.passed);
    return !isnan(c->base_ms + c->again.pass_ms);
}

bool step_costs_measure(session *s, const step_options *o, row *w, step_costs *out)
{
    char key[256];
    key_of(o, key, sizeof key);
    step_costs *known = cache_find(s->kept, "costs of recomputation", key);
    if (!known) {
        step_costs c = {0};
        if (!calibrate(s, o, w, &c))
            return false;
        known = cache_add(s->kept, "costs of recomputation", key, sizeof c, NULL);
        *known = c;
    }
    *out = *known;
    return true;
}

/* What an offloaded block moves: the same kinds of every block but one. */
static double block_bytes(session *s, const step_options *o, recompute what, int kinds)
{
    const model_bench *b = s->user;
    step_options few = *o;
    few.config.layers = 2;
    few.recompute = what;
    few.recompute_every = 1;
    few.schedule = NULL;
    few.offload = kinds;
    return (double)trainer_planned_offload(s->dev, b->kernels, b->ctx, &few);
}

/* Bytes a second of copies between the device and pinned memory of the host, as fast as a large one goes. */
static bool measure_link(session *s, offload_costs *c)
{
    const size_t bytes = device_kind_of(s->dev) == DEVICE_CUDA ? (size_t)256 << 20 : (size_t)1 << 20;
    void *host = device_host_malloc(s->dev, bytes), *here = memory_alloc(s->mem, bytes, "a copy to the host");
    device_event *from = device_event_create(s->dev), *to = device_event_create(s->dev);
    double ms[2] = {INFINITY, INFINITY};
    for (int i = 0; host && here && i < 2 * COPIES; i++) {
        const bool out = i % 2 == 0;
        device_event_record(s->dev, from);
        device_copy(s->dev, out ? host : here, out ? here : host, bytes);
        device_event_record(s->dev, to);
        ms[!out] = fmin(ms[!out], device_event_ms(s->dev, from, to));
    }
    c->out_gb_s = (double)bytes / (ms[0] * 1e6);
    c->in_gb_s = (double)bytes / (ms[1] * 1e6);
    device_event_destroy(s->dev, from);
    device_event_destroy(s->dev, to);
    const bool ok = host && here;
    memory_release(s->mem, here);
    if (host)
        device_host_free(s->dev, host);
    return ok;
}

bool step_costs_offload(session *s, const step_options *o, int kinds, recompute what, row *w, step_costs *c)
{
    offload_costs *known = session_cache(s, "the link to the host", sizeof *known, NULL);
    offload_costs *use = &c->again.offload;
    if (known->out_gb_s <= 0 && !measure_link(s, known)) {
        row_status_set(w, ROW_SKIP, "the host cannot give pinned memory for offloaded activations");
        return false;
    }
    use->kinds = kinds;
    use->what = what;
    use->out_gb_s = known->out_gb_s, use->in_gb_s = known->in_gb_s;
    for (int i = RECOMPUTE_NONE; i <= RECOMPUTE_BLOCK; i++)
        use->bytes[i] = block_bytes(s, o, (recompute)i, kinds);
    return true;
}

double step_costs_predict(const step_costs *c, const recompute_schedule *schedule)
{
    return c->base_ms + schedule->layers * c->block_ms + recompute_cost_ms(&c->again, schedule);
}
