/* SPDX-License-Identifier: MIT */
/* Walking a training step, replaying it as a graph, and what one learns of it. */
#include "common/train/trainer.h"

#include "common/core/error.h"
#include "common/profile/nvtx.h"
#include "common/step/step.h"

/* ---- the walk ---- */

static bool last_batch(const trainer *t)
{
    return t->micro == t->micro_batches - 1;
}

/* The plan has the memory of optimizer_all, also where the hook does without. */
static void update(trainer *t)
{
    const bool launching = !arena_planning(t->arena), last = arena_planning(t->arena) || last_batch(t);
    range_push("optimizer");
    arena_phase(t->arena, PHASE_OPTIMIZER);
    optimizer_take_workspace(t);
    if (!last) {
        /* its gradients wait for the others' */
    } else if (t->hooks.update) {
        if (launching && t->status == SB_OK)
            t->hooks.update(t->hooks.user);
    } else if (!optimizer_overlaps(t)) {
        optimizer_all(t);
    } else if (launching && t->back != t->main) {
        device_stream_record(t->dev, t->back, t->joined);
        device_stream_wait(t->dev, t->main, t->joined);
    }
    optimizer_drop_workspace(t);
    range_pop();
}

void step_walk(trainer *t)
{
    const bool marks = !arena_planning(t->arena);
    arena_slot logits;
    if (marks && t->micro == 0)
        device_event_mark(t->dev, t->mark[0]);
    if (marks && t->hooks.begin)
        t->hooks.begin(t->hooks.user, t->micro == 0, last_batch(t));
    transformer_forward(t, &logits);
    transformer_loss(t, logits, t->o.mode != STEP_FORWARD);
    if (marks)
        device_event_mark(t->dev, t->mark[1]);
    if (t->o.mode == STEP_FORWARD) {
        step_drop(t, &logits);
    } else {
        if (optimizer_overlaps(t))
            optimizer_begin(t, t->main);
        transformer_backward(t, logits);
    }
    if (marks)
        device_event_mark(t->dev, t->mark[2]);
    if (t->o.mode == STEP_TRAIN)
        update(t);
    if (marks)
        device_event_mark(t->dev, t->mark[3]);
}

bool step_launch(trainer *t)
{
    for (t->micro = 0; t->micro < t->micro_batches && t->status == SB_OK; t->micro++) {
        arena_run_begin(t->arena);
        step_walk(t);
        if (t->status == SB_OK)
            arena_run_end(t->arena);
    }
    t->micro = 0;
    return t->status == SB_OK;
}

/* Captures the step; without a graph the step goes on being launched op by op. */
static bool capture(trainer *t)
{
    if (!device_graph_begin(t->dev)) {
        t->o.fusion = FUSION_KERNELS;
        return true;
    }
    const bool ok = step_launch(t);
    t->graph = device_graph_end(t->dev);
    if (ok && !t->graph) {
        warn("the step cannot be captured as a graph; it is launched op by op");
        t->o.fusion = FUSION_KERNELS;
    }
    return ok;
}

bool trainer_step(trainer *t)
{
    t->status = SB_OK;
    if (t->o.fusion == FUSION_GRAPH && t->steps > 0 && !t->graph && !capture(t))
        return false;
    t->steps++;
    if (t->graph) {
        device_graph_launch(t->dev, t->graph);
        return true;
    }
    return step_launch(t);
}

overlap trainer_overlap(const trainer *t)
{
    if (t->eager || t->o.mode == STEP_FORWARD)
        return OVERLAP_NONE;
    return t->overlap == OVERLAP_ALL && !optimizer_overlaps(t) ? OVERLAP_GRADIENTS : t->overlap;
}

step_times trainer_times(trainer *t)
{
    const bool backward = t->o.mode != STEP_FORWARD, train = t->o.mode == STEP_TRAIN;
    return (step_times){.forward = device_event_ms(t->dev, t->mark[0], t->mark[1]),
                        .backward = backward ? device_event_ms(t->dev, t->mark[1], t->mark[2]) : 0,
                        .optimizer = train ? device_event_ms(t->dev, t->mark[2], t->mark[3]) : 0,
                        .step = device_event_ms(t->dev, t->mark[0], t->mark[3])};
}

/* ---- memory ---- */

const arena *trainer_arena(const trainer *t)
{
    return t->arena;
}

trainer_memory trainer_memory_of(const trainer *t)
{
    trainer_memory r = {.arena_bytes = (int64_t)arena_bytes(t->arena)};
    int64_t held = 0;
    for (int i = 0; i < MEMORY_KINDS; i++)
        held += r.resident[i] = t->resident[i];
    for (int p = 0; p < STEP_PHASES; p++)
        r.phase_peak[p] = held + arena_peak(t->arena, (step_phase)p, MEMORY_KINDS);
    r.allocated = held + t->skipped + r.arena_bytes;
    return r;
}

void trainer_set_hooks(trainer *t, const step_hooks *hooks)
{
    t->hooks = *hooks;
}
