/* SPDX-License-Identifier: MIT */
/* Fused updates: sum, AdamW and sharing of a slice; see parallel.h and kernels/shared/direct_adamw.h. Two gates keep the ranks
 * apart: one before each update, when all have made the bucket's gradients and read its weights for the last time, and
 * one behind the last update, before anybody reads parameters or writes gradients. A gate is a kernel of one warp on a
 * stream of its own, so that nothing that waits takes room from the backward, and the link has work while the next gate
 * is waited for. */
#include <stdio.h>
#include <stdlib.h>

#include "common/comm/peer.h"
#include "common/parallel/internal.h"
#include "common/record/nvtx.h"
#include "common/record/record.h"

_Static_assert((int)PARALLEL_PEERS_MAX == (int)SB_DIRECT_RANKS_MAX, "a fused update has room for all peers");

static bool on_gpu(const parallel *p)
{
    return device_kind_of(p->m.d) == DEVICE_CUDA;
}

bool parallel_fused_open(parallel *p, char *why, size_t why_bytes)
{
    char reason[256] = "";
    if (!on_gpu(p) || p->plan->o.ranks == 1)
        return true;
    mesh_group g = parallel_plan_group(p->plan, launch_rank(p->l), MESH_DATA);
    p->gates = peers_open(p->l, p->m.d, g.ranks, g.count, 0, reason, sizeof reason);
    if (p->gates)
        p->all_grads = peer_memory_open(p->l, p->m.d, g.ranks, g.count, p->m.grad, reason, sizeof reason);
    if (p->all_grads)
        p->all_params = peer_memory_open(p->l, p->m.d, g.ranks, g.count, p->m.param, reason, sizeof reason);
    mesh_group_free(&g);
    if (p->all_params)
        return true;
    snprintf(why, why_bytes, "'%s' works in the memory of all ranks' GPUs: %s", p->plan->o.strategy, reason);
    peer_memory_close(p->all_grads);
    peers_close(p->gates);
    p->all_grads = NULL;
    p->gates = NULL;
    return false;
}

void parallel_fused_close(parallel *p)
{
    const bool member = p->plan->rank < p->plan->o.ranks;
    if (!p->gates)
        return;
    if (member)
        parallel_meet(p, p->reduce_comm, p->reduce_stream); /* none may still be at work where another unmaps */
    peer_memory_close(p->all_params);
    peer_memory_close(p->all_grads);
    peers_unmap(p->gates);
    if (member)
        parallel_meet(p, p->reduce_comm, p->reduce_stream); /* nor have mapped what another frees */
    peers_free(p->gates);
    p->gates = NULL;
}

void parallel_fused_gate(parallel *p)
{
    if (p->gates && p->communicating)
        peers_gate(p->gates, p->reduce_stream);
}

/* What a reduce-scatter and an all-gather of the whole bucket would have. */
static double bytes_of(const parallel *p, const bucket *b)
{
    return (double)b->count * (double)(comm_dtype_bytes(p->m.grad_dtype) + comm_dtype_bytes(p->m.param_dtype));
}

static void fused_on_gpu(parallel *p, int bucket, bool sums_only, int max_blocks, void *stream)
{
    const owned_range own = p->plan->own.r[bucket];
    const bool together = p->gates && p->communicating;
    void *const *grads = together ? peer_memory_at(p->all_grads) : &p->m.grad;
    void *const *params = together ? peer_memory_at(p->all_params) : &p->m.param;
    parallel_fused_update x = {.first = own.first,
                               .count = own.count,
                               .state_first = own.state_first,
                               .max_blocks = max_blocks,
                               .rank = together ? p->plan->rank : 0,
                               .ranks = together ? p->plan->o.ranks : 1,
                               .sums_only = sums_only};
    for (int r = 0; r < x.ranks; r++) {
        x.grads[r] = parallel_at(grads[r], p->m.grad_dtype, own.first);
        x.params[r] = parallel_at(params[r], p->m.param_dtype, own.first);
    }
    const record_work work = {.op = "fused_pass", .bytes = bytes_of(p, &p->plan->b.b[bucket]), .elsewhere = true};
    op_push(work.op, &work);
    p->m.fused_update(p->m.user, &x, stream);
    op_pop();
}

static void fused_on_cpu(parallel *p, int bucket, bool sums_only, int max_blocks, void *stream)
{
    const owned_range own = p->plan->own.r[bucket];
    const int64_t first = p->plan->b.b[bucket].first;
    const comm_dtype g = p->m.grad_dtype, t = p->m.param_dtype;
    if (p->communicating)
        comm_reduce_scatter(p->reduce_comm, parallel_at(p->m.grad, g, first), parallel_at(p->m.grad, g, own.first),
                            (size_t)own.count, g, COMM_SUM, stream);
    if (!sums_only)
        p->m.update(p->m.user, own.first, own.count, own.state_first, max_blocks, stream);
    if (p->communicating)
        comm_all_gather(p->reduce_comm, parallel_at(p->m.param, t, own.first), parallel_at(p->m.param, t, first),
                        (size_t)own.count, t, stream);
}

void parallel_fused_bucket(parallel *p, int bucket, bool sums_only, int max_blocks, void *stream)
{
    (on_gpu(p) ? fused_on_gpu : fused_on_cpu)(p, bucket, sums_only, max_blocks, stream);
}

void parallel_fused_end(parallel *p, void *stream)
{
    device_stream_follow(p->m.d, p->reduce_stream, stream);
    parallel_fused_gate(p);
    parallel_record(p, p->reduce_stream, &p->shared);
    parallel_main_waits(p, p->shared, WAIT_TAIL);
}
