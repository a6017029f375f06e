/* SPDX-License-Identifier: MIT */
/* The memory of a mesh by the real plan of its ranks' steps, on this device; see machine.h. */
#include <math.h>
#include <stdlib.h>

#include "bench/mesh/machine.h"
#include "bench/model/context.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/core/units.h"
#include "common/formulas/mesh/layer.h"
#include "common/replica/stages.h"
#include "common/replica/team.h"

static int64_t bytes_of(const replica_place *at, const step_options *o)
{
    return trainer_planned_bytes(at->d, at->kernels, at->ctx, o);
}

static int64_t data_bytes(const replica_place *at, step_options *o, const mesh_plan *p, const char *strategy)
{
    parallel_options to = {.strategy = text_is(strategy, "ddp") ? "bucketed" : strategy,
                           .ranks = p->axes.dp_replicate * p->axes.dp_shard * p->axes.cp,
                           .update = UPDATE_BUCKETS,
                           .micro_batches = o->micro_batches,
                           .replicas = text_is(strategy, "hsdp") ? p->axes.dp_replicate : 0};
    if (p->axes.cp > 1)
        o->context.ranks = p->axes.cp;
    o->seq /= p->axes.cp;
    if (parallel_strategy(to.strategy)->grouping == GROUP_BUCKET)
        to.bucket_bytes = 25 * (int64_t)MIB;
    else
        o->shard.ranks = to.ranks;
    o->shard.prefetch = o->shard.free_every = 1;
    return replica_planned_bytes(at, o, &to);
}

static int64_t copy_bytes(const step_options *o, int tp)
{
    params *p = params_create_split(&o->config, true, o->split_layers);
    const team_copy_bytes b = team_copy_bytes_of(o, p, tp);
    params_free(p);
    return (int64_t)(b.windows + b.scratch);
}

/* The first and the last rank differ where neighbours hold the same head. */
static int64_t tensor_bytes(const replica_place *at, step_options *o, const mesh_plan *p)
{
    int64_t most = -1;
    o->rows_apart = !p->rows_whole;
    o->windows = p->overlap && !p->rows_whole;
    o->overlap = p->beside ? OVERLAP_GRADIENTS : OVERLAP_NONE;
    for (int rank = 0; rank < p->axes.tp; rank += p->axes.tp - 1) {
        o->split_layers = (model_split){p->axes.tp, rank};
        const int64_t bytes = bytes_of(at, o);
        most = bytes > most ? bytes : most;
    }
    return most < 0 || !o->windows ? most : most + copy_bytes(o, p->axes.tp);
}

static int64_t pipeline_bytes(const replica_place *at, step_options *o, const mesh_plan *p, const mesh_job *j,
                              const mesh_rates *r, bool at_ends)
{
    const pipeline_shape shape = {p->schedule, p->axes.pp, p->chunks, o->micro_batches};
    const mesh_pass block = mesh_block(j, p, r), head = mesh_head(j, p, r);
    const stage_costs costs = {mesh_seconds_sum(&block.f) + mesh_seconds_sum(&block.b) + mesh_seconds_sum(&block.w), 0,
                               mesh_seconds_sum(&head.f) + mesh_seconds_sum(&head.b) + mesh_seconds_sum(&head.w)};
    OWNED int *ends = xcalloc((size_t)pipeline_stages(&shape), sizeof *ends);
    pipeline_table *t = pipeline_table_create(&shape, NULL);
    int64_t most = -1;
    if (p->even)
        stages_even(&shape, o->config.layers, ends);
    else
        stages_balanced(&shape, o->config.layers, &costs, ends);
    const int first = pipeline_rank(&shape, 0), last = pipeline_loss_rank(&shape);
    for (int rank = 0; rank < shape.ranks; rank++) {
        if (at_ends && rank != first && rank != last)
            continue;
        step_table *table = stages_table(t, ends, rank);
        o->table = table;
        const int64_t bytes = bytes_of(at, o);
        most = bytes > most ? bytes : most;
        stages_table_free(table);
    }
    pipeline_table_free(t);
    return most;
}

double planner_planned_bytes(session *s, const char *model, const mesh_job *j, const char *strategy, const mesh_plan *p,
                             const mesh_rates *r, bool ends)
{
    enum { RANKS_MOST = 8, MICROS_MOST = 64 }; /* planning takes time with the square of micro-batches in flight */
    const int micros = (int)(j->global_batch / ((int64_t)p->axes.dp_replicate * p->axes.dp_shard * p->micro_batch));
    const model_bench *b = s->user;
    const model_config *c = model_size_find(model);
    const replica_place at = {.d = s->dev, .mem = s->mem, .kernels = b->kernels, .ctx = b->ctx};
    step_options o = step_defaults();
    const int data = p->axes.dp_replicate * p->axes.dp_shard * p->axes.cp;
    const int axes = (p->axes.pp > 1) + (p->axes.tp > 1) + (data > 1);
    if (!c || !precision_find(planner_policy_of(j)->name) || axes > 1 || mesh_world(p->axes) > RANKS_MOST ||
        micros > MICROS_MOST)
        return NAN;
    o.config = *c;
    o.config.layers = (int)j->layers;
    o.batch = p->micro_batch;
    o.seq = (int)j->seq;
    o.precision = precision_find(planner_policy_of(j)->name);
    o.grad_fp32 = j->grad > planner_policy_of(j)->grad;
    o.micro_batches = micros;
    static const recompute ways[MESH_RECOMPUTES] = {[MESH_SELECTIVE] = RECOMPUTE_SELECTIVE,
                                                    [MESH_BUT_ATTENTION] = RECOMPUTE_BUT_ATTENTION,
                                                    [MESH_BLOCK] = RECOMPUTE_BLOCK};
    o.recompute = ways[p->recompute];
    o.fusion = FUSION_KERNELS;
    o.overlap = OVERLAP_NONE;
    const int64_t bytes = p->axes.tp > 1   ? tensor_bytes(&at, &o, p)
                          : p->axes.pp > 1 ? pipeline_bytes(&at, &o, p, j, r, ends)
                                           : data_bytes(&at, &o, p, strategy);
    return bytes < 0 ? NAN : (double)bytes;
}
