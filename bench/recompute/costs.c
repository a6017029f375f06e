/* SPDX-License-Identifier: MIT */
/* Costs of recomputation per block; see costs.h. */
#include "bench/recompute/costs.h"

#include <math.h>
#include <stdio.h>

#include "bench/model/context.h"
#include "common/core/cache.h"
#include "common/core/stats.h"

enum { WARMUP = 3, STEPS = 9, NEST_LAYERS = 4 /* fewer blocks never pass over one */ };

/* Median of a few steps; NAN after setting the row's status, or when there is no memory. */
static double step_ms(session *s, const trainer_options *o, row *w)
{
    trainer *t = model_trainer_untimed(s, o, w); /* whole steps are too many to race */
    samples ms = {0};
    bool ok = t != NULL;
    for (int i = 0; ok && i < WARMUP + STEPS; i++) {
        ok = trainer_step(t);
        if (ok && i >= WARMUP)
            samples_add(&ms, trainer_times(t).step);
    }
    if (t && !ok)
        row_status_set(w, ROW_FAIL, "a step with few blocks: %s", sb_last_message());
    const double median = ok ? stats_of(&ms).median : NAN;
    samples_free(&ms);
    trainer_free(t);
    return median;
}

static double step_of(session *s, const trainer_options *o, row *w, int layers, recompute what)
{
    trainer_options few = *o;
    few.config.layers = layers;
    few.recompute = what;
    few.recompute_every = 1;
    few.schedule = NULL;
    return step_ms(s, &few, w);
}

/* Everything that a cost depends on. */
static void key_of(const trainer_options *o, char *out, size_t bytes)
{
    const model_config *c = &o->config;
    snprintf(out, bytes, "%d %d %d %d/%d %d %d %s %s %d %d %d %d %d %d", c->vocab, c->d_model, c->d_ff, c->heads,
             c->heads_kv, o->batch, o->seq, o->precision->name, o->attention, o->mode, o->split, o->grad_fp32,
             o->fusion, o->deterministic, o->overlap);
}

/* Noise may make a cheap kind seem to gain time. */
static double cost(double with, double without, int blocks)
{
    return fmax(with - without, 0) / blocks;
}

static bool calibrate(session *s, const trainer_options *o, row *w, step_costs *c)
{
    const int layers = o->config.layers < CALIBRATION_LAYERS ? o->config.layers : CALIBRATION_LAYERS;
    const int half = layers / 2;
    const double none = step_of(s, o, w, layers, RECOMPUTE_NONE);
    const double shallow = half ? step_of(s, o, w, half, RECOMPUTE_NONE) : 0;
    double *again = c->again.again_ms;
    for (int what = RECOMPUTE_SELECTIVE; what <= RECOMPUTE_BLOCK && !isnan(none + shallow); what++) {
        again[what] = cost(step_of(s, o, w, layers, (recompute)what), none, layers);
        if (isnan(again[what]))
            return false;
    }
    c->block_ms = (none - shallow) / (layers - half);
    c->base_ms = none - layers * c->block_ms;
    again[RECOMPUTE_NESTED] = c->again.pass_ms = again[RECOMPUTE_BLOCK];
    const recompute_schedule nested = recompute_uniform(layers, RECOMPUTE_NESTED, 1);
    const recompute_work work = recompute_work_of(&nested);
    if (layers >= NEST_LAYERS && work.passed)
        c->again.pass_ms =
            cost(step_of(s, o, w, layers, RECOMPUTE_NESTED), none + work.kept * again[RECOMPUTE_BLOCK], work.passed);
    return !isnan(c->base_ms + c->again.pass_ms);
}

bool step_costs_measure(session *s, const trainer_options *o, row *w, step_costs *out)
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

double step_costs_predict(const step_costs *c, const recompute_schedule *schedule)
{
    return c->base_ms + schedule->layers * c->block_ms + recompute_cost_ms(&c->again, schedule);
}
