/* SPDX-License-Identifier: MIT */
/* Units of a sharded step (params.h): the head, each block, the embedding. With gathered parameters a unit lies in a slot
 * of the arena from a little before its use until after it; with sharded gradients the gradients of a unit do, until they
 * are reduced into this rank's slice. The schedule is that of FSDP (Zhao et al., 2023), but fixed in advance: the
 * plan knows which unit a walk uses when, and so every slot and its time.
 *
 * One rule holds across streams: a slot that is taken at a point of the walk is written by another stream only after that
 * stream has waited for main there, and it is dropped only where main has waited for its last use. So memory is the same
 * in every step, and no allocator need know streams. */
#include "common/step/units.h"

#include <stdlib.h>

#include "common/core/error.h"
#include "common/step/exchange.h"
#include "common/step/optimizer.h"
#include "common/step/streams.h"

enum {
    PERIOD = -1,    /* among the uses: no micro-batch is in flight */
    GRAD_SLOTS = 2, /* units with full gradients: one is made while the other is reduced */
    NEAR = 3 /* a unit whose next use is so near stays: the head, and the last block, which backward begins with */
};

static bool gathers(const step *s)
{
    return s->o.shard.params;
}

/* ---- the order of uses ---- */

void units_create(step *s)
{
    const int n = params_units(s->params);
    s->units = xcalloc((size_t)n, sizeof *s->units);
    for (int u = 0; u < n; u++)
        params_unit_range(s->params, u, &s->units[u].first, &s->units[u].count);
    units_begin(s, true);
}

void units_free(step *s)
{
    free(s->units);
    free(s->uses.unit);
}

void units_note(step *s, bool on)
{
    s->uses.noting = on;
    s->uses.count = on ? 0 : s->uses.count;
}

static void note_use(step *s, int unit)
{
    LIST_ADD(s->uses.unit, s->uses.count, s->uses.room, unit);
}

void units_begin(step *s, bool first)
{
    if (s->uses.noting && !first)
        note_use(s, PERIOD);
    s->uses.at = first ? 0 : s->uses.at + 1;
    s->units_ready = first ? 0 : s->units_ready;
    for (int u = 0; u < params_units(s->params); u++) {
        s->units[u].gathered = s->units[u].grads = -1;
        s->units[u].complete &= !first;
    }
}

int64_t units_held(const step *s)
{
    const int gains = params_gains(s->params), ranks = s->o.shard.ranks ? s->o.shard.ranks : 1;
    const int64_t whole = gains < 0 ? 0 : s->units[gains].count;
    return (s->params->elements - whole) / ranks + whole;
}

/* ---- parameters ---- */

static int layer_of(const step *s, int unit)
{
    const int layer = s->params->layer_of[unit];
    return layer < s->o.config.layers ? layer : -1;
}

/* Blocks may be gathered as codes of one byte. */
static int gathered_element(const step *s, int unit)
{
    return s->codes && layer_of(s, unit) >= 0 ? 1 : s->param_element;
}

static void gather(step *s, int unit)
{
    step_unit *u = &s->units[unit];
    if (u->gathered >= 0)
        return;
    const int64_t bytes = u->count * gathered_element(s, unit);
    u->gathered = step_take(s, (size_t)bytes, MEMORY_PARAM, layer_of(s, unit), "gathered");
    u->awaited = false;
    if (arena_planning(s->arena))
        s->gathered_bytes += bytes;
    if (step_launching(s))
        s->hooks.gather(s->hooks.user, unit, step_pointer(s, u->gathered));
}

/* Behind the last use of those that are in flight together: nothing is gathered for later ones. */
static int period_end(const step *s)
{
    int end = s->uses.at;
    while (end < s->uses.count && s->uses.unit[end] != PERIOD)
        end++;
    return end;
}

void unit_acquire(step *s, int layer)
{
    const int unit = params_unit(s->params, layer);
    if (!gathers(s))
        return;
    if (s->uses.noting) {
        note_use(s, unit);
        return;
    }
    if (s->uses.at >= s->uses.count || s->uses.unit[s->uses.at] != unit)
        die(EXIT_CODE_FAILURE, "bug: a step uses unit %d where its schedule has another", unit);
    for (int i = s->uses.at; i <= s->uses.at + s->o.shard.prefetch && i < period_end(s); i++)
        gather(s, s->uses.unit[i]);
    if (!s->units[unit].awaited && step_launching(s))
        s->hooks.await(s->hooks.user, unit);
    s->units[unit].awaited = true;
}

