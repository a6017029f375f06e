/* SPDX-License-Identifier: MIT */
/* One all-reduce for each bucket of neighbouring tensors, as soon as the last of its gradients is ready. */
#include "common/parallel/internal.h"

static void cut(parallel_plan *plan, const index_space *s, int64_t cap)
{
    plan->b = buckets_by_size(s, cap);
    plan->own = own_all(s);
}

const strategy strategy_bucketed = {.cut = cut, .reduce = parallel_all_reduce, .in_backward = true, .has_cap = true};
