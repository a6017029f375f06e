/* SPDX-License-Identifier: MIT */
/* Whole steps as a measure; see internal.h. With a learning rate of 0 a step leaves the parameters as they are; what
 * else it changes is put back at the end. */
#include <math.h>

#include "common/core/clock.h"
#include "common/train/tune/internal.h"

void steps_begin(trainer *t, sb_optimizer_state *kept)
{
    trainer_optimizer_state(t, kept);
    sb_optimizer_state still = *kept;
    still.lr = 0;
    device_upload(t->step.dev, t->step.state, &still, sizeof still);
}

void steps_end(trainer *t, const sb_optimizer_state *kept)
{
    step *s = &t->step;
    device_sync(s->dev);
    device_upload(s->dev, s->state, kept, sizeof *kept);
    trainer_zero_moments(t);
}

bool steps_capture(trainer *t, device_graph **graph)
{
    step *s = &t->step;
    *graph = NULL;
    s->status = SB_OK;
    if (s->o.fusion != FUSION_GRAPH || !device_graph_begin(s->dev))
        return true;
    const bool ok = trainer_launch(t);
    *graph = device_graph_end(s->dev);
    return ok;
}

bool steps_run(trainer *t, device_graph *graph, double *ms)
{
    t->step.status = SB_OK;
    if (graph)
        device_graph_launch(t->step.dev, graph);
    else if (!trainer_launch(t))
        return false;
    *ms = trainer_times(t).step;
    return true;
}

/* Short steps neither heat a GPU nor want as long. */
double steps_warm_s(double step_ms)
{
    return fmin(fmax(100 * step_ms * 1e-3, 0.1), 0.5);
}

bool steps_warm(trainer *t, device_graph *graph, double *step_ms)
{
    double once = 0;
    bool ok = steps_run(t, graph, &once) && steps_run(t, graph, &once); /* the first run is slower */
    const double start = host_seconds(), end = start + steps_warm_s(once);
    while (ok && host_seconds() < end)
        ok = steps_run(t, graph, &once);
    *step_ms = once;
    return ok;
}

/* The time of a step follows the clock, and that the power of the steps before it: contestants that took turns step by
 * step would all run at the clock that their mean power allows, and the hungriest would win. The first half of a block
 * is at the clock that the contestant before it left. */
bool steps_block(trainer *t, device_graph *graph, double step_ms, double best_ms, samples *ms)
{
    const double start = host_seconds(), block_s = tune_block_s(step_ms);
    samples all = {0};
    bool ok = true, lost = false;
    for (double passed = 0, one; ok && !lost && passed < block_s; passed = host_seconds() - start) {
        ok = steps_run(t, graph, &one);
        if (!ok)
            break;
        samples_add(&all, one);
        lost = tune_lost(&all, best_ms);
        if (lost || host_seconds() - start > block_s / 2)
            samples_add(ms, one);
    }
    samples_free(&all);
    return ok;
}

bool steps_first(trainer *t, tune_wait *w)
{
    return w->step_ms > 0 || (steps_run(t, NULL, &w->step_ms) && steps_run(t, NULL, &w->step_ms));
}

double tune_left(const trainer *t, const tune_wait *w)
{
    return tune_budget(t->step.params->elements, w->first, w->anew, process_seconds(), host_seconds() - w->began,
                       w->step_ms * 1e-3);
}
