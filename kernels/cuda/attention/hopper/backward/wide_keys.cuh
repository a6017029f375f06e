/* SPDX-License-Identifier: MIT */
/* A key group of the wide backward: 64 keys, their dK and dV, and its half of dQ; see wide.cuh. The pair
 * backward's group is made of its parts. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_KEYS_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_KEYS_CUH

#include "kernels/cuda/attention/hopper/backward/pointwise.cuh"
#include "kernels/cuda/attention/hopper/backward/wide_products.cuh"

namespace flash_sm90
{

enum { DS_BARRIER = 1 };

template <class T, int PLANES, int D, int BM, bool CAUSAL>
struct backward_keys {
    using mem = backward_memory<PLANES, D, BM>;
    using tile_kv = typename mem::tile_kv;
    using tile_q = typename mem::tile_q;
    using tile_ds = typename mem::tile_ds;
    const backward_params &p;
    const backward_block<mem> block;
    const int wg, warp, steps, key_end; /* keys of the tile end before key_end */
    backward_step at;                   /* where the step is; asked for early, for the reason that query_numbers has */
    query_numbers<BM / 2> lse2, delta;
    float s[BM / 2], dp[BM / 2], dk[D / 2], dv[D / 2];

    __device__ __forceinline__ backward_keys(const backward_params &params, backward_block<mem> shared, int group)
        : p(params), block(shared), wg(group), warp(uniform(threadIdx.x % 128 / 32)), steps(uniform(block.job().steps)),
          key_end((uniform(block.job().key_tile) + 1) * BACKWARD_KEYS)
    {
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            dk[i] = dv[i] = 0;
    }

    __device__ __forceinline__ const volatile backward_job &job() const
    {
        return block.job();
    }
    __device__ __forceinline__ static int lane()
    {
        return lane_asked();
    }
    /* First query of each pair that this thread holds. */
    __device__ __forceinline__ static int column()
    {
        return 2 * (lane() % 4);
    }
    __device__ __forceinline__ int key() const
    { /* and + 8 */
        return job().key_tile * BACKWARD_KEYS + wg * 64 + warp * 16 + lane() / 4;
    }
    __device__ __forceinline__ static void arrive(uint32_t barrier)
    {
        mbarrier_arrive_by_warp(barrier);
    }

    __device__ __forceinline__ void start_scores(int step)
    {
        mbarrier_wait(block.q_full(step), block.parity(step));
        wgmma_fence();
        mma_abt<T, tile_kv, tile_q, BM, D>(s, block.base + mem::K + wg * 64 * ROW_BYTES, block.q_tile(step));
        wgmma_commit();
    }
    __device__ __forceinline__ void start_dp(int step)
    {
        mbarrier_wait(block.do_full(step), block.parity(step));
        wgmma_fence();
        mma_abt<T, tile_kv, tile_q, BM, D>(dp, block.base + mem::V + wg * 64 * ROW_BYTES, block.do_tile(step));
        wgmma_commit();
    }
    __device__ __forceinline__ void start_dq(float (&dq)[mem::DQ], int step)
    {
        wgmma_fence();
        if constexpr (mem::DQ_ROWS) {
            mma_dq_rows<T, tile_ds, D / 2>(dq, block.ds_tile(step), block.base + (wg == 0 ? mem::K : mem::K2), 0);
        } else {
            mma_dq<T, tile_kv, tile_ds, 2 * mem::DQ>(
                dq, block.base + mem::K + (mem::DQ_BY_D ? wg * tile_kv::PANEL_BYTES : 0),
                block.ds_tile(step) + (mem::DQ_BY_D ? 0 : wg * (BM / 2) * ROW_BYTES));
        }
        wgmma_commit();
    }

    /* Whether lse2 is loaded before the wait for S, and delta before that for dP. (At head_dim 64 and in fp32 it gains nothing,
     * and one head of S 16384, D 64 loses 3 %.) */
    static constexpr bool LOAD_EARLY = mem::DQ_ROWS;
    __device__ __forceinline__ void load_step(int step)
    {
        const volatile backward_step &slot = block.step_slot(step);
        at = {read_uniform(slot.first_query), read_uniform(slot.place)};
    }
    __device__ __forceinline__ void load_lse(int step)
    {
        lse2.load((const float *)(block.smem + block.lse(step)) + 2 * column());
    }
    __device__ __forceinline__ void load_delta(int step)
    {
        delta.load((const float *)(block.smem + block.delta(step)) + 2 * column());
    }

    /* s: scores to P; a score that a query must not see gives 0. */
    __device__ __forceinline__ void probabilities(int step, int first_query)
    {
        if (!LOAD_EARLY)
            load_lse(step);
        scores_to_exponents(s, lse2, p.scale_log2);
        if (LOAD_EARLY)
            load_delta(step);
        exponentials(s);
        if (key_end > p.seq_k || (CAUSAL && key_end - 1 > first_query + p.seq_k - p.seq_q))
            mask(first_query);
    }
    __device__ __forceinline__ void mask(int first_query)
    {
        int limit[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int k = key() + 8 * r;
            limit[r] = k >= p.seq_k ? BM : CAUSAL ? k - p.seq_k + p.seq_q - first_query - column() : 0;
        }
        mask_queries(s, limit);
    }
    /* dp: to dS. */
    __device__ __forceinline__ void gradient(int step)
    {
        if (!LOAD_EARLY)
            load_delta(step);
        to_score_gradient(dp, s, delta);
    }
    /* dS^T fragments to dS[query][key] by transposing stores. */
    __device__ __forceinline__ void store_ds(const uint32_t (&ds)[PLANES][BM / 4], int step)
    {
        const uint32_t to = block.ds_tile(step) + wg * tile_ds::PANEL_BYTES + transposed_place(warp, lane_asked());
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++)
#pragma unroll
            for (int k = 0; k < BM / 16; k++)
                store_matrix4_transposed(to + plane * tile_ds::PLANE_BYTES + k * 16 * ROW_BYTES, ds[plane][4 * k],
                                         ds[plane][4 * k + 1], ds[plane][4 * k + 2], ds[plane][4 * k + 3]);
    }

    /* Where this thread's part of a query block's dQ lies, and an addition to it. */
    __device__ __forceinline__ float *sum_at(int place, int half) const
    {
        return p.dq_sum + ((int64_t)place * 2 + half) * (mem::DQ * 128) + (warp * 32 + lane_asked()) * 4;
    }
    __device__ __forceinline__ static void add_to(float *sum, const float (&dq)[mem::DQ])
    {
#pragma unroll
        for (int j = 0; j < mem::DQ / 4; j++)
            add_global4(sum + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    }
    /* A step's share of dQ to its half of the sum, when its turn has come. Rows of d of dQ^T past head_dim are left out. */
    __device__ __forceinline__ void add_dq(const float (&dq)[mem::DQ], int step, int place, int half)
    {
        if (p.turn)
            mbarrier_wait(block.turn_here(step), block.turn_parity(step));
        if (mem::DQ_ROWS || (mem::DQ_BY_D ? half * 64 : 0) + warp * 16 < p.head_dim) {
            float *const sum = sum_at(place < 0 ? ~place : place, half);
            if (place < 0) { /* the first to come */
#pragma unroll
                for (int j = 0; j < mem::DQ / 4; j++)
                    *(float4 *)(sum + j * 512) = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
            } else {
                add_to(sum, dq);
            }
        }
        if (p.turn)
            arrive(block.added(step)); /* this warp has added */
    }

    __device__ __forceinline__ void start_dv(uint32_t (&prob)[1][BM / 4], int step)
    {
        pin(prob[0]);
        wgmma_fence();
        mma_rs<T, tile_q, D>(dv, prob, block.do_tile(step), 1);
        wgmma_commit();
    }
    __device__ __forceinline__ void start_dk(uint32_t (&ds)[1][BM / 4], int step)
    {
        pin(ds[0]);
        wgmma_fence();
        mma_rs<T, tile_q, D>(dk, ds, block.q_tile(step), 1);
        wgmma_commit();
    }

    /* All steps. */
    __device__ __forceinline__ void run()
    {
        for (int step = 0; step < steps; step++) {
            uint32_t prob[PLANES][BM / 4], ds[PLANES][BM / 4];
            float dq[mem::DQ];
            start_scores(step);
            start_dp(step);
            load_step(step);
            if (LOAD_EARLY)
                load_lse(step);
            wgmma_wait<1>();
            pin(s);
            probabilities(step, at.first_query);
            to_operand<T, PLANES, BM / 4>(prob, s);
            if constexpr (LOAD_EARLY)
                pin(prob[0]); /* not later, when dP is waited for */
            wgmma_wait<0>();
            pin(dp);
            gradient(step);
            to_operand<T, PLANES, BM / 4>(ds, dp);
            store_ds(ds, step);
            fence_async_proxy();
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++)
                pin(prob[plane]), pin(ds[plane]);
            if constexpr (PLANES == 1)
                start_dv(prob, step);
            else
                mma_rs_rounded<T, tile_q>(dv, prob, block.do_tile(step));
            named_sync(DS_BARRIER, 256); /* both groups' keys of dS are there, and both are done with the other slot */
            start_dq(dq, step);
            if constexpr (PLANES == 1) {
                start_dk(ds, step);
                wgmma_wait<1>();
                pin(dv);
            } else {
                mma_rs_rounded<T, tile_q>(dk, ds, block.q_tile(step)); /* waits for dQ, too */
            }
            pin(dq);
            add_dq(dq, step, at.place, wg);
            if constexpr (PLANES == 1) {
                wgmma_wait<0>();
                pin(dk);
            }
            arrive(block.empty(step));
        }
    }
};

} // namespace flash_sm90
#endif
