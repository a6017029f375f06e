/* SPDX-License-Identifier: MIT */
/* Units of a sharded step (params.h): the head, each block, the embedding. With gathered parameters a unit lies in a slot
 * of the arena from a little before its use until after it; with sharded gradients the gradients of a unit do, until they
 * are reduced into this rank's slice. The schedule is that of FSDP (Zhao et al., 2023), but fixed in advance: the
 * plan knows which unit a walk uses when, and so every slot and its time.
 *
 * One rule holds across streams: a slot that is taken at a point of the walk is written by another stream only after that
 * stream has waited for main there, and it is dropped only where main has waited for its last use. So memory is the same
 * in every step, and no allocator need know streams. */
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/step/step.h"

enum {
    GRAD_SLOTS = 2, /* units with full gradients: one is made while the other is reduced */
    NEAR = 3 /* a unit whose next use is so near stays: the head, and the last block, which backward begins with */
};

static bool gathers(const trainer *t)
{
    return t->o.shard.params;
}

/* ---- the order of uses ---- */

void units_create(trainer *t)
{
    const int n = params_units(t->params);
    t->units = xcalloc((size_t)n, sizeof *t->units);
    for (int u = 0; u < n; u++)
        params_unit_range(t->params, u, &t->units[u].first, &t->units[u].count);
    units_begin(t);
}

void units_free(trainer *t)
{
    free(t->units);
    free(t->uses);
}

void units_begin(trainer *t)
{
    t->use = 0;
    for (int u = 0; u < params_units(t->params); u++)
        t->units[u].gathered = t->units[u].grads = -1;
}

/* A walk that only tells which units it uses comes before the plan, which looks ahead. */
void units_note(trainer *t)
{
    if (!gathers(t))
        return;
    t->use_count = 0;
    t->noting_uses = true;
    arena_plan_begin(t->arena);
    step_walk(t);
    arena_plan_cancel(t->arena);
    t->noting_uses = false;
}

static void note_use(trainer *t, int unit)
{
    if (t->use_count == t->use_room) {
        t->use_room = t->use_room ? 2 * t->use_room : 64;
        t->uses = xrealloc(t->uses, (size_t)t->use_room * sizeof *t->uses);
    }
    t->uses[t->use_count++] = unit;
}

int64_t units_held(const trainer *t)
{
    const int gains = params_gains(t->params), ranks = t->o.shard.ranks ? t->o.shard.ranks : 1;
    const int64_t whole = gains < 0 ? 0 : t->units[gains].count;
    return (t->params->elements - whole) / ranks + whole;
}

int64_t trainer_gathered_elements(const trainer *t)
{
    return t->gathered_elements * t->micro_batches;
}

/* ---- parameters ---- */

static bool launching(const trainer *t)
{
    return !arena_planning(t->arena) && t->status == SB_OK;
}

static int layer_of(const trainer *t, int unit)
{
    const int layers = t->o.config.layers;
    return unit > 0 && unit <= layers ? layers - unit : -1;
}

static void gather(trainer *t, int unit)
{
    step_unit *u = &t->units[unit];
    if (u->gathered >= 0)
        return;
    u->gathered = step_take(t, (size_t)(u->count * t->param_element), MEMORY_PARAM, layer_of(t, unit), "gathered");
    u->awaited = false;
    if (arena_planning(t->arena))
        t->gathered_elements += u->count;
    if (launching(t))
        t->hooks.gather(t->hooks.user, unit, step_pointer(t, u->gathered));
}

void unit_acquire(trainer *t, int layer)
{
    const int unit = params_unit(t->params, layer);
    if (!gathers(t))
        return;
    if (t->noting_uses) {
        note_use(t, unit);
        return;
    }
    if (t->use >= t->use_count || t->uses[t->use] != unit)
        die(EXIT_CODE_FAILURE, "bug: a step uses unit %d where its schedule has another", unit);
    for (int i = t->use; i <= t->use + t->o.shard.prefetch && i < t->use_count; i++)
        gather(t, t->uses[i]);
    if (!t->units[unit].awaited && launching(t))
        t->hooks.await(t->hooks.user, unit);
    t->units[unit].awaited = true;
}

/* Blocks that are not freed after the forward. */
static bool kept(const trainer *t, int unit)
{
    const int every = t->o.shard.free_every, layer = layer_of(t, unit);
    return every == 0 || (layer >= 0 && layer % every != 0);
}

/* Whether the unit of this use stays for a later one. */
static bool stays(const trainer *t)
{
    const int ahead = t->o.shard.prefetch + 1, near = ahead > NEAR ? ahead : NEAR;
    const bool to_the_end = kept(t, t->uses[t->use]) || t->use + near >= t->use_count;
    const int end = to_the_end ? t->use_count : t->use + near + 1;
    for (int i = t->use + 1; i < end; i++)
        if (t->uses[i] == t->uses[t->use])
            return true;
    return false;
}

void unit_release(trainer *t)
{
    if (!gathers(t) || t->noting_uses)
        return;
    if (!stays(t))
        step_drop(t, &t->units[t->uses[t->use]].gathered);
    t->use++;
}

