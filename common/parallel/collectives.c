/* SPDX-License-Identifier: MIT */
/* The calls that follow from a strategy's row: gradients are packed, summed and unpacked, and parameters are sent to the
 * ranks that did not update them; see internal.h. */
#include "common/comm/windows.h"
#include "common/core/error.h"
#include "common/parallel/internal.h"

static bool is_whole(const parallel *p, int bucket)
{
    return bucket >= p->plan->b.n - p->plan->whole;
}

/* ---- gradients ---- */

/* This rank's slice of a unit, with those who have the same slice of another replica. */
static void sum_replicas(parallel *p, owned_range own)
{
    void *slice = parallel_at(p->m.grad, p->m.grad_dtype, own.state_first);
    device_stream_follow(p->m.d, p->replica_stream, p->reduce_stream);
    comm_all_reduce(p->replica_comm, slice, slice, (size_t)own.count, p->m.grad_dtype, COMM_SUM, p->replica_stream);
}

/* The gradients of a unit as they travel. */
static const void *to_send(parallel *p, int unit)
{
    const void *grads = p->edges[unit].grads;
    if (!p->produced_grads)
        return grads;
    if (!p->timing_alone)
        p->m.cast(p->m.user, p->produced_grads, grads, p->plan->b.b[unit].count, p->reduce_stream);
    return p->produced_grads;
}

/* A rank's slice comes from each other one by copy engines, then this rank adds them up in the order of ranks. Two units' are
 * received in turn: who sends the next but one has met this rank behind its sum. So ranks meet once for each unit, and once
 * more when a step begins. */
static void reduce_by_copies(parallel *p, const void *grads, void *to, int64_t count, comm_dtype t)
{
    const parallel_plan *plan = p->plan;
    const int first = plan->rank - plan->slice, half = (int)(p->sums++ % 2) * plan->slices;
    const size_t bytes = (size_t)count * comm_dtype_bytes(t);
    sb_direct_sum sum = {.dtype = peer_dtype(t), .count = plan->slices, .n = (size_t)count, .out = to};
    if (p->sums == 1)
        comm_barrier(p->reduce_comm, p->reduce_stream);
    for (int k = 1; k < plan->slices; k++) { /* no two ranks begin with the same one */
        const int r = (plan->slice + k) % plan->slices;
        device_stream_copy(p->m.d, p->reduce_stream,
                           parallel_at(p->received[first + r], t, (half + plan->slice) * p->most_received),
                           parallel_at((void *)grads, t, r * count), bytes);
    }
    comm_barrier(p->reduce_comm, p->reduce_stream);
    for (int r = 0; r < plan->slices; r++)
        sum.parts[r] = r == plan->slice ? parallel_at((void *)grads, t, r * count)
                                        : parallel_at(p->received[plan->rank], t, (half + r) * p->most_received);
    if (!windows_add(p->m.d, &sum, p->reduce_stream))
        die(EXIT_CODE_FAILURE, "gradients of other ranks can't be added: %s", sb_last_message());
}

static void reduce_bucket(parallel *p, int i)
{
    const bucket b = p->plan->b.b[i];
    const comm_dtype t = p->m.grad_dtype;
    void *arena = p->s->packed ? p->copy : p->m.grad, *grads = parallel_at(arena, t, b.first);
    const owned_range own = strategy_slices(p->s) ? p->plan->own.r[i] : (owned_range){0}; /* this rank's slice of it */
    if (p->s->gradients == GRADIENTS_SLICED) {
        void *sums = parallel_at(p->m.grad, t, own.state_first), *to = p->first_batch ? sums : p->batch_sum;
        if (is_whole(p, i))
            comm_all_reduce(p->reduce_comm, to_send(p, i), to, (size_t)own.count, t, COMM_SUM, p->reduce_stream);
        else if (p->received)
            reduce_by_copies(p, to_send(p, i), to, own.count, t);
        else
            comm_reduce_scatter(p->reduce_comm, to_send(p, i), to, (size_t)own.count, t, COMM_SUM, p->reduce_stream);
        if (!p->first_batch)
            p->m.add(p->m.user, sums, to, own.count, p->reduce_stream);
        if (p->replica_comm && p->last_batch)
            sum_replicas(p, own);
    } else if (p->s->reduce == REDUCE_SCATTER && !is_whole(p, i)) {
        comm_reduce_scatter(p->reduce_comm, grads, parallel_at(arena, t, own.first), (size_t)own.count, t, COMM_SUM,
                            p->reduce_stream);
    } else {
        comm_all_reduce(p->reduce_comm, grads, grads, (size_t)b.count, t, COMM_SUM, p->reduce_stream);
    }
}

