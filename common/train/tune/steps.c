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

/* So many steps of step_ms, within bounds: short steps neither heat a GPU nor want as long for as many samples. */
static double seconds_for(double steps, double step_ms, double least, double most)
{
    return fmin(fmax(steps * step_ms * 1e-3, least), most);
}

bool steps_warm(trainer *t, device_graph *graph, double *step_ms)
{
    double once = 0;
    bool ok = steps_run(t, graph, &once) && steps_run(t, graph, &once); /* the first run is slower */
    const double start = host_seconds(), end = start + seconds_for(100, once, 0.1, 0.5);
    while (ok && host_seconds() < end)
        ok = steps_run(t, graph, &once);
    *step_ms = once;
    return ok;
}

/* The time of a step follows the clock, and that the power of the steps before it: contestants that took turns step by
 * step would all run at the clock that their mean power allows, and the hungriest would win. The first half of a block
 * is at the clock that the contestant before it left. */
bool steps_block(trainer *t, device_graph *graph, double step_ms, samples *ms)
{
    const double start = host_seconds(), block_s = seconds_for(40, step_ms, 0.05, 0.3);
    bool ok = true;
    for (double passed = 0, one; ok && passed < block_s; passed = host_seconds() - start) {
        ok = steps_run(t, graph, &one);
        if (ok && host_seconds() - start > block_s / 2)
            samples_add(ms, one);
    }
    return ok;
}
