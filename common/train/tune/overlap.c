/* SPDX-License-Identifier: MIT */
/* Which way of overlap is fastest, measured on the step itself before its first use. */
#include <math.h>

#include "common/core/error.h"
#include "common/step/optimizer.h"
#include "common/step/streams.h"
#include "common/train/tune/internal.h"

enum { WAYS = 3, ROUNDS = 2 };
static const double long_step_ms = 400; /* not worth measuring: AdamW is a small part of such a step */
static const double worth = 0.99;       /* of the time without overlap, which takes less memory */
static const double hopeless = 1.02;    /* times the fastest after the first round: noise is less */

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

/* Fills ms[way] with the median step. */
static bool measure(trainer *t, int ways, double ms[WAYS])
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
    for (int r = 0; r < ROUNDS && ok && left; r++) {
        for (int w = 0; w < ways && ok; w++) {
            if (!isfinite(ms[w]))
                continue;
            overlap_use(s, (overlap)w);
            ok = steps_block(t, graphs[w], step_ms, &times[w]);
            ms[w] = ok ? stats_of(&times[w]).median : 0;
        }
        left = ok && drop_hopeless(ms, ways);
    }
    for (int w = 0; w < ways; w++) {
        samples_free(&times[w]);
        if (graphs[w])
            device_graph_destroy(s->dev, graphs[w]);
    }
    return ok;
}

bool overlap_tune(trainer *t)
{
    step *s = &t->step;
    if (s->o.overlap != OVERLAP_AUTO || s->eager || t->steps > 0 || s->o.mode == STEP_FORWARD || !s->own_side)
        return true; /* without streams, on the CPU, all ways are one */
    sb_optimizer_state kept;
    phase_set("choosing what runs beside backward");
    steps_begin(t, &kept);
    overlap_use(s, OVERLAP_ALL);
    double ms[WAYS] = {0}, once;
    bool ok = steps_run(t, NULL, &once) && steps_run(t, NULL, &once); /* the first loads kernels */
    if (ok && once < long_step_ms) {
        const int ways = optimizer_overlaps(s) ? WAYS : WAYS - 1;
        int best = 0;
        ok = measure(t, ways, ms);
        for (int w = 1; w < ways && ok; w++)
            best = ms[w] < (best ? ms[best] : worth * ms[0]) ? w : best;
        overlap_use(s, (overlap)best);
    }
    steps_end(t, &kept);
    return ok && (s->overlap != OVERLAP_NONE || trainer_plan_apart(t));
}
