/* SPDX-License-Identifier: MIT */
/* One all-reduce for each tensor, after backward; or all of them in one group, which is one launch. */
#include "common/parallel/internal.h"

static void cut(parallel_plan *plan, const index_space *s, int64_t cap)
{
    (void)cap;
    plan->b = buckets_by_tensor(s);
    plan->own = own_all(s);
}

static void reduce_grouped(parallel *p, int first, int count)
{
    comm_group_begin(p->comm);
    parallel_all_reduce(p, first, count);
    comm_group_end(p->comm);
}

const strategy strategy_naive = {.cut = cut, .reduce = parallel_all_reduce};
const strategy strategy_naive_grouped = {.cut = cut, .reduce = reduce_grouped, .at_once = true};
