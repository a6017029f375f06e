/* SPDX-License-Identifier: MIT */
/* One all-reduce for each tensor, as soon as its gradient is ready. */
#include "common/parallel/internal.h"

static void cut(parallel_plan *plan, const index_space *s, int64_t cap)
{
    (void)cap;
    plan->b = buckets_by_tensor(s);
    plan->own = own_all(s);
}

const strategy strategy_overlap = {.cut = cut, .reduce = parallel_all_reduce, .in_backward = true};
