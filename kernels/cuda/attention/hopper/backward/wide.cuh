/* SPDX-License-Identifier: MIT */
/* FlashAttention backward for Hopper: the main kernel that takes every shape (FlashAttention-3, arXiv 2407.08608). See host.cu.
 *   P = exp2(S c - lse2)   dP = dO V^T   dS = P (dP - delta)   dV = P^T dO   dK = dS^T Q scale   dQ = dS K scale
 * A block owns 128 keys of a key/value head, 64 for each of two consumer warpgroups, and walks the query blocks of its group's
 * heads, BM queries a step. S^T = K Q^T and dP^T = V dO^T are computed transposed, so that P^T and dS^T are operands of dV
 * and dK in registers; only dS goes through shared memory, for dQ, which leaves by vector reductions to an fp32 sum, or (D 64, in
 * any order) by bulk additions from shared memory.
 * Few key tiles: a cluster shares one, each block a range of its steps, and they add up dK and dV through distributed shared
 * memory. Deterministic: the adders of a sum add in the order in which their blocks start, which idle warps watch (order.c).
 * A step of 64 queries at D 128 on an SM: products 2560 clocks, shared memory 304 KB = 2430; D 96: 1920, D 80: 1600.
 * Registers of a consumer thread at D 128: dK 64, dV 64, S^T 32, dP^T or dQ 32, P or dS as operand 16 = 208 of 240. */
#pragma once

#include "kernels/cuda/attention/hopper/fp32_parts.cuh"
#include "kernels/cuda/attention/hopper/backward/pointwise.cuh"
#include "kernels/cuda/attention/hopper/backward/steps.cuh"

