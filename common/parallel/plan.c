/* SPDX-License-Identifier: MIT */
/* The table of strategies, and what one of them means for a model that does not exist yet; see parallel.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/parallel/internal.h"

const parallel_strategy_info parallel_strategies[] = {
    {"naive", "an all-reduce for each tensor, after backward"},
    {"naive-grouped", "the same as one launch"},
    {"flat", "one all-reduce for all gradients, after backward"},
    {"flat-copy", "the same on a second buffer, into which every tensor is copied, and back"},
    {"overlap", "an all-reduce for each tensor, when its gradient is ready"},
    {"bucketed", "an all-reduce for each bucket of tensors, when it is ready"},
    {"zero1-broadcast", "bucketed; a rank updates the tensors it owns and broadcasts them"},
    {"zero1", "a reduce-scatter for each bucket; a rank updates its slices, gathered under the next forward"},
    {NULL, NULL}};

/* In the same order. */
static const strategy *const strategies[] = {&strategy_naive,           &strategy_naive_grouped, &strategy_flat,
                                             &strategy_flat_copy,       &strategy_overlap,       &strategy_bucketed,
                                             &strategy_zero1_broadcast, &strategy_zero1};
_Static_assert(sizeof strategies / sizeof *strategies + 1 == sizeof parallel_strategies / sizeof *parallel_strategies,
               "a strategy has no name, or a name no strategy");

/* The end of the table when there is none of this name. */
static const parallel_strategy_info *info_of(const char *name)
{
    const parallel_strategy_info *i = parallel_strategies;
    while (i->name && strcmp(i->name, name) != 0)
        i++;
    return i;
}

const strategy *parallel_strategy(const char *name)
{
    const parallel_strategy_info *i = info_of(name);
    return i->name ? strategies[i - parallel_strategies] : NULL;
}

update_order update_order_parse(const char *name)
{
    static const char *const names[] = {"after", "buckets", "backward"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return (update_order)i;
    die(EXIT_CODE_USAGE, "no such order of updates: %s", name);
}

int64_t parallel_granularity(int ranks)
{
    return (int64_t)BUCKET_ALIGNMENT * ranks;
}

parallel_plan *parallel_plan_create(const parallel_options *o, int rank, const index_space *s, int grad_bytes,
                                    char *why, size_t why_bytes)
{
    const parallel_strategy_info *info = info_of(o->strategy);
    const strategy *chosen = parallel_strategy(o->strategy);
    const int64_t elements = s->starts[s->tensors];
    if (s->starts[0] != 0 || o->ranks < 1 || rank < 0)
        die(EXIT_CODE_FAILURE, "bug: rank %d of %d plans an index space from %lld", rank, o->ranks,
            (long long)s->starts[0]);
    if (!chosen)
        snprintf(why, why_bytes, "there is no strategy '%s'", o->strategy);
    else if (chosen->has_cap && o->bucket_bytes < 1)
        snprintf(why, why_bytes, "a bucket of %lld bytes holds nothing", (long long)o->bucket_bytes);
    else if (chosen->has_slices && elements % parallel_granularity(o->ranks))
        snprintf(why, why_bytes, "%lld elements can't be cut in slices for %d ranks: they are no multiple of %lld",
                 (long long)elements, o->ranks, (long long)parallel_granularity(o->ranks));
    else {
        parallel_plan *p = xcalloc(1, sizeof *p);
        *p = (parallel_plan){.o = *o, .rank = rank, .elements = elements, .tensors = s->tensors};
        p->o.strategy = info->name;
        p->starts = xmalloc((unsigned long)(s->tensors + 1) * sizeof *p->starts);
        memcpy(p->starts, s->starts, (size_t)(s->tensors + 1) * sizeof *p->starts);
        const int64_t cap = o->bucket_bytes / grad_bytes;
        chosen->cut(p, s, cap > 1 ? cap : 1);
        if (rank >= o->ranks)
            p->own.n = 0, p->own.state_elements = 0;
        return p;
    }
    return NULL;
}

void parallel_plan_free(parallel_plan *p)
{
    if (!p)
        return;
    buckets_free(&p->b);
    ownership_free(&p->own);
    free(p->starts);
    free(p);
}

double parallel_wire_bytes(const parallel_plan *p, int grad_bytes, int param_bytes)
{
    const double part = (double)(p->o.ranks - 1) / p->o.ranks;
    const double grads = part * (double)p->elements * grad_bytes, params = part * (double)p->elements * param_bytes;
    if (!p->sharded)
        return 2 * grads;
    if (!p->own.owner)
        return grads + params;
    return p->o.ranks == 1 ? 0 : 2 * grads + (double)p->own.state_elements * param_bytes;
}
