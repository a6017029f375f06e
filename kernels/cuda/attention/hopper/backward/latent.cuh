/* SPDX-License-Identifier: MIT */
/* FlashAttention backward for Hopper at head_dim above 128 with head_dim_v up to 128, as in multi-head latent attention;
 * 16-bit. See wide.cuh for the products.
 * dK and dV of 128 keys, 192 and 128 columns of them, take 160 registers of a thread in two groups. So, as in the wide kernel, a
 * block owns 128 keys, 64 for each group, and a group makes half of the columns of dQ, half as many additions as by the large
 * kernel's blocks of 64 keys. But S^T, dP^T and dQ have the same registers one after the other: P waits for dP in 16 bits, dK reads
 * dS from shared memory, and the next scores are issued when dQ has left. The other group's products fill the gaps.
 * A step of 64 queries on an SM: products 3328 clocks; shared memory 392 KB (S 96, dP 64, dV 32, dK 64, dQ 80, dS 16, loads 40) =
 * 3140; additions to dQ 48 KB.
 * Registers of a consumer thread: dK 96, dV 64, S^T or dP^T 32 or dQ 48, P 16 = 224 of 240. */
#pragma once

#include "kernels/cuda/attention/hopper/backward/alone.cuh"

namespace flash_hopper
{

/* What steps.cuh asks of a memory, as backward_memory has it. */
struct latent_memory {
    static constexpr int COLUMNS = 192, COLUMNS_V = 128, BM = 64, DP = COLUMNS_V; /* DP: for the pass before, of dO */
    using tile_kv = tile<1, BACKWARD_KEYS, COLUMNS, 32>; /* half of 192 columns is whole panels only of 32 */
    using tile_q = tile<1, BM, COLUMNS, 32>;
    using tile_v = tile<1, BACKWARD_KEYS, COLUMNS_V>;
    using tile_do = tile<1, BM, COLUMNS_V>;
    using tile_ds = tile<1, BM, BACKWARD_KEYS>; /* a panel is one group's 64 keys */
    static constexpr bool DQ_BY_D = true, DQ_ROWS = true, HAS_K2 = false;
    static constexpr int DQ = COLUMNS / 4; /* accumulators of a thread, of half of the columns */
    static constexpr int K = 0;
    static constexpr int V = K + tile_kv::BYTES;
    static constexpr int Q = V + tile_v::BYTES;
    static constexpr int DO = Q + BACKWARD_STAGES * tile_q::BYTES;
    static constexpr int DS = DO + BACKWARD_STAGES * tile_do::BYTES;
    using tail = backward_tail<DS + BACKWARD_STAGES * tile_ds::BYTES, BM>;
    static constexpr int PACKED_BYTES = tail::PACKED_END;
    static_assert(PACKED_BYTES <= 227 << 10, "what a block may have");
};

/* A key group: 64 keys, their dK and dV, and its half of dQ. */
template <class T, bool CAUSAL, bool WINDOW>
struct latent_keys {
    using mem = latent_memory;
    using tile_kv = mem::tile_kv;
    using tile_q = mem::tile_q;
    using tile_v = mem::tile_v;
    using tile_do = mem::tile_do;
    static constexpr int BM = mem::BM, HALF = mem::COLUMNS / 2;
    const backward_params &p;
    const backward_block<mem> block;
    const int wg, warp, steps, key_end; /* the group's keys end before key_end */
    float s[BM / 2];                    /* S^T, P, dP^T */
    float dk[mem::COLUMNS / 2], dv[mem::COLUMNS_V / 2];
    /* P is at most 1. As much larger it is a normal number of fp16 wherever it counts, and has three bits more there than in bf16,
     * and so has dS. */
    static constexpr float P_SCALE_LOG2 = 15, P_SCALE = 1 << 15;

    __device__ __forceinline__ latent_keys(const backward_params &params, backward_block<mem> shared, int group)
        : p(params), block(shared), wg(group), warp(uniform(threadIdx.x % 128 / 32)), steps(uniform(block.job().steps)),
          key_end(uniform(block.job().key_tile) * BACKWARD_KEYS + wg * 64 + 64)
    {
#pragma unroll
        for (int i = 0; i < mem::COLUMNS / 2; i++)
            dk[i] = 0;
#pragma unroll
        for (int i = 0; i < mem::COLUMNS_V / 2; i++)
            dv[i] = 0;
    }
    /* First query of each pair that this thread holds. */
    __device__ __forceinline__ static int column()
    {
        return 2 * (lane_asked() % 4);
    }

