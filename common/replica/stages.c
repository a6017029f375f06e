/* SPDX-License-Identifier: MIT */
/* Layers to stages, and a rank's share of a pipeline's table as the table of its step; see stages.h. */
#include "common/replica/stages.h"

#include <stdlib.h>

#include "common/core/error.h"

void stages_even(const pipeline_shape *s, int layers, int *ends)
{
    const int n = pipeline_stages(s);
    for (int i = 0; i < n; i++)
        ends[i] = (int)((int64_t)layers * (i + 1) / n);
}

/* What a rank has to do with blocks[i] blocks in stage i. */
static double cost_of(const pipeline_shape *s, const stage_costs *c, const int *blocks, int rank)
{
    double sum = 0;
    for (int k = 0; k < s->chunks; k++) {
        const int stage = pipeline_stage(s, rank, k);
        sum += blocks[stage] * c->block + (stage == 0 ? c->embedding : 0) +
               (stage == pipeline_stages(s) - 1 ? c->head : 0);
    }
    return sum;
}

/* Blocks cost the same, so each next one goes to the rank that has least to do, into its smallest stage. */
void stages_balanced(const pipeline_shape *s, int layers, const stage_costs *costs, int *ends)
{
    const int n = pipeline_stages(s);
    for (int i = 0; i < n; i++)
        ends[i] = 1;
    for (int placed = n; placed < layers; placed++) {
        int rank = 0, stage = -1;
        for (int r = 1; r < s->ranks; r++)
            if (cost_of(s, costs, ends, r) < cost_of(s, costs, ends, rank))
                rank = r;
        for (int k = 0; k < s->chunks; k++)
            if (stage < 0 || ends[pipeline_stage(s, rank, k)] < ends[stage])
                stage = pipeline_stage(s, rank, k);
        ends[stage]++;
    }
    for (int i = 1; i < n; i++)
        ends[i] += ends[i - 1];
}

int stages_front(const pipeline_shape *s, const int *ends, int layer)
{
    int front = 0;
    while (ends[front] != layer && front < pipeline_stages(s) - 1)
        front++;
    return front;
}

step_table *stages_table(const pipeline_table *t, const int *ends, int rank)
{
    const pipeline_shape *s = &t->shape;
    step_table *out = xcalloc(1, sizeof *out);
    model_part *parts = xcalloc((size_t)s->chunks, sizeof *parts);
    step_action *actions = xcalloc((size_t)t->count, sizeof *actions);
    static const step_work work[] = {[PIPELINE_F] = STEP_F, [PIPELINE_B] = STEP_B, [PIPELINE_W] = STEP_W};
    for (int k = 0; k < s->chunks; k++) {
        const int stage = pipeline_stage(s, rank, k);
        parts[k] = (model_part){.first = stage ? ends[stage - 1] : 0,
                                .end = ends[stage],
                                .embedding = stage == 0,
                                .head = stage == pipeline_stages(s) - 1};
    }
    for (int i = 0; i < t->count; i++) {
        const pipeline_action a = pipeline_actions(t, rank)[i];
        actions[i] = (step_action){work[a.kind], a.micro, a.chunk};
    }
    *out = (step_table){parts, s->chunks, actions, t->count};
    return out;
}

void stages_table_free(step_table *t)
{
    if (!t)
        return;
    free((void *)t->parts);
    free((void *)t->actions);
    free(t);
}
