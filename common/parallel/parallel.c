/* SPDX-License-Identifier: MIT */
/* The schedule of a step, the same code for all strategies: which gradients are ready, what travels and is updated when,
 * and every edge between the streams (edges.c). */
#include "common/core/error.h"
#include "common/parallel/internal.h"

static void add_producer(producers *to, void *stream)
{
    for (int i = 0; i < to->n; i++)
        if (to->stream[i] == stream)
            return;
    if (to->n == PRODUCERS)
        die(EXIT_CODE_FAILURE, "bug: more than %d streams make the gradients of a step", PRODUCERS);
    to->stream[to->n++] = stream;
}

/* ---- updates ---- */

/* All-gathers of the last step that main has not waited for read what is updated now. */
static void await_gathered(parallel *p, int i, void *stream)
{
    bucket_edges *e = &p->edges[i];
    if (!p->gathering || (stream == p->m.main && e->awaited))
        return;
    device_stream_wait(p->m.d, stream, e->gathered);
    e->awaited |= stream == p->m.main;
}

static void update_owned(parallel *p, const update_range *u, int max_blocks, void *stream)
{
    const ownership *own = &p->plan->own;
    for (int i = u->owned; i < own->n && own->r[i].first < u->to; i++) {
        const owned_range r = own->r[i];
        const int64_t first = r.first > u->from ? r.first : u->from, end = r.first + r.count;
        p->m.update(p->m.user, first, (end < u->to ? end : u->to) - first, r.state_first + first - r.first, max_blocks,
                    stream);
    }
}

static void range_update(parallel *p, const update_range *u, int max_blocks, void *stream)
{
    if (stream == p->m.main)
        parallel_main_waits(p, u->done, WAIT_TAIL);
    else
        device_stream_wait(p->m.d, stream, u->done);
    for (int i = u->first; i < u->first + u->count; i++)
        await_gathered(p, i, stream);
    parallel_unpack(p, u->from, u->to);
    if (p->order == UPDATE_AFTER && !p->plan->sharded && !p->norms && p->m.update_all) {
        p->m.update_all(p->m.user);
        return;
    }
    if (!p->update_begun && p->norms)
        parallel_norms(p);
    if (!p->update_begun)
        p->m.update_begin(p->m.user, stream);
    p->update_begun = true;
    update_owned(p, u, max_blocks, stream);
}

/* Ranges whose collectives are enqueued, on the stream beside backward. They wait for main, too: it has read their
 * weights with what is enqueued by now. */
static void update_closed(parallel *p, int max_blocks)
{
    for (; p->ranges_updated < p->ranges_closed; p->ranges_updated++) {
        update_range *u = &p->ranges[p->ranges_updated];
        for (int i = 0; i < u->made_by.n; i++)
            device_stream_follow(p->m.d, p->update_stream, u->made_by.stream[i]);
        device_stream_follow(p->m.d, p->update_stream, p->m.main);
        range_update(p, u, max_blocks, p->update_stream);
    }
}

/* ---- updates that are fused with their sums ---- */

static void range_fused_update(parallel *p, const update_range *u, int max_blocks, void *stream)
{
    if (!p->update_begun)
        p->m.update_begin(p->m.user, stream);
    p->update_begun = true;
    for (int i = u->first; i < u->first + u->count; i++)
        parallel_fused_bucket(p, i, false, max_blocks, stream);
}

/* As update_closed; and since a fused update writes the weights of all ranks, it waits for all of them. */
static void fused_closed(parallel *p, int max_blocks)
{
    for (; p->ranges_updated < p->ranges_closed; p->ranges_updated++) {
        update_range *u = &p->ranges[p->ranges_updated];
        for (int i = 0; i < u->made_by.n; i++)
            device_stream_follow(p->m.d, p->reduce_stream, u->made_by.stream[i]);
        device_stream_follow(p->m.d, p->reduce_stream, p->m.main);
        parallel_fused_gate(p);
        device_stream_follow(p->m.d, p->update_stream, p->reduce_stream);
        range_fused_update(p, u, max_blocks, p->update_stream);
    }
}

/* Main waits until all ranks have made their gradients. */
static void await_all(parallel *p)
{
    device_stream_follow(p->m.d, p->reduce_stream, p->m.main);
    parallel_fused_gate(p);
    parallel_record(p, p->reduce_stream, &p->opened);
    parallel_main_waits(p, p->opened, WAIT_TAIL);
}

static void fused_all(parallel *p)
{
    if (p->order == UPDATE_BACKWARD) {
        fused_closed(p, 0);
        parallel_fused_end(p, p->update_stream);
        return;
    }
    await_all(p);
    for (int i = 0; i < p->range_count; i++)
        range_fused_update(p, &p->ranges[i], 0, p->m.main);
    parallel_fused_end(p, p->m.main);
}

