/* SPDX-License-Identifier: MIT */
/* Expands a row into the actions of each rank: warm-up, then F and B in turn, then what is left; see pipeline.h. */
#include <stdlib.h>

#include "common/core/error.h"
#include "common/pipeline/internal.h"

/* The k-th forward of a rank: micro-batches come in groups of p, and each group passes all chunks. Backwards pass them from
 * the last to the first. */
static pipeline_action nth(const pipeline_shape *s, pipeline_kind kind, int k)
{
    if (s->chunks == 1)
        return (pipeline_action){kind, k, 0};
    const int p = s->ranks, group = k / (p * s->chunks), at = k % (p * s->chunks), chunk = at / p;
    return (pipeline_action){kind, group * p + at % p, kind == PIPELINE_F ? chunk : s->chunks - 1 - chunk};
}

static void generate_rank(const pipeline_shape *s, int rank, pipeline_action *to)
{
    const pipeline_schedule *row = s->schedule;
    const int all = s->micros * s->chunks, behind = row->late * rank;
    const int warm = row->warm_micros * s->micros + row->warm_ranks * (s->ranks - 1 - rank) +
                     row->warm_chunks * (s->chunks - 1) * s->ranks;
    int f = 0, w = 0;
    for (; f < warm && f < all; f++)
        *to++ = nth(s, PIPELINE_F, f);
    for (int b = 0; b < all; b++) {
        if (f < all)
            *to++ = nth(s, PIPELINE_F, f++);
        *to++ = nth(s, PIPELINE_B, b);
        if (row->split && b >= behind)
            *to++ = nth(s, PIPELINE_W, w++);
    }
    while (row->split && w < all)
        *to++ = nth(s, PIPELINE_W, w++);
}

pipeline_table *pipeline_table_create(const pipeline_shape *s, const pipeline_costs *costs)
{
    pipeline_table *t = xcalloc(1, sizeof *t);
    t->shape = *s;
    t->count = (s->schedule->split ? 3 : 2) * s->micros * s->chunks;
    t->actions = xcalloc((size_t)s->ranks * (size_t)t->count, sizeof *t->actions);
    if (s->schedule->there_and_back)
        pipeline_generate_v(t, costs);
    else
        for (int r = 0; r < s->ranks; r++)
            generate_rank(s, r, t->actions + (size_t)r * (size_t)t->count);
    return t;
}

void pipeline_table_free(pipeline_table *t)
{
    if (t)
        free(t->actions);
    free(t);
}

const pipeline_action *pipeline_actions(const pipeline_table *t, int rank)
{
    return t->actions + (size_t)rank * (size_t)t->count;
}
