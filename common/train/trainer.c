/* SPDX-License-Identifier: MIT */
/* Walking a training step, replaying it as a graph, and what one learns of it. */
#include "common/core/error.h"
#include "common/record/nvtx.h"
#include "common/step/optimizer.h"
#include "common/step/transformer.h"
#include "common/train/internal.h"

/* ---- the walk ---- */

static bool last_batch(const step *s)
{
    return s->micro == s->micro_batches - 1;
}

/* The plan has the memory of optimizer_all, also where the hook does without. */
static void update(step *s)
{
    const bool launching = !arena_planning(s->arena), last = arena_planning(s->arena) || last_batch(s);
    range_push("optimizer");
    arena_phase(s->arena, PHASE_OPTIMIZER);
    optimizer_take_workspace(s);
    if (!last) {
        /* its gradients wait for the others' */
    } else if (s->hooks.update) {
        if (launching && s->status == SB_OK)
            s->hooks.update(s->hooks.user);
    } else if (!optimizer_overlaps(s)) {
        optimizer_all(s);
    } else if (launching && s->back != s->main) {
        device_stream_record(s->dev, s->back, s->joined);
        device_stream_wait(s->dev, s->main, s->joined);
    }
    optimizer_drop_workspace(s);
    range_pop();
}

void trainer_walk(trainer *t)
{
    step *s = &t->step;
    const bool marks = !arena_planning(s->arena);
    arena_slot logits;
    if (marks && s->micro == 0)
        device_event_mark(s->dev, t->mark[0]);
    if (marks && s->hooks.begin)
        s->hooks.begin(s->hooks.user, s->micro == 0, last_batch(s));
    transformer_forward(s, &logits);
    transformer_loss(s, logits, s->o.mode != STEP_FORWARD);
    if (marks)
        device_event_mark(s->dev, t->mark[1]);
    if (s->o.mode == STEP_FORWARD) {
        step_drop(s, &logits);
    } else {
        if (optimizer_overlaps(s))
            optimizer_begin(s, s->main);
        transformer_backward(s, logits);
    }
    if (marks)
        device_event_mark(s->dev, t->mark[2]);
    if (s->o.mode == STEP_TRAIN)
        update(s);
    if (marks)
        device_event_mark(s->dev, t->mark[3]);
}

bool trainer_launch(trainer *t)
{
    step *s = &t->step;
    for (s->micro = 0; s->micro < s->micro_batches && s->status == SB_OK; s->micro++) {
        arena_run_begin(s->arena);
        trainer_walk(t);
        if (s->status == SB_OK)
            arena_run_end(s->arena);
    }
    s->micro = 0;
    return s->status == SB_OK;
}

/* Captures the step; without a graph the step goes on being launched op by op. */
static bool capture(trainer *t)
{
    step *s = &t->step;
    if (!device_graph_begin(s->dev)) {
        s->o.fusion = FUSION_KERNELS;
        return true;
    }
    const bool ok = trainer_launch(t);
    t->graph = device_graph_end(s->dev);
    if (ok && !t->graph) {
        warn("the step cannot be captured as a graph; it is launched op by op");
        s->o.fusion = FUSION_KERNELS;
    }
    return ok;
}

bool trainer_step(trainer *t)
{
    step *s = &t->step;
    s->status = SB_OK;
    if (s->o.fusion == FUSION_GRAPH && t->steps > 0 && !t->graph && !capture(t))
        return false;
    t->steps++;
    if (t->graph) {
        device_graph_launch(s->dev, t->graph);
        return true;
    }
    return trainer_launch(t);
}

overlap trainer_overlap(const trainer *t)
{
    const step *s = &t->step;
    if (s->eager || s->o.mode == STEP_FORWARD)
        return OVERLAP_NONE;
    return s->overlap == OVERLAP_ALL && !optimizer_overlaps(s) ? OVERLAP_GRADIENTS : s->overlap;
}

step_times trainer_times(trainer *t)
{
    step *s = &t->step;
    const bool backward = s->o.mode != STEP_FORWARD, train = s->o.mode == STEP_TRAIN;
    return (step_times){.forward = device_event_ms(s->dev, t->mark[0], t->mark[1]),
                        .backward = backward ? device_event_ms(s->dev, t->mark[1], t->mark[2]) : 0,
                        .optimizer = train ? device_event_ms(s->dev, t->mark[2], t->mark[3]) : 0,
                        .step = device_event_ms(s->dev, t->mark[0], t->mark[3])};
}

/* ---- memory ---- */

const arena *trainer_arena(const trainer *t)
{
    return t->step.arena;
}

trainer_memory trainer_memory_of(const trainer *t)
{
    trainer_memory r = {.arena_bytes = (int64_t)arena_bytes(t->step.arena)};
    int64_t held = 0;
    for (int i = 0; i < MEMORY_KINDS; i++)
        held += r.resident[i] = t->resident[i];
    for (int p = 0; p < STEP_PHASES; p++)
        r.phase_peak[p] = held + arena_peak(t->step.arena, (step_phase)p, MEMORY_KINDS);
    r.allocated = held + t->skipped + r.arena_bytes;
    return r;
}

void trainer_set_hooks(trainer *t, const step_hooks *hooks)
{
    t->step.hooks = *hooks;
}
