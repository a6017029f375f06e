/* SPDX-License-Identifier: MIT */
/* Walking a training step, replaying it as a graph, and what one learns of it. */
#include "common/core/error.h"
#include "common/record/nvtx.h"
#include "common/step/exchange.h"
#include "common/step/linear_float8.h"
#include "common/step/optimizer.h"
#include "common/step/table.h"
#include "common/step/transformer.h"
#include "common/step/units.h"
#include "common/train/codes.h"
#include "common/train/internal.h"

/* ---- the walk ---- */

/* The plan has the memory of optimizer_all, also where the hook does without. */
static void update(step *s)
{
    range_push("optimizer");
    arena_phase(s->arena, PHASE_OPTIMIZER);
    optimizer_take_workspace(s);
    if (s->hooks.update) {
        if (step_launching(s))
            s->hooks.update(s->hooks.user);
    } else if (!optimizer_overlaps(s)) {
        optimizer_all(s);
    } else if (step_launching(s)) {
        device_stream_follow(s->dev, s->main, s->back);
    }
    optimizer_drop_workspace(s);
    range_pop();
}

void trainer_walk_begin(trainer *t)
{
    step *s = &t->step;
    arena_phase(s->arena, PHASE_FORWARD);
    if (!s->o.share_grad_memory && !unit_grads_apart(s) && s->o.mode != STEP_FORWARD)
        arena_fixed(s->arena, 0, (size_t)(s->params->elements * s->made_element), MEMORY_GRAD, -1, "gradients");
    table_begin(s);
    units_begin(s, true);
    float8_begin(s);
    t->sums = 0;
    t->summing = t->updating = false;
    s->spreads = 0;
    for (int i = 0; i < STEP_WINDOWS; i++)
        s->windows[i] = (step_window){.of = -1};
    if (step_launching(s) && s->share.begin)
        s->share.begin(s->share.user);
}

/* The hook's micro-batch is over once its gradients are: the next begins with the next op, whatever that is. */
static void begin_batch(trainer *t)
{
    step *s = &t->step;
    const bool one_part = s->part_count == 1;
    if (one_part && t->summing && s->parts[0].weights > t->sums) {
        t->summing = false;
        t->sums++;
    }
    if (!t->summing && s->hooks.begin && !arena_planning(s->arena) && !s->rehearsing)
        s->hooks.begin(s->hooks.user, t->sums == 0, !one_part || t->sums == s->micro_batches - 1);
    t->summing = true;
}

static void act(trainer *t, int i)
{
    step *s = &t->step;
    const step_action *a = &s->actions[i];
    step_part *p = &s->parts[a->part];
    step_micro *m = &p->micros[a->micro];
    const bool marks = !arena_planning(s->arena);
    s->action = i;
    switch (a->work) {
    case STEP_F:
        part_forward(s, p, m);
        part_loss(s, p, m, s->o.mode != STEP_FORWARD);
        if (p->holds.head)
            hops_ended(s);
        s->in_flight++;
        if (s->o.mode == STEP_FORWARD)
            step_drop(s, &m->logits);
        break;
    case STEP_B:
        if (optimizer_overlaps(s) && !t->updating)
            optimizer_begin(s, s->main);
        t->updating = true;
        part_backward(s, p, m, !table_whole(s, i));
        s->in_flight--;
        break;
    case STEP_W:
        hops_begun(s);
        part_weights(s, p, m);
        hops_ended(s);
        break;
    }
    if (marks)
        device_event_mark(s->dev, t->mark[a->work == STEP_F ? 1 : 2]);
}

void trainer_walk(trainer *t)
{
    step *s = &t->step;
    const bool marks = !arena_planning(s->arena);
    if (marks)
        device_event_mark(s->dev, t->mark[0]);
    bool begun = false;
    trainer_walk_begin(t);
    for (int i = 0; i < s->action_count; i++) {
        if (table_done(s, i))
            continue;
        begin_batch(t);
        if (!begun) {
            float8_history(s);
            codes_begin(s);
        }
        begun = true;
        if (i > 0 && s->in_flight == 0 && s->actions[i].work == STEP_F && !s->o.shard.held)
            units_begin(s, false);
        hops_open(s, i);
        act(t, i);
    }
    if (s->o.mode == STEP_TRAIN) /* beside what is still on its way to other ranks */
        update(s);
    hops_end(s);
    if (marks)
        device_event_mark(s->dev, t->mark[3]);
}

bool trainer_launch(trainer *t)
{
    step *s = &t->step;
    arena_run_begin(s->arena);
    trainer_walk(t);
    if (s->status == SB_OK)
        arena_run_end(s->arena);
    return s->status == SB_OK;
}

void trainer_rehearse(trainer *t)
{
    t->step.rehearsing = true;
    trainer_launch(t);
    t->step.rehearsing = false;
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

void trainer_set_same_step(trainer *t, bool same)
{
    t->step.same_step = same;
}

void trainer_set_hooks(trainer *t, const step_hooks *hooks)
{
    t->step.hooks = *hooks;
}

void trainer_set_hops(trainer *t, const step_hops *hops)
{
    t->step.hops = *hops;
}

void trainer_set_share(trainer *t, const step_share *share)
{
    t->step.share = *share;
}
