/* Which way of overlap is fastest, measured on the step itself before its first use. With a learning rate of 0 a step
 * leaves the parameters as they are; what else it changes is put back. */
#include "common/core/stats.h"
#include "common/device/timer.h"
#include "common/model/step_internal.h"

enum { WAYS = 3, ROUNDS = 5 };
static const double long_step_ms = 400; /* not worth measuring: AdamW is a small part of such a step */
static const double worth = 0.98;       /* of the time without overlap, which takes less memory */
static const double warm_s = 1;         /* overlap can gain on a cool GPU and lose at its power limit */

/* One step, launched as the trainer's steps will be. */
static bool run(trainer *t, device_graph *graph, double *ms)
{
    t->status = SB_OK;
    if (graph)
        device_graph_launch(t->dev, graph);
    else if (!step_launch(t))
        return false;
    *ms = trainer_times(t).step;
    return true;
}

static double median(const double x[ROUNDS])
{
    samples s = {0};
    for (int i = 0; i < ROUNDS; i++)
        samples_add(&s, x[i]);
    const double middle = stats_of(&s).median;
    samples_free(&s);
    return middle;
}

/* Fills ms[way] with the median step; the ways take turns, so that a drifting clock meets all. */
static bool measure(trainer *t, int ways, double ms[WAYS])
{
    device_graph *graphs[WAYS] = {0};
    double rounds[WAYS][ROUNDS];
    bool ok = true;
    for (int w = 0; w < ways && ok && t->o.fusion == FUSION_GRAPH; w++) {
        overlap_use(t, (overlap)w);
        t->status = SB_OK;
        if (device_graph_begin(t->dev)) {
            ok = step_launch(t);
            graphs[w] = device_graph_end(t->dev);
        }
    }
    const double start = host_seconds();
    for (int r = 0; r < ROUNDS && ok;) {
        for (int w = 0; w < ways && ok; w++) {
            overlap_use(t, (overlap)w);
            ok = run(t, graphs[w], &rounds[w][r]);
        }
        r += r > 0 || host_seconds() - start > warm_s; /* until then a round is warm-up, done again */
    }
    for (int w = 0; w < ways; w++) {
        ms[w] = ok ? median(rounds[w]) : 0;
        if (graphs[w])
            device_graph_destroy(t->dev, graphs[w]);
    }
    return ok;
}

bool overlap_tune(trainer *t)
{
    if (t->o.overlap != OVERLAP_AUTO || t->eager || t->steps > 0 || t->o.mode == STEP_FORWARD || !t->own_side)
        return true; /* without streams, on the CPU, all ways are one */
    sb_optimizer_state state, still;
    trainer_optimizer_state(t, &state);
    still = state;
    still.lr = 0;
    device_upload(t->dev, t->state, &still, sizeof still);
    overlap_use(t, OVERLAP_ALL);
    double ms[WAYS], once;
    bool ok = run(t, NULL, &once) && run(t, NULL, &once); /* the first loads kernels */
    if (ok && once < long_step_ms) {
        const int ways = optimizer_overlaps(t) ? WAYS : WAYS - 1;
        int best = 0;
        ok = measure(t, ways, ms);
        for (int w = 1; w < ways && ok; w++)
            best = ms[w] < (best ? ms[best] : worth * ms[0]) ? w : best;
        overlap_use(t, (overlap)best);
    }
    device_sync(t->dev);
    device_upload(t->dev, t->state, &state, sizeof state);
    trainer_zero_moments(t);
    return ok && (t->overlap != OVERLAP_NONE || trainer_plan_apart(t));
}