/* Blocks that are not freed after the forward. */
static bool kept(const step *s, int unit)
{
    const int every = s->o.shard.free_every, layer = layer_of(s, unit);
    return every == 0 || (layer >= 0 && layer % every != 0);
}

/* Whether the unit of this use stays for a later one. */
static bool stays(const step *s)
{
    const int ahead = s->o.shard.prefetch + 1, near = ahead > NEAR ? ahead : NEAR;
    const int last = period_end(s);
    const bool to_the_end = kept(s, s->uses.unit[s->uses.at]) || s->uses.at + near >= last;
    const int end = to_the_end ? last : s->uses.at + near + 1;
    for (int i = s->uses.at + 1; i < end; i++)
        if (s->uses.unit[i] == s->uses.unit[s->uses.at])
            return true;
    return false;
}

void unit_release(step *s)
{
    if (!gathers(s) || s->uses.noting)
        return;
    if (!stays(s))
        step_drop(s, &s->units[s->uses.unit[s->uses.at]].gathered);
    s->uses.at++;
}

/* While planning an address that is aligned as the one it stands for: what a product needs may depend on that. */
static void *somewhere(const step *s, const step_unit *u, const param_tensor *p)
{
    const int64_t at = (p->first - u->first) * gathered_element(s, params_unit_of(s->params, p));
    return (void *)(uintptr_t)(4096 + at); /* NOLINT: nothing is there */
}

void *unit_param(const step *s, const param_tensor *p)
{
    const int unit = params_unit_of(s->params, p);
    const step_unit *u = &s->units[unit];
    if (!gathers(s))
        return s->param + p->first * s->param_element;
    if (unit == params_gains(s->params)) /* behind the slices */
        return s->param + (u->first / s->o.shard.ranks + p->first - u->first) * s->param_element;
    if (u->gathered < 0 && !s->uses.noting)
        die(EXIT_CODE_FAILURE, "bug: a step reads %s, which is not gathered", p->name);
    if (arena_planning(s->arena))
        return somewhere(s, u, p);
    return step_at(step_pointer(s, u->gathered), (p->first - u->first) * gathered_element(s, unit));
}

/* ---- gradients ----
 *
 * A single batch's lie at the start of the block. Those of several micro-batches are added where they stay, by the ops that
 * make them (s->adds). A unit's lie in a slot where they go elsewhere: into slices, or into sums of another dtype. */

static bool in_slots(const step *s)
{
    return s->o.shard.grads || (!s->sums_in_products && s->grad_dtype != s->made_dtype);
}

bool unit_grads_apart(const step *s)
{
    return s->sums_in_products || in_slots(s);
}

bool unit_ready_whole(const step *s)
{
    return !s->o.shard.grads && (unit_grads_apart(s) || s->splits);
}

static void take_grads(step *s, int unit)
{
    step_unit *u = &s->units[unit];
    u->grads = step_take(s, (size_t)(u->count * s->made_element), MEMORY_GRAD, layer_of(s, unit), "unit gradients");
    if (step_launching(s) && s->o.shard.grads)
        s->hooks.grads(s->hooks.user, unit, step_pointer(s, u->grads));
}

void unit_grads_begin(step *s, int layer)
{
    const int unit = params_unit(s->params, layer), old = unit - GRAD_SLOTS, gains = params_gains(s->params);
    if (!in_slots(s))
        return;
    if (unit == 0 && gains >= 0)
        take_grads(s, gains); /* until units_end: every block has some of them */
    if (old >= 0 && s->o.shard.grads) {
        if (step_launching(s))
            s->hooks.reduced(s->hooks.user, old);
        step_drop(s, &s->units[old].grads);
    }
    take_grads(s, unit);
}

void units_sum(step *s, void *to, const void *from, sb_dtype dtype, bool onto, int64_t n, void *stream)
{
    const int columns = 64; /* every unit and slice is a multiple; rows that touch are one to a kernel */
    step_sum(s, to, s->grad_dtype, from, dtype, onto, (int)(n / columns), columns, stream);
}

/* Where this part's gradients are those of its last micro-batch, once what is enqueued is done. */
static bool last_sums(const step *s, const step_part *p)
{
    return p->weights + (p == s->part) >= s->micro_batches;
}

static void tell_ready(step *s, int unit)
{
    if (step_launching(s) && s->hooks.ready)
        s->hooks.ready(s->hooks.user, s->units[unit].first, s->units[unit].count, s->main);
}

