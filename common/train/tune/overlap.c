/* SPDX-License-Identifier: MIT */
/* Which way of overlap is fastest, measured on the step itself before its first use. */
#include <math.h>

#include "common/core/error.h"
#include "common/step/optimizer.h"
#include "common/step/streams.h"
#include "common/train/tune/internal.h"

enum { WAYS = 3, ROUNDS = 2 };
static const double long_step_ms = 400; /* not worth measuring: AdamW is a small part of such a step */
/* A way must take at most this share of the time without overlap, which takes less memory: at the power limit a block has few
 * steps, and 1 % is noise. */
static const double worth = 0.98;
static const double hopeless = 1.02; /* times the fastest after the first round: noise is less */

/* Ways that do not even look better than none, or are far from the fastest, are out: INFINITY. Whether any is left. */
static bool drop_hopeless(double ms[WAYS], int ways)
{
    double fastest = ms[0];
    bool left = false;
    for (int w = 1; w < ways; w++)
        fastest = fmin(fastest, ms[w]);
    for (int w = 1; w < ways; w++) {
        ms[w] = ms[w] < ms[0] && ms[w] < hopeless * fastest ? ms[w] : INFINITY;
        left = left || isfinite(ms[w]);
    }
    return left;
}

/* Fills ms[way] with the median step. Where there is no time for a second round, the first one decides. A GPU at its power limit
 * lowers its clock too far and takes seconds to raise it again, so what is measured later looks faster: that is none. */
static bool measure(trainer *t, const tune_wait *wait, int ways, double ms[WAYS])
{
    step *s = &t->step;
    device_graph *graphs[WAYS] = {0};
    samples times[WAYS] = {{0}};
    double step_ms = 0;
    bool ok = true, left = true;
    for (int w = 0; w < ways && ok; w++) {
        overlap_use(s, (overlap)w);
        ok = steps_capture(t, &graphs[w]);
    }
    overlap_use(s, OVERLAP_NONE);
    ok = ok && steps_warm(t, graphs[0], &step_ms); /* overlap can gain on a cool GPU and lose at its power limit */
    for (int r = 0; r < ROUNDS && ok && left && (r == 0 || tune_left(t, wait) > ways * tune_block_s(step_ms)); r++) {
        for (int w = ways - 1; w >= 0 && ok; w--) {
            if (!isfinite(ms[w]))
                continue;
            overlap_use(s, (overlap)w);
            ok = steps_block(t, graphs[w], step_ms, w && r ? ms[0] : INFINITY, &times[w]);
            ms[w] = ok ? stats_of(&times[w]).median : 0;
        }
        left = ok && drop_hopeless(ms, ways);
    }
    for (int w = 0; w < ways; w++) {
        samples_free(&times[w]);
        device_graph_destroy(s->dev, graphs[w]);
    }
    return ok;
}

/* For one round. */
static bool has_time(const trainer *t, const tune_wait *w, int ways)
{
    return tune_left(t, w) >= steps_warm_s(w->step_ms) + ways * tune_block_s(w->step_ms);
}

bool overlap_tune(trainer *t, tune_wait *w)
{
    step *s = &t->step;
    if (s->o.overlap != OVERLAP_AUTO || s->eager || t->steps > 0 || s->o.mode == STEP_FORWARD || !s->own_side)
        return true; /* without streams, on the CPU, all ways are one */
    if (tune_left(t, w) <= 0) {
        overlap_use(s, OVERLAP_NONE);
        return trainer_plan_apart(t);
    }
    sb_optimizer_state kept;
    phase_set("choosing what runs during the backward");
    steps_begin(t, &kept);
    overlap_use(s, OVERLAP_ALL);
    double ms[WAYS] = {0};
    const int ways = optimizer_overlaps(s) ? WAYS : WAYS - 1;
    bool ok = steps_first(t, w);
    int best = w->step_ms < long_step_ms ? OVERLAP_NONE : OVERLAP_ALL;
    if (ok && w->step_ms < long_step_ms && has_time(t, w, ways)) {
        ok = measure(t, w, ways, ms);
        for (int way = 1; way < ways && ok; way++)
            best = ms[way] < (best ? ms[best] : worth * ms[0]) ? way : best;
    }
    overlap_use(s, (overlap)best);
    steps_end(t, &kept);
    return ok && (s->overlap != OVERLAP_NONE || trainer_plan_apart(t));
}
