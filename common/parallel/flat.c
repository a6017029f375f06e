/* SPDX-License-Identifier: MIT */
/* One all-reduce for all gradients, after backward: in place, since they lie side by side; or on a second buffer, into
 * which every tensor is copied before and from which it is copied back, as where each tensor has memory of its own. */
#include "common/parallel/internal.h"

static void cut(parallel_plan *plan, const index_space *s, int64_t cap)
{
    (void)cap;
    plan->b = buckets_whole(s);
    plan->own = own_all(s);
}

static void reduce_copy(parallel *p, int first, int count)
{
    (void)first, (void)count;
    comm_all_reduce(p->comm, p->copy, p->copy, (size_t)p->plan->elements, p->m.grad_dtype, COMM_SUM, p->stream);
}

static void pack(parallel *p)
{
    for (int i = 0; i < p->plan->tensors; i++)
        parallel_copy(p, p->copy, p->m.grad, i);
}

static void unpack(parallel *p)
{
    for (int i = 0; i < p->plan->tensors; i++)
        parallel_copy(p, p->m.grad, p->copy, i);
}

const strategy strategy_flat = {.cut = cut, .reduce = parallel_all_reduce};
const strategy strategy_flat_copy = {
    .cut = cut, .reduce = reduce_copy, .pack = pack, .unpack = unpack, .has_copy = true};
