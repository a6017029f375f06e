/* SPDX-License-Identifier: MIT */
/* What a strategy means for a model that does not exist yet: buckets, and who updates what; see parallel.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/parallel/internal.h"

update_order update_order_parse(const char *name)
{
    static const char *const names[] = {"after", "buckets", "backward"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return (update_order)i;
    die(EXIT_CODE_USAGE, "no such order of updates: %s", name);
}

gather_way gather_way_parse(const char *name)
{
    static const char *const names[] = {"nccl", "copy", "own"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return (gather_way)i;
    die(EXIT_CODE_USAGE, "no such way to gather: %s", name);
}

int64_t parallel_granularity(int ranks)
{
    return (int64_t)BUCKET_ALIGNMENT * ranks;
}

/* ---- norms ---- */

/* What of `r` is in tensors that this rank counts. Slices lie side by side on the rank, wherever they belong, and so have one
 * norm. */
static void add_normed(parallel_plan *p, const index_space *space, owned_range r)
{
    owned_range *open = p->norms && p->s->gradients == GRADIENTS_SLICED ? &p->normed[p->norms - 1] : NULL;
    for (int i = 0; i < space->tensors; i++) {
        const int64_t start = space->starts[i], next = space->starts[i + 1], end = r.first + r.count;
        const int64_t from = start > r.first ? start : r.first, to = next < end ? next : end;
        const int64_t state = r.state_first + from - r.first;
        if (from >= to || (space->elsewhere && space->elsewhere[i]))
            continue;
        if (!open || open->state_first + open->count != state) {
            open = &p->normed[p->norms++];
            *open = (owned_range){from, 0, state};
        }
        open->count += to - from;
    }
}

/* Where sums are whole, all ranks of the strategy have the same; what is whole besides slices is counted by the first. */
static void choose_normed(parallel_plan *p, const index_space *space)
{
    const int own = p->slice > 0 ? p->own.n - p->whole : p->own.n;
    p->normed = xcalloc((unsigned long)space->tensors + (unsigned long)p->own.n, sizeof *p->normed);
    if (p->s->reduce == REDUCE_ALL)
        add_normed(p, space, (owned_range){0, p->elements, 0});
    for (int i = 0; p->s->reduce != REDUCE_ALL && i < own; i++)
        add_normed(p, space, p->own.r[i]);
}

/* ---- the plan ---- */

/* A bucket holds at most `cap` elements. */
static void cut(parallel_plan *p, const index_space *space, int64_t cap)
{
    const strategy *s = p->s;
    p->slices = s->reduce == REDUCE_HYBRID ? p->o.ranks / p->o.replicas : p->o.ranks;
    p->slice = p->rank % p->slices;
    p->whole = s->grouping == GROUP_UNIT ? space->whole_units : 0;
    p->b = s->grouping == GROUP_TENSOR   ? buckets_by_size(space, 0)
           : s->grouping == GROUP_BUCKET ? buckets_by_size(space, cap)
           : s->grouping == GROUP_UNIT   ? buckets_by_unit(space)
                                         : buckets_by_size(space, INT64_MAX);
    if (strategy_slices(s) && s->grouping != GROUP_UNIT)
        buckets_align(&p->b, p->o.ranks);
    p->own = s->share == SHARE_NONE        ? own_all(space)
             : s->share == SHARE_BROADCAST ? own_tensors(space, p->rank, p->o.ranks)
                                           : own_slices(&p->b, p->slice, p->slices, p->whole);
    p->sharded = s->share != SHARE_NONE;
}

/* The end of a unit, or of all, that can't be one of equal slices; -1: there is none. */
static int64_t odd_end(const strategy *s, const index_space *space, int ranks)
{
    const int64_t of = parallel_granularity(ranks);
    for (int i = 0; s->grouping == GROUP_UNIT && i < space->unit_count; i++)
        if (space->units[i + 1] % of)
            return space->units[i + 1];
    return space->starts[space->tensors] % of ? space->starts[space->tensors] : -1;
}

/* The strategy's ranks on their mesh, which is all of it where none is given. */
static parallel_options on_mesh(const parallel_options *asked)
{
    parallel_options o = *asked;
    const strategy *s = parallel_strategy(o.strategy);
    const int replicas = s && s->reduce == REDUCE_HYBRID && o.replicas > 0 ? o.replicas : 1;
    if (!o.m.tp)
        o.m = (mesh){1, replicas, o.ranks / replicas, 1, 1};
    else
        o.ranks = mesh_group_size(o.m, MESH_DATA), o.replicas = o.m.dp_replicate;
    return o;
}

