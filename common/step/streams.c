/* SPDX-License-Identifier: MIT */
/* The streams beside the main one in a backward pass. Main carries the chain of gradients of activations; weight
 * gradients, which nothing in the pass waits for, go to the side stream and fill the multiprocessors that a product on
 * main leaves idle; AdamW of a finished block goes to the background stream, where memory is idle while products run.
 *
 * What the side stream reads must live until it is done with it: main lets it fall LAG blocks behind at most, and drops
 * the tensors of a block when it has waited for it. A plan for overlap serves a step without it, too: streams that are
 * one and the same need no waiting. */
#include "common/step/streams.h"

#include "common/core/error.h"

bool side_separate(const step *s)
{
    return s->o.overlap != OVERLAP_NONE && !s->eager;
}

void overlap_use(step *s, overlap o)
{
    s->overlap = s->eager ? OVERLAP_NONE : o;
    s->side = s->overlap == OVERLAP_NONE ? s->main : s->own_side;
    s->back = s->overlap == OVERLAP_ALL || (s->o.update_units && !s->eager) ? s->own_back : s->main;
}

void side_join(step *s)
{
    if (step_launching(s))
        device_stream_follow(s->dev, s->main, s->side);
}

static void drop_pending(step *s, int layer)
{
    const int i = layer % (LAG + 1);
    for (int n = 0; n < s->work.count[i]; n++)
        step_drop(s, &s->work.pending[i][n]);
    s->work.count[i] = 0;
}

void side_begin(step *s, int top, size_t workspace_bytes)
{
    s->work.top = top;
    for (int i = 0; i <= LAG; i++)
        s->work.count[i] = 0;
    s->work.workspace = -1;
    if (!side_separate(s))
        return;
    s->work.workspace = step_take(s, workspace_bytes, MEMORY_WORKSPACE, -1, "matmul of weight gradients");
    if (step_launching(s)) {
        device_stream_follow(s->dev, s->side, s->main);
        device_stream_follow(s->dev, s->back, s->main);
    }
}

void *side_fork(step *s)
{
    if (step_launching(s))
        device_stream_follow(s->dev, s->side, s->main);
    return s->side;
}

void side_drop(step *s, arena_slot *slot)
{
    const int i = s->work.block % (LAG + 1);
    if (*slot < 0)
        return;
    if (s->micro->split) {
        step_defer(s, (step_note){.kind = NOTE_DROP, .x = *slot});
        *slot = -1;
        return;
    }
    if (!side_separate(s)) {
        step_drop(s, slot);
        return;
    }
    if (s->work.count[i] == PENDING_MAX)
        die(EXIT_CODE_FAILURE, "bug: more than %d tensors wait for the weight gradients of a block", PENDING_MAX);
    s->work.pending[i][s->work.count[i]++] = *slot;
    *slot = -1;
}

void side_unit_begin(step *s, int unit)
{
    const int behind = unit + LAG;
    s->work.block = unit;
    if (!side_separate(s) || behind > s->work.top)
        return;
    if (step_launching(s) && s->side != s->main)
        device_stream_wait(s->dev, s->main, s->side_done[behind]);
    drop_pending(s, behind);
}

void side_unit_end(step *s, int unit)
{
    if (step_launching(s) && s->side != s->main && unit >= 0)
        device_stream_record(s->dev, s->side, s->side_done[unit]);
}

/* Main has read the unit's weights for the last time; main and side have made its gradients. */
void back_follow(step *s, int unit)
{
    if (!step_launching(s))
        return;
    device_stream_follow(s->dev, s->back, s->main);
    if (s->side != s->main && unit >= 0)
        device_stream_wait(s->dev, s->back, s->side_done[unit]);
}

void side_end(step *s)
{
    if (!side_separate(s))
        return;
    if (step_launching(s))
        device_stream_follow(s->dev, s->main, s->side);
    for (int i = 0; i <= LAG; i++)
        drop_pending(s, i);
    step_drop(s, &s->work.workspace);
}