/* While planning an address that is aligned as the one it stands for: what a product needs may depend on that. */
static void *somewhere(const trainer *t, const step_unit *u, const param_tensor *p)
{
    return (void *)(uintptr_t)(4096 + (p->first - u->first) * t->param_element); /* NOLINT: nothing is there */
}

void *unit_param(const trainer *t, const param_tensor *p)
{
    const int unit = params_unit_of(t->params, p);
    const step_unit *u = &t->units[unit];
    if (!gathers(t))
        return t->param + p->first * t->param_element;
    if (unit == params_gains(t->params)) /* behind the slices */
        return t->param + (u->first / t->o.shard.ranks + p->first - u->first) * t->param_element;
    if (u->gathered < 0 && !t->noting_uses)
        die(EXIT_CODE_FAILURE, "bug: a step reads %s, which is not gathered", p->name);
    if (arena_planning(t->arena))
        return somewhere(t, u, p);
    return step_at(step_pointer(t, u->gathered), (p->first - u->first) * t->param_element);
}

/* ---- gradients ---- */

bool unit_grads_apart(const trainer *t)
{
    return t->o.shard.grads || t->micro_batches > 1 || t->grad_dtype != t->made_dtype;
}

static void take_grads(trainer *t, int unit)
{
    step_unit *u = &t->units[unit];
    u->grads = step_take(t, (size_t)(u->count * t->made_element), MEMORY_GRAD, layer_of(t, unit), "unit gradients");
    if (launching(t) && t->o.shard.grads)
        t->hooks.grads(t->hooks.user, unit, step_pointer(t, u->grads));
}

void unit_grads_begin(trainer *t, int layer)
{
    const int unit = params_unit(t->params, layer), old = unit - GRAD_SLOTS, gains = params_gains(t->params);
    if (!unit_grads_apart(t))
        return;
    if (unit == 0 && gains >= 0)
        take_grads(t, gains); /* until units_end: every block has some of them */
    if (old >= 0 && t->o.shard.grads) {
        if (launching(t))
            t->hooks.reduced(t->hooks.user, old);
        step_drop(t, &t->units[old].grads);
    }
    take_grads(t, unit);
}

/* To gradients that are summed; `from` is as the backward made them, or summed. */
static void add(trainer *t, void *to, const void *from, sb_dtype dtype, bool onto, int64_t n, void *stream)
{
    const int columns = 64; /* every unit and slice is a multiple; rows that touch are one to a kernel */
    const sb_pointwise p = {.op = onto ? SB_POINT_ADD : SB_POINT_COPY,
                            .dtype_a = dtype,
                            .dtype_b = t->grad_dtype,
                            .dtype_out = t->grad_dtype,
                            .rows = (int)(n / columns),
                            .columns = columns,
                            .lda = columns,
                            .ldb = columns,
                            .ld_out = columns,
                            .a = from,
                            .b = onto ? to : NULL,
                            .out = to};
    step_done(t, t->k->train->pointwise(t->ctx, &p, stream));
}

bool trainer_add_grads(trainer *t, void *to, const void *from, int64_t n, void *stream)
{
    add(t, to, from, t->grad_dtype, true, n, stream);
    return t->status == SB_OK;
}

bool trainer_cast_grads(trainer *t, void *to, const void *from, int64_t n, void *stream)
{
    add(t, to, from, t->made_dtype, false, n, stream);
    return t->status == SB_OK;
}

/* Whole gradients of several micro-batches, or of another dtype than their sums, are added up where they stay; then they
 * are ready. */
static void add_up(trainer *t, int unit)
{
    step_unit *u = &t->units[unit];
    if (step_go(t))
        add(t, t->grad_sums + u->first * t->grad_element, step_pointer(t, u->grads), t->made_dtype, t->micro > 0,
            u->count, t->main);
    step_drop(t, &u->grads);
    if (launching(t) && t->hooks.ready && t->micro == t->micro_batches - 1)
        t->hooks.ready(t->hooks.user, u->first, u->count, t->main);
}

void unit_grads_end(trainer *t, int layer)
{
    if (!unit_grads_apart(t) || t->o.shard.grads)
        return;
    side_join(t);
    add_up(t, params_unit(t->params, layer));
}

/* Gains that are apart are ready with those of the first block's norms, which main made. The update waits for the last
 * units to be reduced; the next micro-batch must, whose activations may lie there. */
void units_end(trainer *t)
{
    const int n = params_units(t->params), gains = params_gains(t->params);
    if (gains >= 0 && unit_grads_apart(t) && !t->o.shard.grads)
        add_up(t, gains);
    else if (gains >= 0 && t->hooks.ready && launching(t))
        t->hooks.ready(t->hooks.user, t->units[gains].first, t->units[gains].count, t->main);
    for (int unit = n - GRAD_SLOTS - (gains >= 0); unit < n; unit++)
        if (t->o.shard.grads && t->micro < t->micro_batches - 1 && launching(t))
            t->hooks.reduced(t->hooks.user, unit);
}

char *unit_grad(const trainer *t, int unit, int64_t element)
{
    const step_unit *u = &t->units[unit];
    if (!unit_grads_apart(t))
        return step_at(t->block, element * t->made_element);
    return step_at(step_pointer(t, u->grads), (element - u->first) * t->made_element);
}
