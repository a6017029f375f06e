/* SPDX-License-Identifier: MIT */
/* A key group of the narrow backward: 64 keys, their dK and dV; see narrow.cuh.
 *
 * Between dS(j) and dS(j+1), with the products that are under way while it waits or computes:
 *   issue S(j+1) | store dS(j) | issue dK(j), dP(j+1) | wait S(j+1), dV(j) | P(j+1) | issue dV(j+1) | wait dK(j), dP(j+1)
 * Registers of a thread, of 208: S^T 32, dP^T 32, dK 32, dV 32, P and dS as operands 16 each, V 16. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_NARROW_KEYS_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_NARROW_KEYS_CUH

#include "kernels/cuda/attention/hopper/backward/narrow_layout.cuh"
#include "kernels/cuda/attention/hopper/backward/pointwise.cuh"
#include "kernels/cuda/attention/hopper/rows.cuh"

namespace flash_sm90
{

template <class T, bool CAUSAL>
struct narrow_keys {
    using mem = narrow_memory;
    const narrow_params &p;
    const narrow_block block;
    const int group; /* 0: keys 0 to 63 of the tile, 1: 64 to 127 */
    float s[32], dp[32], dk[32], dv[32];
    query_numbers<32> lse2, delta;
    uint32_t v[4][4], prob[1][16], ds[1][16];
    unsigned n, step;   /* this job and this step, counted over the life of the block */
    int i, begin, left; /* query block of the step; first that this group does not pass; steps left of the job */
    int mask_below;     /* queries before this one do not see every key of the group */
    bool passes;        /* the step at block begin - 1 of each head is passed */

    __device__ __forceinline__ narrow_keys(const narrow_params &params, narrow_block shared, int number)
        : p(params), block(shared), group(number), n(0), step(0)
    {
    }

    __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
    __device__ __forceinline__ static int warp() { return threadIdx.x % 128 / 32; }
    __device__ __forceinline__ static void arrive(uint32_t barrier) { mbarrier_arrive_by_warp(barrier); }
    /* First query of each pair that this thread holds. */
    __device__ __forceinline__ static int column() { return 2 * (lane() % 4); }
    /* This lane's place for ldmatrix and stmatrix in 16 rows of a panel from `corner` on: a row's 16-byte chunk `chunk`
     * in the low half of the warp, the one after it in the other. */
    __device__ __forceinline__ static uint32_t place(uint32_t corner, int lane, int chunk)
    {
        return corner + lane % 16 * ROW_BYTES + ((chunk + lane / 16) ^ lane % 8) * 16;
    }

    __device__ __forceinline__ void start_scores()
    {
        mbarrier_wait(block.q_full(step), block.step_parity(step));
        wgmma_fence();
        mma_abt<T, mem::tile_kv, mem::tile_q, 64>(s, block.k_tile(n) + group * 64 * ROW_BYTES, block.q_tile(step));
        wgmma_commit();
    }
    /* After wait_for_do and a fence; to be committed. */
    __device__ __forceinline__ void mma_dp()
    {
        const uint64_t b = wgmma_descriptor(block.do_tile(step), 16);
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma<T, 64, 0>(dp, v[k], b + (k * 32 >> 4), k != 0);
    }
    __device__ __forceinline__ void wait_for_do()
    {
        mbarrier_wait(block.do_full(step), block.step_parity(step));
    }

    /* Reads the job, loads V and starts the products of its first step. */
    __device__ __forceinline__ void begin_job()
    {
        volatile narrow_job *const job = block.job_slot(n);
        const int first_key = read_uniform(job->key_first) + group * 64, offset = p.seq_k - p.seq_q;
        begin = read_uniform(job->query_begin);
        passes = CAUSAL && group == 1 && begin + 1 < p.query_blocks &&
                 first_key > begin * NARROW_ROWS + NARROW_ROWS - 1 + offset;
        begin += passes;
        i = p.query_blocks - 1;
        left = (p.query_blocks - begin) * p.group;
        mask_below = first_key + 64 > p.seq_k ? INT_MAX : CAUSAL ? first_key + 63 - offset : INT_MIN;
        const int l = lane_asked();
#pragma unroll
        for (int k = 0; k < 4; k++)
            load_matrix4(place(block.v_tile(n) + (group * 64 + warp() * 16) * ROW_BYTES, l, 2 * k), v[k]);
        start_scores();
        wait_for_do();
        wgmma_fence();
        mma_dp();
        wgmma_commit();
    }

    /* P of the step, in s and as operand; a score that a query must not see gives 0. */
    __device__ __forceinline__ void probabilities()
    {
        scores_to_exponents(s, lse2, p.scale_log2);
        exponentials(s);
        if (i * NARROW_ROWS < mask_below)
            mask();
        to_operand<T, 1, 16>(prob, s);
    }
    __device__ __forceinline__ void mask()
    {
        const int first_key = read_uniform(block.job_slot(n)->key_first);
        int limit[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int key = first_key + group * 64 + warp() * 16 + lane() / 4 + 8 * r;
            limit[r] = key >= p.seq_k ? NARROW_ROWS : CAUSAL ? key - p.seq_k + p.seq_q - i * NARROW_ROWS - column() : 0;
        }
        mask_queries(s, limit);
    }
    __device__ __forceinline__ void start_dv(int accumulate)
    {
        pin(prob[0]);
        wgmma_fence();
        mma_rs<T, mem::tile_q, 64>(dv, prob, block.do_tile(step), accumulate);
        wgmma_commit();
    }

    /* dS of the step, as operand. */
    __device__ __forceinline__ void gradient()
    {
        to_score_gradient(dp, s, delta);
        to_operand<T, 1, 16>(ds, dp);
    }
    /* ... to dS[query][key] by transposing stores. */
    __device__ __forceinline__ void store_ds(unsigned step, bool zero)
    {
        mbarrier_wait(block.ds_empty(step), block.step_parity(step) ^ 1);
        const uint32_t to = block.ds_tile(step) + group * mem::tile_ds::PANEL_BYTES + transposed_place(warp(), lane());
#pragma unroll
        for (int k = 0; k < 4; k++)
            store_matrix4_transposed(to + k * 16 * ROW_BYTES, zero ? 0 : ds[0][4 * k], zero ? 0 : ds[0][4 * k + 1],
                                     zero ? 0 : ds[0][4 * k + 2], zero ? 0 : ds[0][4 * k + 3]);
        fence_async_proxy();
        arrive(block.ds_full(step));
    }
    /* After a fence; to be committed. */
    __device__ __forceinline__ void mma_dk(unsigned step, int accumulate)
    {
        mma_rs<T, mem::tile_q, 64>(dk, ds, block.q_tile(step), accumulate);
    }

    /* To the next step, past one in which this group has no key. */
    __device__ __forceinline__ void advance()
    {
        step++;
        if (--i >= begin)
            return;
        if (CAUSAL && passes) {
            mbarrier_wait(block.q_full(step), block.step_parity(step));
            mbarrier_wait(block.do_full(step), block.step_parity(step));
            store_ds(step, true);
            arrive(block.q_empty(step));
            arrive(block.do_empty(step));
            step++;
        }
        i = p.query_blocks - 1; /* of the group's next query head */
    }

    /* This warp's 16 keys of dK or dV, by way of its own corner of shared memory. */
    __device__ __forceinline__ void store_rows(const float (&x)[32], float scale, uint32_t corner,
                                               const CUtensorMap *map, int key, int h_kv, int b)
    {
        store_warp_rows16<T, 64, mem::tile_kv::PANEL_BYTES>(corner, x, scale, scale, lane_asked());
        fence_async_proxy();
        __syncwarp();
        tma_store_4d_by_warp(corner, map, 0, key, h_kv, b);
    }
    __device__ __forceinline__ void end_job(unsigned n)
    {
        volatile narrow_job *const job = block.job_slot(n);
        const int w = uniform(warp()), key = read_uniform(job->key_first) + group * 64 + w * 16;
        const int h_kv = read_uniform(job->h_kv), b = read_uniform(job->b);
        const uint32_t corner = block.base + mem::OUT + (group * 64 + w * 16) * ROW_BYTES;
        tma_store_wait_read(); /* of the job before */
        arrive(block.kv_empty(n));
        store_rows(dv, 1, corner + mem::tile_kv::BYTES, &p.dv_map, key, h_kv, b);
        store_rows(dk, p.scale, corner, &p.dk_map, key, h_kv, b);
        tma_store_commit();
    }

    __device__ __forceinline__ void run()
    {
        mbarrier_wait(block.kv_full(0), 0);
        if (read_uniform(block.job_slot(0)->b) < 0)
            return; /* others were faster */
        begin_job();
        for (;;) {
            int accumulate = 0; /* a job's first products are not added to anything */
            unsigned before = step;
            for (;;) {
                lse2.load((const float *)(block.smem + block.lse(step)) + 2 * column());
                wgmma_wait<1>(); /* S; dV of the step before */
                pin(s);
                if (accumulate)
                    arrive(block.do_empty(before));
                probabilities();
                start_dv(accumulate);
                delta.load((const float *)(block.smem + block.delta(step)) + 2 * column());
                wgmma_wait<1>(); /* dP; dK of the step before */
                pin(dp);
                if (accumulate)
                    arrive(block.q_empty(before));
                gradient();
                if (--left == 0)
                    break;
                before = step;
                advance();
                start_scores();
                store_ds(before, false);
                wait_for_do();
                pin(ds[0]);
                wgmma_fence();
                mma_dk(before, accumulate);
                mma_dp();
                wgmma_commit();
                accumulate = 1;
            }
            const unsigned now = step;
            store_ds(now, false);
            pin(ds[0]);
            wgmma_fence();
            mma_dk(now, accumulate);
            wgmma_commit();
            advance();
            wgmma_wait<0>();
            pin(dk);
            pin(dv);
            arrive(block.do_empty(now));
            arrive(block.q_empty(now));
            n++;
            mbarrier_wait(block.kv_full(n), block.job_parity(n));
            if (read_uniform(block.job_slot(n)->b) < 0)
                break;
            begin_job();
            end_job(n - 1);
        }
        end_job(n - 1);
        tma_store_wait();
    }
};

} // namespace flash_sm90
#endif