static int place_of(const parallel_options *o, int rank)
{
    if (rank >= mesh_world(o->m))
        return o->ranks;
    mesh_group g = mesh_group_of(o->m, rank, MESH_DATA);
    const int place = g.mine;
    mesh_group_free(&g);
    return place;
}

parallel_plan *parallel_plan_create(const parallel_options *asked, int rank, const index_space *s, int grad_bytes,
                                    char *why, size_t why_bytes)
{
    const parallel_options of_mesh = on_mesh(asked), *o = &of_mesh;
    const strategy *chosen = parallel_strategy(o->strategy);
    const int64_t elements = s->starts[s->tensors];
    if (s->starts[0] != 0 || o->ranks < 1 || rank < 0)
        die(EXIT_CODE_FAILURE, "bug: rank %d of %d plans an index space from %lld", rank, o->ranks,
            (long long)s->starts[0]);
    if (!chosen)
        snprintf(why, why_bytes, "there is no strategy '%s'", o->strategy);
    else if (chosen->grouping == GROUP_BUCKET && o->bucket_bytes < 1)
        snprintf(why, why_bytes, "a bucket of %lld bytes holds nothing", (long long)o->bucket_bytes);
    else if (chosen->reduce == REDUCE_HYBRID && (o->replicas < 1 || o->ranks % o->replicas))
        snprintf(why, why_bytes, "the number of replicas, %d, does not divide that of ranks, %d", o->replicas,
                 o->ranks);
    else if (chosen->grouping == GROUP_UNIT && !s->unit_count)
        snprintf(why, why_bytes, "'%s' works on units, and the model has none", o->strategy);
    else if (strategy_slices(chosen) && odd_end(chosen, s, o->ranks) >= 0)
        snprintf(why, why_bytes, "%lld elements can't be cut in slices for %d ranks: they are not a multiple of %lld",
                 (long long)odd_end(chosen, s, o->ranks), o->ranks, (long long)parallel_granularity(o->ranks));
    else {
        parallel_plan *p = xcalloc(1, sizeof *p);
        *p = (parallel_plan){.o = *o, .s = chosen, .m = o->m, .elements = elements, .tensors = s->tensors};
        p->rank = place_of(o, rank);
        p->o.strategy = chosen->name;
        p->starts = xmalloc((unsigned long)(s->tensors + 1) * sizeof *p->starts);
        memcpy(p->starts, s->starts, (size_t)(s->tensors + 1) * sizeof *p->starts);
        const int64_t cap = o->bucket_bytes / grad_bytes;
        cut(p, s, cap > 1 ? cap : 1);
        if (p->rank >= o->ranks)
            p->own.n = 0, p->own.state_elements = 0;
        else
            choose_normed(p, s);
        return p;
    }
    return NULL;
}

mesh_group parallel_plan_group(const parallel_plan *p, int rank, unsigned axes)
{
    return mesh_group_of(p->m, rank < mesh_world(p->m) ? rank : 0, axes);
}

int64_t parallel_plan_whole(const parallel_plan *p)
{
    int64_t n = 0;
    for (int i = p->b.n - p->whole; i < p->b.n; i++)
        n += p->b.b[i].count;
    return n;
}

void parallel_plan_free(parallel_plan *p)
{
    if (!p)
        return;
    buckets_free(&p->b);
    ownership_free(&p->own);
    free(p->normed);
    free(p->starts);
    free(p);
}

static double ring_part(int ranks) /* of the bytes of a reduce-scatter or an all-gather, what a rank sends */
{
    return (double)(ranks - 1) / ranks;
}

double parallel_wire_bytes(const parallel_plan *p, int grad_bytes, int param_bytes)
{
    const double part = ring_part(p->slices), replicas = (double)p->o.ranks / p->slices;
    const double whole = (double)parallel_plan_whole(p), cut = (double)p->elements - whole;
    const double grads = cut * grad_bytes, params = cut * param_bytes;
    const int sums = p->s->gradients == GRADIENTS_SLICED && p->o.micro_batches > 1 ? p->o.micro_batches : 1;
    double bytes = p->s->reduce == REDUCE_ALL ? 2 * part * grads : sums * part * grads;
    bytes += sums * 2 * part * whole * grad_bytes;
    if (p->s->reduce == REDUCE_HYBRID)
        bytes += 2 * ring_part((int)replicas) * whole * grad_bytes;
    if (p->s->reduce == REDUCE_HYBRID)
        bytes += 2 * ring_part((int)replicas) * grads / p->slices;
    if (p->s->share == SHARE_ON_USE)
        bytes += part * (double)p->gathered_bytes;
    if (p->s->share == SHARE_GATHER || p->s->share == SHARE_FUSED || p->s->share == SHARE_BROADCAST)
        bytes += part * params;
    return bytes;
}