    /* s: the group's rows of K or V times a tile of Q or dO, transposed. */
    template <class KEYS, class QUERIES>
    __device__ __forceinline__ void start_transposed(int keys, uint32_t queries)
    {
        wgmma_fence();
        mma_abt<T, KEYS, QUERIES, BM>(s, anew(block.base + keys + wg * 64 * KEYS::PANEL_ROW), queries);
        wgmma_commit();
    }
    __device__ __forceinline__ void start_scores(int step)
    {
        mbarrier_wait(block.q_full(step), block.parity(step));
        start_transposed<tile_kv, tile_q>(mem::K, block.q_tile(step));
    }
    __device__ __forceinline__ void start_dp(int step)
    {
        mbarrier_wait(block.do_full(step), block.parity(step));
        start_transposed<tile_v, tile_do>(mem::V, block.do_tile(step));
    }
    __device__ __forceinline__ void start_dv(uint32_t (&prob)[1][BM / 4], int step)
    {
        pin(prob[0]);
        wgmma_fence();
        mma_rs<T, tile_do, mem::COLUMNS_V>(dv, prob, block.do_tile(step), 1);
        wgmma_commit();
    }
    __device__ __forceinline__ void start_dk(int step)
    {
        wgmma_fence();
        mma_atb<T, tile_q, mem::COLUMNS>(dk, block.ds_tile(step) + wg * mem::tile_ds::PANEL_BYTES, block.q_tile(step));
        wgmma_commit();
    }
    __device__ __forceinline__ void start_dq(float (&dq)[mem::DQ], int step)
    {
        wgmma_fence();
        mma_ab<T, mem::tile_ds, tile_kv, HALF>(
            dq, block.ds_tile(step), anew(block.base + mem::K) + wg * (HALF / tile_kv::PANEL) * tile_kv::PANEL_BYTES);
        wgmma_commit();
    }

    /* s: scores to P, P_SCALE times as large, and that to fp16. */
    __device__ __forceinline__ void probabilities(uint32_t (&prob)[1][BM / 4], int step)
    {
        query_numbers<BM / 2> lse2;
        lse2.load((const float *)(block.smem + block.lse(step)) + 2 * column());
#pragma unroll
        for (int i = 0; i < BM / 2; i++)
            s[i] = fmaf(s[i], p.scale_log2, P_SCALE_LOG2 - lse2.of(i));
        exponentials(s);
        mask_block<BM, 64, CAUSAL, WINDOW>(
            p, s, key_end, read_uniform(block.step_slot(step).first_query), column(),
            [&] { return key_end - 64 + warp * 16 + lane_asked() / 4; }, 0);
        to_operand<__half, 1, BM / 4>(prob, s);
    }
    /* s: dP to dS, which goes to shared memory; prob: what probabilities left, to the operand of dV. */
    __device__ __forceinline__ void gradient(uint32_t (&prob)[1][BM / 4], int step)
    {
        const float *const delta = (const float *)(block.smem + block.delta(step)) + 2 * column();
        const uint32_t to = block.ds_tile(step) + wg * mem::tile_ds::PANEL_BYTES + transposed_place(warp, lane_asked());
#pragma unroll
        for (int k = 0; k < BM / 16; k++) { /* 16 queries, of which the thread has two pairs */
            const float4 d = *(const float4 *)(delta + 16 * k);
            const float scaled[4] = {d.x / P_SCALE, d.y / P_SCALE, d.z / P_SCALE, d.w / P_SCALE};
            uint32_t ds[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 x = __half22float2(*(const __half2 *)&prob[0][4 * k + i]);
                const float *const dp = s + 8 * k + 2 * i, *const of = scaled + i / 2 * 2;
                ds[i] = pack(T(), x.x * fmaf(dp[0], 1 / P_SCALE, -of[0]), x.y * fmaf(dp[1], 1 / P_SCALE, -of[1]));
                prob[0][4 * k + i] = pack(T(), x.x, x.y);
            }
            store_matrix4_transposed(to + k * 16 * ROW_BYTES, ds[0], ds[1], ds[2], ds[3]);
        }
    }
    /* dQ and dK of a step, when dV has ended; dK is under way until it is waited for. */
    __device__ __forceinline__ void finish_step(int step)
    {
        float dq[mem::DQ];
        wgmma_wait<0>();
        pin(dv);
        start_dq(dq, step);
        start_dk(step);
        const int place = read_uniform(block.step_slot(step).place);
        wgmma_wait<1>();
        pin(dq);
        backward_may_add(p, block, step);
        backward_add<mem>(p, dq, place, wg, 0, warp);
        backward_has_added(p, block, step);
    }