namespace flash_hopper
{

/* ---- products that hopper/tile.cuh has not ---- */

/* dQ^T of a group: 64 rows of d times N queries, A = K^T read transposed, B = dS. */
template <class T, class TKV, class TDS, int N>
__device__ __forceinline__ void mma_dq(float (&dq)[N / 2], uint32_t k_addr, uint32_t ds_addr)
{
    const uint64_t a0 = wgmma_descriptor(k_addr, 16), b0 = wgmma_descriptor(ds_addr, 16);
#pragma unroll
    for (int p = 0; p < products<T, TKV::PARTS>::COUNT; p++)
#pragma unroll
        for (int k = 0; k < BACKWARD_KEYS / 16; k++) {
            const int a = products<T, TKV::PARTS>::a(p) * TKV::PART_BYTES + k * 16 * ROW_BYTES;
            const int b = products<T, TKV::PARTS>::b(p) * TDS::PART_BYTES + k / 4 * TDS::PANEL_BYTES + k % 4 * 32;
            wgmma<T, N, 1, 0>(dq, a0 + (a >> 4), b0 + (b >> 4), p + k != 0);
        }
}

/* dQ of a group: 64 queries times N columns of d from k_addr on, within a panel; A = dS, B = K read transposed. */
template <class T, class TDS, int N>
__device__ __forceinline__ void mma_dq_rows(float (&dq)[N / 2], uint32_t ds_addr, uint32_t k_addr, int accumulate)
{
    const uint64_t a0 = wgmma_descriptor(ds_addr, 16), b0 = wgmma_descriptor(k_addr, 16);
#pragma unroll
    for (int k = 0; k < BACKWARD_KEYS / 16; k++)
        wgmma<T, N, 0, 1>(dq, a0 + ((k / 4 * TDS::PANEL_BYTES + k % 4 * 32) >> 4), b0 + (k * 16 * ROW_BYTES >> 4),
                          accumulate | k);
}

/* ---- what a query sees ---- */

/* What a query of the block from first_query on must not see of s, scores of a tile of KEYS keys that ends before key_end, becomes
 * `hidden`. A thread has queries first_query + column + 8 j and the next one, of key() and the 8th after it. */
template <int BM, int KEYS, bool CAUSAL, bool WINDOW, class KEY>
__device__ __forceinline__ void mask_block(const backward_params &p, float (&s)[BM / 2], int key_end, int first_query,
                                           int column, KEY key, float hidden)
{
    const bool left_edge = WINDOW && key_end - KEYS < first_query + BM - 1 + p.seq_k - p.seq_q - p.window_left;
    if (key_end <= p.seq_k && !left_edge &&
        (!CAUSAL || key_end - 1 <= first_query + p.seq_k - p.seq_q + (WINDOW ? p.window_right : 0)))
        return;
    int limit[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int k = key() + 8 * r;
        limit[r] = k >= p.seq_k ? BM
                   : CAUSAL     ? k - p.seq_k + p.seq_q - (WINDOW ? p.window_right : 0) - first_query - column
                                : 0;
    }
    mask_queries(s, limit, hidden);
    if constexpr (WINDOW) {
#pragma unroll
        for (int r = 0; r < 2; r++)
            limit[r] = key() + 8 * r - p.seq_k + p.seq_q + p.window_left + 1 - first_query - column;
        if (left_edge)
            mask_queries_from(s, limit, hidden);
    }
}

/* ---- a key group: 64 keys, their dK and dV, and its half of dQ. The pair backward's is made of its parts ---- */

enum { DS_BARRIER = 1, LARGEST_BARRIER = 4 };
enum { INVERSE_Q, INVERSE_K, INVERSE_V, INVERSE_DO };

/* STAGED: dQ leaves by way of shared memory; see backward_send. WINDOW: only in the pair backward. */
template <class T, int PARTS, int D, int BM, bool CAUSAL, bool STAGED = false, bool WINDOW = false>
struct backward_keys {
    using mem = backward_memory<PARTS, D, BM>;
    using tile_kv = typename mem::tile_kv;
    using tile_q = typename mem::tile_q;
    using tile_ds = typename mem::tile_ds;
    const backward_params &p;
    const backward_block<mem> block;
    const int wg, warp, steps, key_end; /* keys of the tile end before key_end */
    backward_step at;                   /* where the step is; asked for early, for the reason that query_numbers has */
    query_numbers<BM / 2> lse2, delta;
    float s[BM / 2], dp[BM / 2], dk[D / 2], dv[D / 2];