/* ---- a step ---- */

void *parallel_user(const parallel *p)
{
    return p->m.user;
}

void parallel_begin_batch(void *user, bool first, bool last)
{
    parallel *p = user;
    p->first_batch = first;
    p->last_batch = last;
    p->ready_to = 0;
    p->closed = p->ranges_closed = p->ranges_updated = 0;
    p->update_begun = false;
    p->open.n = 0;
    p->ranks_updated &= !first; /* a new step follows an update */
    p->sums = first ? 0 : p->sums;
    p->wait_count = first ? 0 : p->wait_count;
    for (int i = 0; i < p->range_count; i++)
        p->ranges[i].made_by.n = 0;
    for (int i = 0; i < p->plan->b.n && first; i++)
        p->edges[i].gathers = 0;
}

void parallel_await(void *user, int unit)
{
    parallel *p = user;
    parallel_main_waits(p, p->edges[unit].gathered, WAIT_GATHER);
}

void parallel_grads(void *user, int unit, void *from)
{
    parallel *p = user;
    p->edges[unit].grads = from;
}

void parallel_reduced(void *user, int unit)
{
    parallel *p = user;
    parallel_main_waits(p, p->edges[unit].reduced, WAIT_REDUCED);
}

void parallel_need(void *user, int64_t first, int64_t count, void *stream)
{
    parallel *p = user;
    for (int i = p->plan->b.n - 1; i >= 0 && p->gathering; i--) {
        const bucket b = p->plan->b.b[i];
        if (b.first < first + count && first < b.first + b.count)
            await_gathered(p, i, stream);
    }
}

/* Where the tensor behind `end` starts: up to there is padding. */
static int64_t next_start(const parallel_plan *plan, int64_t end)
{
    int low = 0, high = plan->tensors;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (plan->starts[middle] < end)
            low = middle + 1;
        else
            high = middle;
    }
    return plan->starts[low];
}

static void close_bucket(parallel *p, int i)
{
    update_range *u = &p->ranges[p->ranges_closed];
    for (int k = 0; k < p->open.n; k++) {
        device_stream_follow(p->m.d, p->reduce_stream, p->open.stream[k]);
        add_producer(&u->made_by, p->open.stream[k]);
    }
    parallel_reduce(p, i, 1);
    if (p->s->gradients == GRADIENTS_SLICED)
        parallel_record(p, p->reduce_stream, &p->edges[i].reduced);
    if (i + 1 < u->first + u->count)
        return;
    parallel_record(p, parallel_sums_stream(p), &u->done);
    p->ranges_closed++;
}

void parallel_ready(void *user, int64_t first, int64_t count, void *stream)
{
    parallel *p = user;
    const buckets *b = &p->plan->b;
    if (first != p->ready_to || count < 1 || first + count > p->plan->elements)
        die(EXIT_CODE_FAILURE, "bug: gradients [%lld, %lld) are ready where the next ones begin at %lld of %lld",
            (long long)first, (long long)first + (long long)count, (long long)p->ready_to,
            (long long)p->plan->elements);
    if (p->order == UPDATE_BACKWARD && p->last_batch && strategy_fused(p->s))
        fused_closed(p, p->plan->o.update_blocks ? p->plan->o.update_blocks : PARALLEL_FUSED_BLOCKS);
    else if (p->order == UPDATE_BACKWARD && p->last_batch)
        update_closed(p, p->plan->o.update_blocks);
    p->ready_to = next_start(p->plan, first + count);
    add_producer(&p->open, stream);
    if (p->s->when == WHEN_AFTER)
        return;
    while (p->closed < b->n && b->b[p->closed].first + b->b[p->closed].count <= p->ready_to) {
        close_bucket(p, p->closed++);
        p->open.n = 0; /* it waits for them, and so for what they have made of the next bucket */
    }
}

static void reduce_after_backward(parallel *p)
{
    for (int k = 0; k < p->open.n; k++)
        device_stream_follow(p->m.d, p->m.main, p->open.stream[k]);
    parallel_pack(p);
    device_stream_follow(p->m.d, p->reduce_stream, p->m.main);
    for (int i = 0; i < p->range_count; i++) {
        parallel_reduce(p, p->ranges[i].first, p->ranges[i].count);
        parallel_record(p, p->reduce_stream, &p->ranges[i].done);
    }
}