void parallel_reduce(parallel *p, int first, int count)
{
    for (int i = first; i < first + count && !p->communicating && p->produced_grads; i++)
        to_send(p, i); /* as the step that communicates */
    for (int i = first; i < first + count && !p->communicating && p->replica_comm; i++) /* the edge alone */
        device_stream_follow(p->m.d, p->replica_stream, p->reduce_stream);
    if (!p->communicating || strategy_fused(p->s))
        return;
    if (p->s->grouped)
        comm_group_begin(p->reduce_comm);
    for (int i = first; i < first + count; i++)
        reduce_bucket(p, i);
    if (p->s->grouped)
        comm_group_end(p->reduce_comm);
}

/* Tensor i of one arena of gradients to another one, on main. */
static void copy_tensor(parallel *p, void *to, void *from, int i)
{
    const comm_dtype dtype = p->m.grad_dtype;
    const int64_t first = p->plan->starts[i], count = p->plan->starts[i + 1] - first;
    device_stream_copy(p->m.d, p->m.main, parallel_at(to, dtype, first), parallel_at(from, dtype, first),
                       (size_t)count * comm_dtype_bytes(dtype));
}

void parallel_pack(parallel *p)
{
    for (int i = 0; p->s->packed && i < p->plan->tensors; i++)
        copy_tensor(p, p->copy, p->m.grad, i);
}

void parallel_unpack(parallel *p, int64_t from, int64_t to)
{
    for (int i = 0; p->s->packed && i < p->plan->tensors; i++)
        if (p->plan->starts[i] >= from && p->plan->starts[i] < to)
            copy_tensor(p, p->m.grad, p->copy, i);
}

/* ---- norms ---- */

/* The norms of what this rank counts, and then of all ranks that together hold the model once. */
void parallel_norms(parallel *p)
{
    const parallel_plan *plan = p->plan;
    for (int i = 0; i < plan->norms; i++) {
        const owned_range *r = &plan->normed[i];
        p->m.norm(p->m.user, r->first, r->count, r->state_first, p->norms + i, p->m.main);
    }
    if (!p->norm_comm || !p->communicating) {
        p->m.norms(p->m.user, p->norms, p->most_norms, p->m.main);
        return;
    }
    device_stream_follow(p->m.d, p->reduce_stream, p->m.main);
    comm_all_gather(p->norm_comm, p->norms, p->all_norms, (size_t)p->most_norms, COMM_FP32, p->reduce_stream);
    parallel_record(p, p->reduce_stream, &p->normed);
    parallel_main_waits(p, p->normed, WAIT_TAIL);
    p->m.norms(p->m.user, p->all_norms, p->most_norms * comm_size(p->norm_comm), p->m.main);
}

/* ---- parameters ---- */

static void broadcast(parallel *p)
{
    const parallel_plan *plan = p->plan;
    device_stream_follow(p->m.d, p->reduce_stream, p->m.main);
    for (int i = 0; i < plan->tensors && p->communicating; i++) {
        void *tensor = parallel_at(p->m.param, p->m.param_dtype, plan->starts[i]);
        comm_broadcast(p->reduce_comm, tensor, tensor, (size_t)(plan->starts[i + 1] - plan->starts[i]),
                       p->m.param_dtype, plan->own.owner[i], p->reduce_stream);
    }
    parallel_record(p, p->reduce_stream, &p->shared);
    parallel_main_waits(p, p->shared, WAIT_TAIL);
}

/* In the order in which the next forward needs them: the last bucket, which holds the embedding, is the first. Nobody
 * waits here: parallel_need, parallel_join and the next update do. */
static void gather(parallel *p)
{
    device_stream_follow(p->m.d, p->gather_stream, p->m.main);
    for (int i = p->plan->b.n - 1; i >= 0; i--) {
        const owned_range own = p->plan->own.r[i];
        const comm_dtype t = p->m.param_dtype;
        if (p->communicating && !is_whole(p, i))
            comm_all_gather(p->gather_comm, parallel_at(p->m.param, t, own.first),
                            parallel_at(p->m.param, t, p->plan->b.b[i].first), (size_t)own.count, t, p->gather_stream);
        parallel_record(p, p->gather_stream, &p->edges[i].gathered);
        p->edges[i].awaited = false;
    }
    p->gathering = true;
}