    /* SCALED: what undoes the scales of the job's keys and of the step's queries; P is multiplied by a constant to become parts,
     * dS by what the largest of the step's allows. */
    static constexpr bool SCALED = scaled_parts<T, PARTS>;
    static constexpr float P_SCALE = 1 << 14;
    packed_powers inverse; /* inverse scales of the four tensors */

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
        if constexpr (SCALED) {
            const int place = at.place < 0 ? ~at.place : at.place, head = (place - job().sum_begin) / p.query_blocks;
            const int64_t group = (int64_t)head * p.q_groups + at.first_query / FP32_PARTS_QUERY_ROWS;
            inverse.set(INVERSE_Q, p.q_inverse[group]);
            inverse.set(INVERSE_DO, p.do_inverse[group]);
        }
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
        if constexpr (SCALED)
            scaled_scores_to_exponents(s, lse2, inverse.at(INVERSE_K) * inverse.at(INVERSE_Q) * p.scale);
        else
            scores_to_exponents(s, lse2, p.scale_log2);
        if (LOAD_EARLY)
            load_delta(step);
        exponentials(s);
        mask(first_query, 0);
    }
    /* What a query must not see of s becomes `hidden`. */
    __device__ __forceinline__ void mask(int first_query, float hidden)
    {
        mask_block<BM, BACKWARD_KEYS, CAUSAL, WINDOW>(
            p, s, key_end, first_query, column(), [&] { return key(); }, hidden);
    }
    /* dp: to dS. */
    __device__ __forceinline__ void gradient(int step)
    {
        if (!LOAD_EARLY)
            load_delta(step);
        if constexpr (SCALED)
            to_score_gradient(dp, s, delta, inverse.at(INVERSE_V) * inverse.at(INVERSE_DO));
        else
            to_score_gradient(dp, s, delta);
    }
    /* Whether exponentials and the arithmetic of dS are mixed; at head_dim 128 that loses 1 to 6 %. */
    static constexpr bool MIXES = PARTS == 1 && D < 128;
    /* If so: s to P and dp, when it is there, to dS. */
    __device__ __forceinline__ void probabilities_and_gradient(int step, int first_query)
    {
        constexpr int EARLY = BM / 8; /* a quarter of the thread's */
        mask(first_query, hidden_score(p.scale_log2));
        if (!LOAD_EARLY)
            load_lse(step);
        scores_to_exponents(s, lse2, p.scale_log2);
        if (LOAD_EARLY)
            load_delta(step);
        exponentials(s, 0, EARLY);
        wgmma_wait<0>();
        pin(dp);
        exponentials(s, EARLY);
        if (!LOAD_EARLY)
            load_delta(step);
        to_score_gradient(dp, s, delta);
    }
    /* The largest of dS, for both groups to know when they meet at LARGEST_BARRIER. */
    __device__ __forceinline__ void show_largest(int step)
    {
        uint32_t top = 0;
#pragma unroll
        for (int i = 0; i < BM / 2; i++) {
            const uint32_t bits = __float_as_uint(dp[i]) & 0x7fffffffu;
            top = bits < 0x7f800000u ? max(top, bits) : top;
        }
        raise_by_warp(block.largest(step), __reduce_max_sync(~0u, top));
    }
    /* The scale, once both groups have raised the maximum. Also zeroes the place for the next step, which was last read two steps
     * ago. */
    __device__ __forceinline__ power_scale meet_largest(int step)
    {
        named_sync(LARGEST_BARRIER, 256);
        const power_scale scale =
            scale_to_fp16(*(const volatile uint32_t *)(block.smem + block.largest(step) - block.base));
        if (wg == 0 && warp == 0)
            clear_by_warp(block.largest(step + 1));
        return scale;
    }
    /* dS^T fragments to dS[query][key] by transposing stores. */
    __device__ __forceinline__ void store_ds(const uint32_t (&ds)[PARTS][BM / 4], int step)
    {
        const uint32_t to = block.ds_tile(step) + wg * tile_ds::PANEL_BYTES + transposed_place(warp, lane_asked());
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int k = 0; k < BM / 16; k++)
                store_matrix4_transposed(to + part * tile_ds::PART_BYTES + k * 16 * ROW_BYTES, ds[part][4 * k],
                                         ds[part][4 * k + 1], ds[part][4 * k + 2], ds[part][4 * k + 3]);
    }

    /* A step's share of dQ to its half of the sum, in order if p.order. Rows of d of dQ^T past head_dim are left out. */
    __device__ __forceinline__ void add_dq(const float (&dq)[mem::DQ], int step, int place, int half)
    {
        backward_may_add(p, block, step);
        if (mem::DQ_ROWS || (mem::DQ_BY_D ? half * 64 : 0) + warp * 16 < p.head_dim)
            backward_add<mem>(p, dq, place, half, 0, warp);
        backward_has_added(p, block, step);
    }

    /* ... to the group's stage, in the order that the sum has. */
    __device__ __forceinline__ void stage_dq(const float (&dq)[mem::DQ], int step)
    {
        mbarrier_wait(block.stage_empty(wg), step % 2 ^ 1);
        unsigned char *const to = block.smem + mem::STAGE + wg * mem::STAGE_BYTES + (warp * 32 + lane_asked()) * 16;
#pragma unroll
        for (int j = 0; j < mem::DQ / 4; j++)
            *(float4 *)(to + j * 2048) = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
        fence_async_proxy();
        arrive(block.stage_full(wg));
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

    /* A step in which no query sees a key of this group, as in the first one of a head from the diagonal on: dS is 0, and the
     * group has its half of dQ to compute. Below head_dim 128 the code in the loop costs what it saves. */
    static constexpr bool PASSES = mem::DQ_ROWS && CAUSAL && D == 128;
    __device__ __forceinline__ void pass(int step)
    {
        uint32_t ds[PARTS][BM / 4] = {};
        float dq[mem::DQ];
        mbarrier_wait(block.q_full(step), block.parity(step));
        mbarrier_wait(block.do_full(step), block.parity(step));
        load_step(step);
        store_ds(ds, step);
        fence_async_proxy();
        named_sync(DS_BARRIER, 256);
        start_dq(dq, step);
        wgmma_wait<0>();
        pin(dq);
        add_dq(dq, step, at.place, wg);
        arrive(block.empty(step));
    }

    /* All steps. */
    __device__ __forceinline__ void run()
    {
        int u = 0, begin = 0, first_seen = 0; /* if PASSES: query block of the step */
        if constexpr (PASSES) {
            u = begin = uniform(job().query_begin);
            /* else a block does not know a step before the loader tells it */
            const bool whole_heads = !p.order && cluster_size() == 1;
            first_seen = whole_heads ? first_to_see<BM>(p, key_end - BACKWARD_KEYS + wg * 64) : 0;
        }
        if constexpr (SCALED) {
            const int64_t group = (int64_t)(job().b * p.heads_kv + job().h_kv) * p.k_groups +
                                  job().key_tile * BACKWARD_KEYS / FP32_PARTS_KEY_ROWS;
            inverse.set(INVERSE_K, p.k_inverse[group]);
            inverse.set(INVERSE_V, p.v_inverse[group]);
        }
        for (int step = 0; step < steps; step++) {
            uint32_t prob[PARTS][BM / 4], ds[PARTS][BM / 4];
            float dq[mem::DQ];
            if constexpr (PASSES) {
                const bool passes = u < first_seen;
                if (++u == p.query_blocks)
                    u = begin;
                if (passes) {
                    pass(step);
                    continue;
                }
            }
            /* S and dP, then P and dS from them */
            start_scores(step);
            start_dp(step);
            load_step(step);
            if (LOAD_EARLY)
                load_lse(step);
            wgmma_wait<1>();
            pin(s);
            if constexpr (MIXES) {
                probabilities_and_gradient(step, at.first_query);
                to_operand<T, PARTS, BM / 4>(prob, s);
            } else {
                probabilities(step, at.first_query);
                to_operand<T, PARTS, BM / 4>(prob, s, P_SCALE);
                if constexpr (LOAD_EARLY)
                    pin(prob[0]); /* not later, when dP is waited for */
                wgmma_wait<0>();
                pin(dp);
                gradient(step);
            }
            /* scaled parts: dV is added first, while both groups agree on a scale for dS */
            power_scale ds_scale = {1, 1};
            if constexpr (SCALED) {
                show_largest(step);
                pin(prob[0]), pin(prob[1]);
                mma_rs_rounded<T, tile_q>(dv, prob, block.do_tile(step), inverse.at(INVERSE_DO) * (1 / P_SCALE));
                ds_scale = meet_largest(step);
            }
            /* dS to shared memory for dQ, while dV runs */
            to_operand<T, PARTS, BM / 4>(ds, dp, ds_scale.up);
            store_ds(ds, step);
            if constexpr (!STAGED)
                fence_async_proxy();
#pragma unroll
            for (int part = 0; part < PARTS; part++)
                pin(prob[part]), pin(ds[part]);
            if constexpr (PARTS == 1)
                start_dv(prob, step);
            else if constexpr (!SCALED)
                mma_rs_rounded<T, tile_q>(dv, prob, block.do_tile(step));
            if constexpr (STAGED)
                fence_async_proxy();     /* under dV: it waits for nothing but the stores of dS */
            named_sync(DS_BARRIER, 256); /* both groups' keys of dS are there, and both are done with the other slot */
            /* dQ of both groups' keys, and dK under its way out */
            start_dq(dq, step);
            if constexpr (PARTS == 1) {
                start_dk(ds, step);
                wgmma_wait<1>();
                pin(dv);
            } else {
                mma_rs_rounded<T, tile_q>(dk, ds, block.q_tile(step), /* waits for dQ, too */
                                          SCALED ? ds_scale.down * inverse.at(INVERSE_Q) : 1);
            }
            pin(dq);
            if constexpr (SCALED) {
#pragma unroll
                for (int i = 0; i < mem::DQ; i++)
                    dq[i] *= ds_scale.down * inverse.at(INVERSE_K);
            }
            if constexpr (STAGED)
                stage_dq(dq, step);
            else
                add_dq(dq, step, at.place, wg);
            if constexpr (PARTS == 1) {
                wgmma_wait<0>();
                pin(dk);
            }
            arrive(block.empty(step));
        }
    }
};