    __device__ __forceinline__ void run()
    {
        if (steps == 0)
            return;
        uint32_t prob[1][BM / 4];
        start_scores(0);
        wgmma_wait<0>();
        pin(s);
        for (int step = 0;; step++) {
            probabilities(prob, step);
            start_dp(step);
            wgmma_wait<0>();
            pin(s);
            gradient(prob, step);
            start_dv(prob, step);
            fence_async_proxy();
            named_sync(DS_BARRIER, 256); /* both groups' keys of dS are there, and both are done with the other slot */
            if (step + 1 == steps)
                break;
            finish_step(step);
            start_scores(step + 1);
            wgmma_wait<1>();
            pin(dk);
            mbarrier_arrive_by_warp(block.empty(step));
            wgmma_wait<0>();
            pin(s);
        }
        finish_step(steps - 1);
        wgmma_wait<0>();
        pin(dk);
    }
};

/* dK and dV of a group, by way of its rows of V, which only it reads: 128 columns at a time. */
template <class T, class KEYS>
__device__ __forceinline__ void latent_store_rows(const backward_params &p, const KEYS &keys)
{
    using mem = latent_memory;
    const volatile backward_job &job = keys.block.job();
    constexpr int PANEL_BYTES = mem::tile_v::PANEL_BYTES;
    const int row = keys.wg * 64 + keys.warp * 16, first = job.key_tile * BACKWARD_KEYS + row;
    const int corner = mem::V + row * ROW_BYTES;
    T *const dv = (T *)p.dv + job.b * p.dv_stride_b + job.h_kv * p.dv_stride_h;
    T *const dk = (T *)p.dk + job.b * p.dk_stride_b + job.h_kv * p.dk_stride_h;
    named_sync(ROWS_BARRIER + keys.wg, 128); /* it has no products under way */
    store_rows_by_way_of<T, 128, PANEL_BYTES>(keys.block.smem, keys.block.base, corner, keys.dv, 1 / KEYS::P_SCALE, dv,
                                              p.dv_stride_s, first, p.seq_k, p.head_dim_v);
    store_rows_by_way_of<T, 128, PANEL_BYTES>(keys.block.smem, keys.block.base, corner, *(float(*)[64])keys.dk, p.scale,
                                              dk, p.dk_stride_s, first, p.seq_k, 128);
    store_rows_by_way_of<T, 64, PANEL_BYTES>(keys.block.smem, keys.block.base, corner, *(float(*)[32])(keys.dk + 64),
                                             p.scale, dk + 128, p.dk_stride_s, first, p.seq_k, p.head_dim - 128);
}

/* WINDOW, PACKED: see flash_backward_pair. */
template <class T, bool CAUSAL, bool WINDOW = false, bool PACKED = false>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1)
    flash_backward_latent(const __grid_constant__ backward_params whole)
{
    using mem = latent_memory;
    extern __shared__ __align__(1024) unsigned char smem[];
    const backward_block<mem> block = {smem_u32(smem), smem};
    const int warpgroup = uniform(threadIdx.x / 128);
    backward_document document = {};

    if (!backward_enter<WINDOW, CAUSAL, PACKED>(whole, block, document))
        return;
    const backward_params &p = backward_problem<T, PACKED>(whole, document);
    if (warpgroup == 0) {
        registers_lower<24>();
        backward_serve<WINDOW>(whole, block, document.begin);
        return;
    }
    registers_raise<240>();
    latent_keys<T, CAUSAL, WINDOW> keys(p, block, warpgroup - 1);
    wait_for_previous_kernel(); /* sums, zeroed */
    keys.run();
    latent_store_rows<T>(p, keys);
}

} // namespace flash_hopper