/* What a rank gives of a unit: parameters, or codes. */
typedef struct source {
    const void *arena;
    void *const *peers;
    comm_dtype t;
    int64_t first, count; /* elements of t */
} source;

static source params_of(const parallel *p, int unit)
{
    const owned_range own = p->plan->own.r[unit];
    return (source){p->m.param, p->peers, p->m.param_dtype, own.state_first, own.count};
}

/* Codes travel as words of four: slices are multiples of more. */
static source codes_of(const parallel *p, int unit)
{
    const owned_range own = p->plan->own.r[unit], first = p->plan->own.r[p->m.codes_first];
    return (source){p->m.codes, p->code_peers, COMM_INT32, (own.state_first - first.state_first) / 4, own.count / 4};
}

/* The slices of a unit lie at the same place on every rank. Nothing is waited for but the other ranks' last update, once
 * a step: a rank updates a slice only when the gradients of its unit have been reduced, to which every rank gives its
 * own after it has read the slice for the last time. */
static void read_slices(parallel *p, const source *x, void *to)
{
    const parallel_plan *plan = p->plan;
    const size_t bytes = (size_t)x->count * comm_dtype_bytes(x->t);
    const int first = plan->rank - plan->slice; /* those of a replica are neighbours */
    const void *slices[SB_DIRECT_RANKS_MAX] = {NULL};
    if (!p->ranks_updated)
        comm_barrier(p->gather_comm, p->gather_stream);
    p->ranks_updated = true;
    for (int r = 0; r < plan->slices; r++)
        slices[r] = parallel_at(x->peers[first + r], x->t, x->first);
    if (plan->o.gather == GATHER_KERNEL) {
        peer_all_gather(p->l, plan->slice, plan->slices, slices, to, bytes, plan->o.max_ctas, p->gather_stream);
        return;
    }
    for (int k = 0; k < plan->slices; k++) { /* no two ranks begin with the same one */
        const int r = (plan->slice + k) % plan->slices;
        device_stream_copy(p->m.d, p->gather_stream, parallel_at(to, x->t, r * x->count), slices[r], bytes);
    }
}

/* Without communication a unit is made of copies of this rank's slice: numbers of the same kind, so that what computes
 * with them takes as long and as much power. */
static void gather_unit(parallel *p, int unit, const source *x, void *to)
{
    bucket_edges *e = &p->edges[unit];
    const void *slice = parallel_at((void *)x->arena, x->t, x->first);
    device_stream_follow(p->m.d, p->gather_stream, p->m.main);
    const bool sent = p->communicating && !is_whole(p, unit);
    if (sent && x->peers)
        read_slices(p, x, to);
    else if (sent)
        comm_all_gather(p->gather_comm, slice, to, (size_t)x->count, x->t, p->gather_stream);
    for (int r = 0; r < (is_whole(p, unit) ? 1 : p->plan->slices) && !sent; r++)
        device_stream_copy(p->m.d, p->gather_stream, parallel_at(to, x->t, r * x->count), slice,
                           (size_t)x->count * comm_dtype_bytes(x->t));
    parallel_record(p, p->gather_stream, &e->gathered);
    e->gathers++;
}

void parallel_gather_params(parallel *p, int unit, void *to)
{
    const source x = params_of(p, unit);
    gather_unit(p, unit, &x, to);
}

void parallel_gather(void *user, int unit, void *to)
{
    parallel *p = user;
    const bool codes = p->m.codes && unit >= p->m.codes_first && unit < p->m.codes_end;
    const source x = codes ? codes_of(p, unit) : params_of(p, unit);
    gather_unit(p, unit, &x, to);
}

void parallel_agree(void *user, const void *own, void *all, size_t words)
{
    parallel *p = user;
    if (!p->communicating)
        return;
    comm *slices = p->gather_comm ? p->gather_comm : p->reduce_comm;
    void *stream = p->gather_comm ? p->gather_stream : p->reduce_stream;
    device_stream_follow(p->m.d, stream, p->m.main);
    comm_all_reduce(p->all ? p->all : slices, own, all, words, COMM_INT32, COMM_MAX, stream);
    parallel_record(p, stream, &p->agreed);
    parallel_main_waits(p, p->agreed, WAIT_GATHER);
}

void parallel_share(parallel *p)
{
    if (p->s->share == SHARE_BROADCAST)
        broadcast(p);
    if (p->s->share == SHARE_GATHER)
        gather(p);
}