/* ---- the way out: dK and dV to the tensors, summed over the blocks of a cluster ---- */

enum { ROWS_BARRIER = 2 /* and 3 */ };

/* This block's share of the rows of dK or dV from the partial sums of all SPLIT blocks, all loads before the first
 * use. Returns a number that depends on each of them. */
template <class MEM, class OUT, int DP, int SPLIT>
__device__ __forceinline__ float merge_key_rows(uint32_t part_addr, int rank, OUT *head, int64_t stride_s,
                                                int key_first, int seq_k, int head_dim, float scale)
{
    constexpr int SHARE = BACKWARD_KEYS / SPLIT, UNITS = SHARE * (DP / 4) / 256; /* units of 4 columns a thread */
    static_assert(UNITS * 256 == SHARE * (DP / 4), "whole units");
    const int thread = threadIdx.x - 128;
    float4 part[UNITS][SPLIT];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = u * 256 + thread, row = rank * SHARE + unit / (DP / 4), d = unit % (DP / 4) * 4;
#pragma unroll
        for (int n = 0; n < SPLIT; n++)
            part[u][n] = cluster_load4(cluster_map(part_addr + (row * MEM::MERGE_PITCH + d) * 4, n));
    }
    float read = 0;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = u * 256 + thread, d = unit % (DP / 4) * 4;
        const int64_t i = key_first + rank * SHARE + unit / (DP / 4);
        float4 x = part[u][0];
