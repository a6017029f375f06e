/* SPDX-License-Identifier: MIT */
/* The streams beside the main one in a backward pass. Main carries the chain of gradients of activations; weight
 * gradients, which nothing in the pass waits for, go to the side stream and fill the multiprocessors that a product on
 * main leaves idle; AdamW of a finished block goes to the background stream, where memory is idle while products run.
 *
 * What the side stream reads must live until it is done with it: main lets it fall LAG blocks behind at most, and drops
 * the tensors of a block when it has waited for it. A plan for overlap serves a step without it, too: streams that are
 * one and the same need no waiting. */
#include "common/core/error.h"
#include "common/step/step.h"

/* Whether the plan is one for overlap. */
static bool separate(const trainer *t)
{
    return t->o.overlap != OVERLAP_NONE && !t->eager;
}

void overlap_use(trainer *t, overlap o)
{
    t->overlap = t->eager ? OVERLAP_NONE : o;
    t->side = t->overlap == OVERLAP_NONE ? t->main : t->own_side;
    t->back = t->overlap == OVERLAP_ALL ? t->own_back : t->main;
}

static bool launching(const trainer *t)
{
    return !arena_planning(t->arena) && t->status == SB_OK;
}

/* What `to` enqueues from here on waits for all that `from` has enqueued. */
static void follow(trainer *t, void *to, void *from)
{
    if (to == from)
        return;
    device_stream_record(t->dev, from, t->ready);
    device_stream_wait(t->dev, to, t->ready);
}

void side_join(trainer *t)
{
    if (launching(t))
        follow(t, t->main, t->side);
}

static void drop_pending(trainer *t, int layer)
{
    const int i = layer % (LAG + 1);
    for (int n = 0; n < t->pending_count[i]; n++)
        step_drop(t, &t->pending[i][n]);
    t->pending_count[i] = 0;
}

void side_begin(trainer *t)
{
    for (int i = 0; i <= LAG; i++)
        t->pending_count[i] = 0;
    t->side_workspace = -1;
    if (!separate(t))
        return;
    t->side_workspace = step_take(t, step_side_workspace(t), MEMORY_WORKSPACE, -1, "matmul of weight gradients");
    if (launching(t)) {
        follow(t, t->side, t->main);
        follow(t, t->back, t->main);
    }
}

void *side_fork(trainer *t)
{
    if (launching(t))
        follow(t, t->side, t->main);
    return t->side;
}

void side_drop(trainer *t, arena_slot *s)
{
    const int i = t->side_block % (LAG + 1);
    if (!separate(t)) {
        step_drop(t, s);
        return;
    }
    if (t->pending_count[i] == PENDING_MAX)
        die(EXIT_CODE_FAILURE, "bug: more than %d tensors wait for the weight gradients of a block", PENDING_MAX);
    t->pending[i][t->pending_count[i]++] = *s;
    *s = -1;
}

void side_unit_begin(trainer *t, int unit)
{
    const int behind = unit + LAG;
    t->side_block = unit;
    if (!separate(t) || behind > t->o.config.layers)
        return;
    if (launching(t) && t->side != t->main)
        device_stream_wait(t->dev, t->main, t->side_done[behind]);
    drop_pending(t, behind);
}

void side_unit_end(trainer *t, int unit)
{
    const int layers = t->o.config.layers;
    if (launching(t) && t->side != t->main && unit >= 0)
        device_stream_record(t->dev, t->side, t->side_done[unit]);
    if (!optimizer_overlaps(t))
        return;
    if (launching(t)) { /* main has read the unit's weights for the last time; main and side have made its gradients */
        follow(t, t->back, t->main);
        if (t->side != t->main && unit >= 0)
            device_stream_wait(t->dev, t->back, t->side_done[unit]);
    }
    int64_t first, count;
    params_range(t->params, unit == layers ? -1 : unit < 0 ? layers : unit, &first, &count);
    optimizer_range(t, first, count, first, t->o.optimizer_blocks, t->back);
}

void side_end(trainer *t)
{
    if (!separate(t))
        return;
    if (launching(t))
        follow(t, t->main, t->side);
    for (int i = 0; i <= LAG; i++)
        drop_pending(t, i);
    step_drop(t, &t->side_workspace);
}
