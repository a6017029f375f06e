/* SPDX-License-Identifier: MIT */
/* FlashAttention forward for Hopper: the producer, which gives out jobs and loads their tiles, and what it needs. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_FORWARD_LOADS_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_FORWARD_LOADS_CUH

#include "kernels/cuda/attention/hopper/forward/layout.cuh"
#include "kernels/cuda/hopper/store.cuh"

namespace flash_sm90
{

/* One thread: the barriers of the block. */
template <class MEM, int GROUPS>
__device__ __forceinline__ void forward_init(const forward_params &p, const forward_barriers &bar)
{
    tma_prefetch(&p.q_map);
    tma_prefetch(&p.k_map);
    tma_prefetch(&p.v_map);
    for (int s = 0; s < 2; s++) {
        mbarrier_init(bar.q_full(s), 1);
        mbarrier_init(bar.job_full(s), 1);
        mbarrier_init(bar.q_empty(s), 4 * GROUPS); /* one arrival a consumer warp */
        mbarrier_init(bar.job_empty(s), 4 * GROUPS);
    }
    for (int s = 0; s < MEM::STAGES; s++) {
        mbarrier_init(bar.k_full(s), 1);
        mbarrier_init(bar.v_full(s), 1);
        mbarrier_init(bar.k_empty(s), 4 * GROUPS);
        mbarrier_init(bar.v_empty(s), 4 * GROUPS);
    }
    mbarrier_init_fence();
}

/* One thread: gives out the block's jobs and loads their tiles. V runs one block behind K, as the consumers do. */
template <class MEM, int BN, bool CAUSAL>
__device__ __forceinline__ void forward_produce(const forward_params &p, const forward_barriers &bar, uint32_t base,
                                                volatile forward_job *slots, int split, int rank)
{
    using tile_q = typename MEM::tile_q;
    using tile_kv = typename MEM::tile_kv;
    ring<MEM::Q_STAGES> q;
    ring<MEM::STAGES> k, v;
    ring<2> turn;
    for (int number = blockIdx.x / split;; turn.next()) {
        const forward_job job = forward_decode<MEM::ROWS, BN, CAUSAL>(p, number, split, rank);
        mbarrier_wait(bar.job_empty(turn.slot), turn.parity ^ 1);
        volatile forward_job &slot = slots[turn.slot];
        slot.bh = job.bh, slot.b = job.b, slot.h = job.h, slot.row_first = job.row_first;
        slot.block_begin = job.block_begin, slot.block_end = job.block_end;
        mbarrier_arrive(bar.job_full(turn.slot));
        if (job.bh < 0)
            break;
        wait_for_previous_kernel(); /* only now: what came before ran under its end */
        if (job.block_begin < job.block_end) {
            mbarrier_wait(bar.q_empty(q.slot), q.parity ^ 1);
            mbarrier_expect(bar.q_full(q.slot), tile_q::BYTES);
            load_tile<tile_q>(base + MEM::Q + q.slot * tile_q::BYTES, &p.q_map, bar.q_full(q.slot), job.row_first,
                              job.h, job.b, p.batch);
            q.next();
        }
        for (int j = job.block_end - 1; j >= job.block_begin - 1; j--) {
            if (j >= job.block_begin) {
                mbarrier_wait(bar.k_empty(k.slot), k.parity ^ 1);
                mbarrier_expect(bar.k_full(k.slot), tile_kv::BYTES);
                load_tile<tile_kv>(base + MEM::K + k.slot * tile_kv::BYTES, &p.k_map, bar.k_full(k.slot), j * BN,
                                   job.h_kv, job.b, p.batch);
                k.next();
            }
            if (j < job.block_end - 1) {
                mbarrier_wait(bar.v_empty(v.slot), v.parity ^ 1);
                mbarrier_expect(bar.v_full(v.slot), tile_kv::BYTES);
                load_tile<tile_kv>(base + MEM::V + v.slot * tile_kv::BYTES, &p.v_map, bar.v_full(v.slot), (j + 1) * BN,
                                   job.h_kv, job.b, p.batch);
                v.next();
            }
        }
        /* not earlier: whoever asks late takes the shorter job. A cluster has one job. */
        number = split > 1 ? INT_MAX : gridDim.x + (int)atomicAdd(p.next_job, 1);
    }
    if (split == 1 && atomicAdd(p.next_job + 1, 1) == gridDim.x - 1) { /* the last one leaves them zero */
        p.next_job[0] = 0;
        p.next_job[1] = 0;
    }
}

/* Q of a warp's 16 rows as operands: 16 columns a step. rows: address of the warpgroup's 64 rows. */
template <class TILE, int STEPS>
__device__ __forceinline__ void load_queries(uint32_t (&a)[STEPS][4], uint32_t rows)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        load_matrix4(rows + k / 4 * TILE::PANEL_BYTES + row * ROW_BYTES + ((k % 4 * 2 + lane / 16) ^ row % 8) * 16,
                     a[k]);
}

} // namespace flash_sm90
#endif