#pragma unroll
        for (int n = 1; n < SPLIT; n++)
            x.x += part[u][n].x, x.y += part[u][n].y, x.z += part[u][n].z, x.w += part[u][n].w;
        read += (x.x + x.y) + (x.z + x.w);
        if (i >= seq_k || d >= head_dim)
            continue;
        store_pair(head + i * stride_s + d, x.x * scale, x.y * scale);
        store_pair(head + i * stride_s + d + 2, x.z * scale, x.w * scale);
    }
    return read;
}

/* Accumulators of a warp, 16 keys from first_key on, to rows of a 16-bit tensor, of which `columns` are left from `head` on: by
 * way of shared memory, panels of 64 columns, so that whole lines leave. Written from fragments, they would be 16 bytes of each of eight
 * rows at a time. corner: offset of the panels' first row from smem, whose address is base. */
template <class T, int COLUMNS, int PANEL_BYTES>
__device__ __forceinline__ void store_rows_by_way_of(unsigned char *smem, uint32_t base, int corner,
                                                     const float (&x)[COLUMNS / 2], float scale, T *head,
                                                     int64_t stride_s, int first_key, int seq_k, int columns)
{
    const int lane = lane_asked();
    store_warp_rows16<T, COLUMNS, PANEL_BYTES>(base + corner, x, scale, scale, lane);
    __syncwarp();
#pragma unroll
    for (int panel = 0; panel < (COLUMNS + 63) / 64; panel++)
#pragma unroll
        for (int r = 0; r < 16; r += 4) {
            const int row = r + lane / 8, d = panel * 64 + lane % 8 * 8;
            if (first_key + row < seq_k && d < columns)
                *(uint4 *)(head + (int64_t)(first_key + row) * stride_s + d) =
                    *(const uint4 *)(smem + corner + panel * PANEL_BYTES + row * ROW_BYTES + (lane % 8 ^ row % 8) * 16);
        }
    __syncwarp();
}

