/* SPDX-License-Identifier: MIT */
/* Each rank holds the optimizer's state of its part alone, updates that, and gives the parameters to the others.
 *
 * zero1-broadcast: gradients are summed for everyone; a part is whole tensors, broadcast by their owners at the end.
 * zero1: a part is a slice of every bucket. Its gradients alone are summed (half the bytes of an all-reduce), and the
 * parameters are gathered on a second communicator in the order in which the next forward needs them, hidden under it:
 * the last bucket, which holds the embedding, is the first. */
#include "common/parallel/internal.h"

/* ---- whole tensors ---- */

static void cut_tensors(parallel_plan *plan, const index_space *s, int64_t cap)
{
    plan->b = buckets_by_size(s, cap);
    plan->own = own_tensors(s, plan->rank, plan->o.ranks);
    plan->sharded = true;
}

static void broadcast(parallel *p)
{
    const parallel_plan *plan = p->plan;
    parallel_follow(p, p->stream, p->m.main, &p->to_share);
    for (int i = 0; i < plan->tensors && p->communicating; i++) {
        void *tensor = parallel_at(p->m.param, p->m.param_dtype, plan->starts[i]);
        comm_broadcast(p->comm, tensor, tensor, (size_t)(plan->starts[i + 1] - plan->starts[i]), p->m.param_dtype,
                       plan->own.owner[i], p->stream);
    }
    parallel_record(p, p->stream, &p->shared);
    parallel_main_waits(p, p->shared);
}

/* ---- slices ---- */

static void cut_slices(parallel_plan *plan, const index_space *s, int64_t cap)
{
    plan->b = buckets_by_size(s, cap);
    buckets_align(&plan->b, plan->o.ranks);
    plan->own = own_slices(&plan->b, plan->rank, plan->o.ranks);
    plan->sharded = true;
}

static void reduce_scatter(parallel *p, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        const owned_range own = p->plan->own.r[i];
        comm_reduce_scatter(p->comm, parallel_at(p->m.grad, p->m.grad_dtype, p->plan->b.b[i].first),
                            parallel_at(p->m.grad, p->m.grad_dtype, own.first), (size_t)own.count, p->m.grad_dtype,
                            COMM_SUM, p->stream);
    }
}

/* Nobody waits here: parallel_need, parallel_join and the next update do. */
static void all_gather(parallel *p)
{
    parallel_follow(p, p->second_stream, p->m.main, &p->to_share);
    for (int i = p->plan->b.n - 1; i >= 0; i--) {
        const owned_range own = p->plan->own.r[i];
        if (p->communicating)
            comm_all_gather(p->second, parallel_at(p->m.param, p->m.param_dtype, own.first),
                            parallel_at(p->m.param, p->m.param_dtype, p->plan->b.b[i].first), (size_t)own.count,
                            p->m.param_dtype, p->second_stream);
        parallel_record(p, p->second_stream, &p->edges[i].gathered);
        p->edges[i].awaited = false;
    }
    p->gathering = true;
}

const strategy strategy_zero1_broadcast = {
    .cut = cut_tensors, .reduce = parallel_all_reduce, .share = broadcast, .in_backward = true, .has_cap = true};
const strategy strategy_zero1 = {.cut = cut_slices,
                                 .reduce = reduce_scatter,
                                 .share = all_gather,
                                 .in_backward = true,
                                 .has_cap = true,
                                 .has_slices = true,
                                 .has_second = true};