void parallel_update(void *user)
{
    parallel *p = user;
    if (p->ready_to != p->plan->elements)
        die(EXIT_CODE_FAILURE, "bug: an update after gradients up to %lld of %lld", (long long)p->ready_to,
            (long long)p->plan->elements);
    p->timing = p->instrumented;
    if (p->s->when == WHEN_AFTER)
        reduce_after_backward(p);
    if (strategy_fused(p->s)) {
        fused_all(p);
    } else if (p->order == UPDATE_BACKWARD) {
        update_closed(p, 0); /* backward is over, so there is no limit */
        parallel_main_waits(p, p->ranges[p->range_count - 1].done, WAIT_TAIL);
        device_stream_follow(p->m.d, p->m.main, p->update_stream);
    } else {
        for (int i = 0; i < p->range_count; i++)
            range_update(p, &p->ranges[i], 0, p->m.main);
    }
    parallel_share(p);
    if (p->plan->o.join)
        parallel_join(p);
    p->timing = false;
}

void parallel_join(parallel *p)
{
    if (p->gathering)
        parallel_main_waits(p, p->edges[0].gathered, WAIT_TAIL); /* the last one */
    p->gathering = false;
}

/* ---- between steps ---- */

void parallel_sync(parallel *p)
{
    if (p->s->parameters != PARAMETERS_RESIDENT)
        return; /* no rank has those of another */
    parallel_join(p);
    device_stream_follow(p->m.d, p->reduce_stream, p->m.main);
    comm_broadcast(p->reduce_comm, p->m.param, p->m.param, (size_t)p->plan->elements, p->m.param_dtype, 0,
                   p->reduce_stream);
    device_stream_follow(p->m.d, p->m.main, p->reduce_stream);
}

static void gather_between(parallel *p, int unit, void *to, void (*gather)(parallel *p, int unit, void *to))
{
    const bool communicating = p->communicating;
    const int gathers = p->edges[unit].gathers;
    p->communicating = true;
    gather(p, unit, to);
    device_stream_wait(p->m.d, p->m.main, p->edges[unit].gathered);
    p->communicating = communicating;
    p->edges[unit].gathers = gathers;
}

/* A later update may come without a reduction: it waits until all have read. */
void parallel_gather_now(parallel *p, int unit, void *to)
{
    p->ranks_updated = false;
    gather_between(p, unit, to, parallel_gather_params);
    if (!p->peers)
        return;
    comm_barrier(p->gather_comm, p->gather_stream);
    device_stream_follow(p->m.d, p->m.main, p->gather_stream);
}

void parallel_communicate(parallel *p, bool on)
{
    p->communicating = on;
}

static void gather_as_a_step(parallel *p, int unit, void *to)
{
    parallel_gather(p, unit, to);
}

/* Units are gathered as often as in the last step, and gradients are then reduced, all in one place: what lies
 * there does not matter. */
static void gather_alone(parallel *p)
{
    for (int i = 0; i < p->plan->b.n; i++) {
        const int gathers = p->s->share == SHARE_ON_USE ? p->edges[i].gathers : 0;
        for (int n = 0; n < gathers; n++)
            gather_between(p, i, p->m.scratch, gather_as_a_step);
        if (p->s->gradients == GRADIENTS_SLICED)
            p->edges[i].grads = p->m.scratch;
    }
}

/* How often each gradient is reduced in a step. */
static int reductions(const parallel *p)
{
    return p->s->gradients == GRADIENTS_SLICED && p->plan->o.micro_batches > 1 ? p->plan->o.micro_batches : 1;
}

static void fused_alone(parallel *p)
{
    await_all(p);
    for (int i = 0; i < p->plan->b.n; i++)
        parallel_fused_bucket(p, i, true, 0, p->m.main);
    parallel_fused_end(p, p->m.main);
}

void parallel_collectives_alone(parallel *p)
{
    const bool communicating = p->communicating;
    p->communicating = true;
    p->ranks_updated = false;
    p->first_batch = p->last_batch = p->timing_alone = true;
    parallel_join(p);
    if (strategy_fused(p->s)) {
        fused_alone(p);
    } else {
        gather_alone(p);
        device_stream_follow(p->m.d, p->reduce_stream, p->m.main);
        for (int batch = 0; batch < reductions(p); batch++) {
            p->last_batch = batch == reductions(p) - 1; /* replicas sum once */
            parallel_reduce(p, 0, p->plan->b.n);
        }
        device_stream_follow(p->m.d, p->m.main, parallel_sums_stream(p));
        parallel_share(p);
        parallel_join(p);
    }
    p->communicating = communicating;
    p->timing_alone = false;
}

void parallel_instrument(parallel *p, bool on)
{
    p->instrumented = on;
    p->wait_count = 0;
}

double parallel_waits_ms(parallel *p, wait_kind kind)
{
    double ms = 0;
    for (int i = 0; i < p->wait_count; i++)
        if (p->waits[i].kind == kind)
            ms += device_event_ms(p->m.d, p->waits[i].from, p->waits[i].to);
    return ms;
}