template <class KEYS, class T>
__device__ __forceinline__ void store_warp_rows(const backward_params &p, const KEYS &keys,
                                                const float (&x)[KEYS::mem::COLUMNS / 2], float scale, T *head,
                                                int64_t stride_s)
{
    using mem = typename KEYS::mem;
    const int row = keys.wg * 64 + keys.warp * 16; /* the warp's first row of V */
    store_rows_by_way_of<T, mem::COLUMNS, mem::tile_kv::PANEL_BYTES>(
        keys.block.smem, keys.block.base, mem::V + row * ROW_BYTES, x, scale, head, stride_s,
        keys.job().key_tile * BACKWARD_KEYS + row, p.seq_k, p.head_dim);
}

/* Accumulators of a thread to rows of an fp32 tensor. */
template <class KEYS>
__device__ __forceinline__ void store_warp_rows(const backward_params &p, const KEYS &keys,
                                                const float (&x)[KEYS::mem::COLUMNS / 2], float scale, float *head,
                                                int64_t stride_s)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int64_t row = keys.key() + 8 * r;
        if (row >= p.seq_k)
            continue;
#pragma unroll
        for (int j = 0; j < KEYS::mem::COLUMNS / 8; j++)
            if (8 * j < p.head_dim)
                store_pair(head + row * stride_s + 8 * j + keys.column(), x[4 * j + 2 * r] * scale,
                           x[4 * j + 2 * r + 1] * scale);
    }
}

/* dK and dV of a group that owns its keys. */
template <class OUT, class KEYS>
__device__ __forceinline__ void store_own_rows(const backward_params &p, const KEYS &keys)
{
    const volatile backward_job &job = keys.job();
    named_sync(ROWS_BARRIER + keys.wg, 128); /* V is the group's own, and it has no products under way */
    store_warp_rows(p, keys, keys.dv, 1, (OUT *)p.dv + job.b * p.dv_stride_b + job.h_kv * p.dv_stride_h, p.dv_stride_s);
    store_warp_rows(p, keys, keys.dk, p.scale, (OUT *)p.dk + job.b * p.dk_stride_b + job.h_kv * p.dk_stride_h,
                    p.dk_stride_s);
}

