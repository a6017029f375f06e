/* SPDX-License-Identifier: MIT */
/* What a rank of a mesh holds; see mesh.h. The rank that holds most is the first of a pipeline, which has the embedding and the
 * most micro-batches in flight, or the one with the head. */
#include <math.h>

#include "common/formulas/mesh/layer.h"

double mesh_block_parameters(const mesh_job *j)
{
    const double d = (double)j->d_model, kv = mesh_kv_columns(j, 1);
    return 2 * d * d + 2 * d * kv + j->matrices * d * (double)j->d_ff;
}

/* Bytes that a block keeps of a micro-batch. */
static double kept(const mesh_job *j, const mesh_plan *p, mesh_recompute r)
{
    const int t = p->axes.tp;
    const double d = (double)j->d_model / t, kv = mesh_kv_columns(j, t), f = (double)j->d_ff / t;
    const double rows = mesh_rows(j, p), all = 6 * d + 2 * kv + j->matrices * f;
    const double elements[] = {[MESH_KEEP] = all,
                               [MESH_SELECTIVE] = all - 2 * d - (j->matrices == 3 ? f : 0),
                               [MESH_HALF] = 0.7 * all,
                               [MESH_BUT_ATTENTION] = 3 * d,
                               [MESH_BLOCK] = d};
    return 2 * rows * elements[r] + (r == MESH_BLOCK ? 0 : 4 * rows * (double)j->heads / t);
}

/* Micro-batches of all of a rank's layers whose activations the first rank holds at once. */
static double in_flight(const mesh_job *j, const mesh_plan *p)
{
    const int micros = (int)(j->global_batch / ((int64_t)p->axes.dp_replicate * p->axes.dp_shard * p->micro_batch));
    if (!p->schedule)
        return 1;
    const pipeline_shape s = {p->schedule, p->axes.pp, p->chunks, micros};
    return (double)pipeline_bound(&s, 0) / p->chunks;
}

mesh_bytes mesh_memory(const mesh_job *j, const mesh_plan *p)
{
    const int pp = p->axes.pp, t = p->axes.tp;
    const double layers = ceil((double)j->layers / pp), block = mesh_block_parameters(j) / t;
    const double ends = (double)j->vocab * (double)j->d_model / t;
    const double held = layers * block + (pp == 1 || (p->schedule && p->schedule->there_and_back) ? 2 : 1) * ends;
    const double shards = p->axes.dp_shard * p->axes.cp;
    const bool whole_params = p->strategy < MESH_FSDP_KEEP, whole_grads = p->strategy < MESH_ZERO2;
    mesh_bytes b = {.params = j->param * held / (whole_params ? 1 : shards),
                    .grads = j->grad * held / (whole_grads ? 1 : shards),
                    .state = j->state * held / (p->strategy == MESH_DDP ? 1 : shards),
                    .activations = in_flight(j, p) * layers * kept(j, p, p->recompute),
                    .logits = 2 * mesh_rows(j, p) * (double)j->vocab / t};
    if (p->recompute != MESH_KEEP)
        b.activations += kept(j, p, MESH_KEEP); /* the block that is being computed again */
    if (!whole_params && shards > 1)
        b.gathered =
            j->param * (p->strategy == MESH_FSDP_KEEP ? held : 2 * fmax(block, ends)) + j->grad * fmax(block, ends);
    else if (!whole_grads && shards > 1)
        b.gathered = 2 * j->grad * fmax(block, ends);
    b.total = b.params + b.grads + b.state + b.activations + b.gathered + b.logits;
    return b;
}