/* Hooks learn of units in index order, which the parts of a rank need not end in. */
static void complete(step *s, int unit)
{
    s->units[unit].complete = true;
    for (; s->units_ready < params_units(s->params) && s->units[s->units_ready].complete; s->units_ready++)
        tell_ready(s, s->units_ready);
}

/* Gradients in a slot are rounded to the dtype of their sums, or added to them. */
static void add_up(step *s, int unit)
{
    step_unit *u = &s->units[unit];
    if (step_go(s))
        units_sum(s, s->grad_sums + u->first * s->grad_element, step_pointer(s, u->grads), s->made_dtype,
                  s->part->weights > 0, u->count, s->main);
    step_drop(s, &u->grads);
}

/* Gradients that all lie here. */
static void *sums_at(const step *s, int64_t element)
{
    return step_at(s->grad_sums ? s->grad_sums : (char *)s->block, element * s->grad_element);
}

void unit_grads_end(step *s, int layer)
{
    const int unit = params_unit(s->params, layer);
    if (!unit_ready_whole(s))
        return;
    const bool last = last_sums(s, s->part), shared = last && layer >= 0 && layer < s->o.config.layers && share_keys(s);
    if (in_slots(s) || shared || (last && s->hooks.ready))
        side_join(s);
    if (in_slots(s))
        add_up(s, unit);
    if (shared)
        share_keys_sum(s, sums_at(s, params_find(s->params, PARAM_K, layer)->first), s->grad_dtype);
    if (last)
        complete(s, unit);
}

/* Units as backward counts them (streams.h), and layers as in params_range. */
static int layer_behind(const step *s, int unit)
{
    const int layers = s->o.config.layers;
    return unit == layers ? -1 : unit < 0 ? layers : unit;
}

static void unit_update(step *s, int unit)
{
    int64_t first, count;
    if (!optimizer_overlaps(s) || !last_sums(s, s->part))
        return;
    back_follow(s, unit);
    params_range(s->params, layer_behind(s, unit), &first, &count);
    optimizer_range(s, first, count, first, s->o.optimizer_blocks, s->back);
}

/* All gradients of the unit are enqueued, or left to a W: its AdamW may run beside what follows. */
void unit_made(step *s, int unit)
{
    if (s->micro->split)
        step_defer(s, (step_note){.kind = NOTE_UNIT, .layer = unit});
    else
        unit_grads_end(s, layer_behind(s, unit));
    side_unit_end(s, unit);
    if (!s->micro->split)
        unit_update(s, unit);
}

void unit_left(step *s, int unit)
{
    unit_grads_end(s, layer_behind(s, unit));
    unit_update(s, unit);
}

/* Gains that are apart are ready with those of the first block's norms, which main made. The update waits for the last
 * units to be reduced; the next micro-batch must, whose activations may lie there. */
void units_end(step *s)
{
    const int n = params_units(s->params), gains = params_gains(s->params);
    bool last = true;
    for (int k = 0; k < s->part_count; k++)
        last &= last_sums(s, &s->parts[k]);
    if (gains >= 0 && in_slots(s) && !s->o.shard.grads)
        add_up(s, gains);
    if (gains >= 0 && s->o.shard.grads)
        share_gains(s, step_pointer(s, s->units[gains].grads), s->units[gains].count, s->made_dtype);
    else if (gains >= 0 && last)
        share_gains(s, sums_at(s, s->units[gains].first), s->units[gains].count, s->grad_dtype);
    if (gains >= 0 && unit_ready_whole(s) && last)
        complete(s, gains);
    else if (gains >= 0 && !unit_ready_whole(s))
        tell_ready(s, gains);
    for (int unit = n - GRAD_SLOTS - (gains >= 0); unit < n; unit++) {
        if (!s->o.shard.grads || last || unit < 0)
            continue;
        if (step_launching(s))
            s->hooks.reduced(s->hooks.user, unit);
        step_drop(s, &s->units[unit].grads);
    }
}

char *unit_grad(const step *s, int unit, int64_t element)
{
    const step_unit *u = &s->units[unit];
    if (s->sums_in_products)
        return step_at(s->grad_sums, element * s->made_element);
    if (!in_slots(s))
        return step_at(s->block, element * s->made_element);
    return step_at(step_pointer(s, u->grads), (element - u->first) * s->made_element);
}