template <class OUT, class KEYS>
__device__ __forceinline__ void store_key_rows(const backward_params &p, const KEYS &keys, uint32_t base,
                                               unsigned char *smem)
{
    using mem = typename KEYS::mem;
    const int split = cluster_size(), rank = cluster_rank();
    if (split == 1) {
        store_own_rows<OUT>(p, keys);
        return;
    }
    const volatile backward_job &job = keys.job();
    const int key_first = job.key_tile * BACKWARD_KEYS;
    OUT *const dk_head = (OUT *)p.dk + job.b * p.dk_stride_b + job.h_kv * p.dk_stride_h;
    OUT *const dv_head = (OUT *)p.dv + job.b * p.dv_stride_b + job.h_kv * p.dv_stride_h;

    /* merge: every block leaves its partial sums, then finishes its share of the rows */
    named_sync(DS_BARRIER, 256); /* the other group may still read the tiles */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float *const part_dk = (float *)(smem + mem::MERGE_DK) + (keys.key() - key_first + 8 * r) * mem::MERGE_PITCH +
                               keys.column(),
                     *const part_dv = part_dk + mem::MERGE_DV / 4;
#pragma unroll
        for (int j = 0; j < KEYS::mem::COLUMNS / 8; j++) {
            store_pair(part_dk + 8 * j, keys.dk[4 * j + 2 * r], keys.dk[4 * j + 2 * r + 1]);
            store_pair(part_dv + 8 * j, keys.dv[4 * j + 2 * r], keys.dv[4 * j + 2 * r + 1]);
        }
    }
    cluster_sync_shared();
    auto merge = [&](auto blocks) {
        constexpr int SPLIT = decltype(blocks)::value;
        return merge_key_rows<mem, OUT, mem::DP, SPLIT>(base + mem::MERGE_DK, rank, dk_head, p.dk_stride_s, key_first,
                                                        p.seq_k, p.head_dim, p.scale) +
               merge_key_rows<mem, OUT, mem::DP, SPLIT>(base + mem::MERGE_DV, rank, dv_head, p.dv_stride_s, key_first,
                                                        p.seq_k, p.head_dim, 1);
    };
    float read = 0;
    if (split == 2)
        read = merge(constant<2>());
    if (split == 4)
        read = merge(constant<4>());
    if (split == 8)
        read = merge(constant<8>());
    constexpr int AFTER = 2 * mem::MERGE_DV; /* no one reads here */
    static_assert(AFTER + BACKWARD_THREADS * 4 <= mem::tail::LSE, "a word for each thread behind the merge");
    cluster_leave(base + AFTER + threadIdx.x * 4, read);
}

/* ---- the kernel ---- */

template <class T, int PARTS, int D, int BM, bool CAUSAL, bool STAGED>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1) flash_backward(const __grid_constant__ backward_params p)
{
    using mem = backward_memory<PARTS, D, BM>;
    extern __shared__ __align__(1024) unsigned char smem[];
    const backward_block<mem> block = {smem_u32(smem), smem};
    const int warpgroup = uniform(threadIdx.x / 128);

    if (threadIdx.x == 0) {
        if (STAGED)
            block.init_stage_barriers();
        backward_begin<1, mem, CAUSAL>(p, block);
        if constexpr (scaled_parts<T, PARTS>)
            for (int step = 0; step < 3; step++)
                *(uint32_t *)(smem + mem::LARGEST + step * 4) = 0;
    }
    __syncthreads();
    let_next_kernel_start();

    if (warpgroup == 0) {
        registers_lower<24>();
        if (threadIdx.x == 0 && block.job().steps > 0) {
            backward_load<1>(p, block, backward_second_k<mem>());
        } else if (STAGED && (threadIdx.x == 32 || threadIdx.x == 64)) {
            wait_for_previous_kernel(); /* sums start at zero */
            backward_send(p, block, threadIdx.x / 32 - 1);
        } else if (!STAGED && p.order && threadIdx.x % 32 == 0) {
            wait_for_previous_kernel(); /* counts start at zero */
            if (threadIdx.x == 32)
                backward_await<1>(p, block, p.order);
            else if (threadIdx.x > 32)
                backward_pass_on<1, 2>(p, block, p.order, threadIdx.x / 32 - 2);
        }
        if (cluster_size() > 1) { /* the block's shared memory must outlive its readers */
            __syncwarp();
            cluster_wait();
            cluster_wait();
        }
        return;
    }

    registers_raise<240>();
    int group = warpgroup - 1;
    if constexpr (scaled_parts<T, PARTS>) { /* asked anew: else ptxas keeps both, and spills one */
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(group));
        group = uniform(group / 128 - 1);
    }
    backward_keys<T, PARTS, D, BM, CAUSAL, STAGED> keys(p, block, group);
    wait_for_previous_kernel(); /* sums, zeroed or free */
    keys.run();
    store_key_rows<typename memory_type<T, PARTS>::type>(p, keys, block.base, smem);
}

} // namespace flash_hopper
