/* SPDX-License-Identifier: MIT */
/* FlashAttention backward for Hopper at head_dim_v 136 to 192, 16-bit, without windows and documents. See wide.cuh for
 * the products.
 * With 64 keys, as in the large kernel, each key adds much to dQ; dK and dV of 128 have no room in registers. A block owns 96 keys,
 * 48 for each consumer warpgroup. A product has 64 rows at least, so keys are columns here: S = Q K^T and dP = dO V^T
 * of all queries of a step and the group's keys, dV^T = dO^T P and dK^T = Q^T dS of all columns of d. P and dS go through shared
 * memory, P only for the group, dS for the half of the columns of dQ that each group computes. (As in FlashAttention-4.)
 * A step of 64 queries on an SM: products 2880 clocks; shared memory 532 KB (S 84, dP 84, dV 84, dK 84, dQ 60, P and dS 24, loads 48, dQ
 * on its way out 64) = 4260; additions to dQ 48 KB.
 * Registers of a consumer thread: dK 72, dV 72, S 24 and dP 24 or dQ 48 = 192 of 240. */
#pragma once

#include "kernels/cuda/attention/hopper/backward/alone.cuh"

namespace flash_hopper
{

/* What steps.cuh asks of a memory, as backward_memory has it. */
struct tall_memory {
    static constexpr int COLUMNS = 192, BM = 64, KEYS = 96, OWN = KEYS / 2; /* OWN: keys of a group */
    static constexpr int DP = 256;                                          /* for the pass before */
    using tile_kv = tile<1, KEYS, COLUMNS, 32>; /* half of 192 columns is whole panels only of 32 */
    using tile_v = tile<1, KEYS, COLUMNS>;
    using tile_q = tile<1, BM, COLUMNS>;
    using tile_do = tile_q;
    using tile_ds = tile<1, BM, 128>; /* a panel is one group's keys, of which it has 48 columns; P has as much */
    static constexpr bool DQ_BY_D = true, DQ_ROWS = true, HAS_K2 = false;
    static constexpr int DQ = COLUMNS / 4; /* accumulators of a thread, of half of the columns */
    static constexpr int K = 0;
    static constexpr int V = K + tile_kv::BYTES;
    static constexpr int Q = V + tile_v::BYTES;
    static constexpr int DO = Q + BACKWARD_STAGES * tile_q::BYTES;
    static constexpr int P = DO + BACKWARD_STAGES * tile_do::BYTES;
    static constexpr int DS = P + tile_ds::BYTES;
    using tail = backward_tail<DS + BACKWARD_STAGES * tile_ds::BYTES, BM>;
    /* The fragments of a thread's dQ that a panel has room for; see tall_send. */
    static constexpr int SENT = tile_ds::PANEL_BYTES / 2048;
    static constexpr int STAGE_BARRIERS = (tail::PACKED_END + 7) / 8 * 8;
    static constexpr int PACKED_BYTES = STAGE_BARRIERS + 6 * 8;
    static_assert(PACKED_BYTES <= 227 << 10, "what a block may have");
};

/* In any order, a group's half of dQ leaves in three parts. Two go through shared memory that has nothing else to hold just then, the
 * group's panel of P and that of the next step's dS, and on by bulk additions of an idle thread; the last is added by the threads that
 * have it. All of it took so long to issue that the tensor cores ran dry. */
struct tall_stage {
    uint32_t base;
    __device__ __forceinline__ uint32_t full(int group) const { return base + tall_memory::STAGE_BARRIERS + group * 8; }
    /* part 0, in P, or 1, in dS, has been read */
    __device__ __forceinline__ uint32_t sent(int group, int part) const
    {
        return base + tall_memory::STAGE_BARRIERS + 16 + (2 * part + group) * 8;
    }
    __device__ __forceinline__ void init() const
    {
        for (int group = 0; group < 2; group++) {
            mbarrier_init(full(group), 4);
            mbarrier_init(sent(group, 0), 1);
            mbarrier_init(sent(group, 1), 1);
        }
    }
};

/* One thread for each group. */
__device__ __forceinline__ void tall_send(const backward_params &p, backward_block<tall_memory> block, int group)
{
    using mem = tall_memory;
    constexpr int BYTES = mem::tile_ds::PANEL_BYTES;
    const tall_stage stage = {block.base};
    const volatile backward_job &job = block.job();
    const int steps = job.steps;
    backward_walk<1, mem::BM, false, mem::KEYS> walk;
    walk.begin(p, job);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        float *const sum = p.dq_sum + ((int64_t)walk.place(p, job) * 2 + group) * (mem::DQ * 128);
        mbarrier_wait(stage.full(group), step % 2);
        add_global_bulk(sum, block.base + mem::P + group * BYTES, BYTES);
        tma_store_commit();
        add_global_bulk(sum + BYTES / 4, block.ds_tile(step + 1) + group * BYTES, BYTES);
        tma_store_commit();
        tma_store_wait_read<1>();
        mbarrier_arrive(stage.sent(group, 0));
        tma_store_wait_read(); /* after the last one, too: shared memory must outlive it */
        mbarrier_arrive(stage.sent(group, 1));
        walk.next(p, job);
    }
}

/* A key group: 48 keys, their dK^T and dV^T, and its half of dQ. */
template <class T, bool CAUSAL, bool ORDERED>
struct tall_keys {
    using mem = tall_memory;
    using tile_kv = mem::tile_kv;
    using tile_q = mem::tile_q;
    using tile_v = mem::tile_v;
    using tile_ds = mem::tile_ds;
    static constexpr int OWN = mem::OWN, ROWS = mem::COLUMNS / 64; /* ROWS: of 64 columns of d each */
    const backward_params &p;
    const backward_block<mem> block;
    const int wg, warp, steps, first_key;
    float s[OWN / 2], dp[OWN / 2], dk[ROWS][OWN / 2], dv[ROWS][OWN / 2];

    __device__ __forceinline__ tall_keys(const backward_params &params, backward_block<mem> shared, int group)
        : p(params), block(shared), wg(group), warp(uniform(threadIdx.x % 128 / 32)), steps(uniform(block.job().steps)),
          first_key(uniform(block.job().key_tile) * mem::KEYS + wg * OWN)
    {
#pragma unroll
        for (int m = 0; m < ROWS; m++)
#pragma unroll
            for (int i = 0; i < OWN / 2; i++)
                dk[m][i] = dv[m][i] = 0;
    }

    /* x: queries times the group's rows of the tile at `keys`, transposed. */
    template <class TILE>
    __device__ __forceinline__ void start_product(float (&x)[OWN / 2], uint32_t queries, int keys)
    {
        wgmma_fence();
        mma_abt<T, tile_q, TILE, OWN>(x, queries, anew(block.base + keys) + wg * OWN * TILE::PANEL_ROW);
        wgmma_commit();
    }
    __device__ __forceinline__ void start_scores(int step)
    {
        mbarrier_wait(block.q_full(step), block.parity(step));
        start_product<tile_kv>(s, block.q_tile(step), mem::K);
    }
    __device__ __forceinline__ void start_dp(int step)
    {
        mbarrier_wait(block.do_full(step), block.parity(step));
        start_product<tile_v>(dp, block.do_tile(step), mem::V);
    }
    /* sums: a tile of dO or Q, transposed, times the group's panel of P or dS; of some rows of 64 columns of d. */
    __device__ __forceinline__ void start_sums(float (&sums)[ROWS][OWN / 2], uint32_t queries, uint32_t panel,
                                               int from = 0, int to = ROWS)
    {
        wgmma_fence();
#pragma unroll
        for (int m = from; m < to; m++)
            mma_atb<T, tile_ds, OWN>(sums[m], queries + m * tile_q::PANEL_BYTES, panel);
        wgmma_commit();
    }
    __device__ __forceinline__ void start_dq(float (&dq)[mem::DQ], int step)
    {
        const uint64_t a0 = wgmma_descriptor(block.ds_tile(step), 16);
        const uint64_t b0 = tile_kv::descriptor(anew(block.base + mem::K) +
                                                    wg * (mem::COLUMNS / 2 / tile_kv::PANEL) * tile_kv::PANEL_BYTES,
                                                tile_kv::PANEL_BYTES);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < mem::KEYS / 16; k++)
            wgmma<T, mem::COLUMNS / 2, 0, 1>(dq,
                                             a0 + ((k / (OWN / 16) * tile_ds::PANEL_BYTES + k % (OWN / 16) * 32) >> 4),
                                             b0 + (k * 16 * tile_kv::PANEL_ROW >> 4), k);
        wgmma_commit();
    }
    __device__ __forceinline__ uint32_t own_p() const
    {
        return block.base + mem::P + wg * tile_ds::PANEL_BYTES;
    }
    __device__ __forceinline__ uint32_t own_ds(int step) const
    {
        return block.ds_tile(step) + wg * tile_ds::PANEL_BYTES;
    }

    /* lse2 or delta of the thread's rows, in fragment_order: query lane / 4 of the warp's 16, and the eighth after it. */
    __device__ __forceinline__ float2 numbers(int at) const
    {
        const int row = lane_asked() / 4;
        const float *const of = (const float *)(block.smem + at) + warp * 16 + (row / 2 * 4 | row % 2);
        return make_float2(of[0], of[2]);
    }
    /* A part of dQ of the step before has left the panel that is written next. */
    __device__ __forceinline__ void wait_sent(int step, int part) const
    {
        if (!ORDERED && step > 0)
            mbarrier_wait(tall_stage{block.base}.sent(wg, part), (step - 1) % 2);
    }
    /* s: scores to P, which goes to shared memory, too: all four warps have begun these scores, and so have seen dV of the step before,
     * which reads P there, end. */
    __device__ __forceinline__ void probabilities(int step)
    {
        const float2 lse2 = numbers(block.lse(step));
        const int lane = lane_asked(), first_query = read_uniform(block.step_slot(step).first_query);
#pragma unroll
        for (int i = 0; i < OWN / 2; i++)
            s[i] = exp2_approx(fmaf(s[i], p.scale_log2, i % 4 < 2 ? -lse2.x : -lse2.y));
        if (first_key + OWN > p.seq_k || (CAUSAL && first_key + OWN - 1 > first_query + p.seq_k - p.seq_q)) {
            int limit[2]; /* a key from there on is hidden, counted from the thread's first */
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int seen = first_query + warp * 16 + lane / 4 + 8 * r + p.seq_k - p.seq_q + 1;
                limit[r] = (CAUSAL ? min(seen, p.seq_k) : p.seq_k) - first_key - 2 * (lane % 4);
            }
#pragma unroll
            for (int j = 0; j < OWN / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (8 * j + (e & 1) >= limit[e >> 1])
                        s[4 * j + e] = 0;
        }
        wait_sent(step, 0);
        store_warp_rows16<T, OWN, tile_ds::PANEL_BYTES>(own_p() + warp * 16 * ROW_BYTES, s, 1, 1, lane);
    }
    /* dp: to dS, which goes to shared memory. */
    __device__ __forceinline__ void gradient(int step)
    {
        const float2 delta = numbers(block.delta(step));
#pragma unroll
        for (int i = 0; i < OWN / 2; i++)
            dp[i] = s[i] * (dp[i] - (i % 4 < 2 ? delta.x : delta.y));
        wait_sent(step, 1);
        store_warp_rows16<T, OWN, tile_ds::PANEL_BYTES>(own_ds(step) + warp * 16 * ROW_BYTES, dp, 1, 1, lane_asked());
    }
    /* dV of a step, as soon as the group has its P. */
    __device__ __forceinline__ void start_dv(int step)
    {
        fence_async_proxy();
        named_sync(ROWS_BARRIER + wg, 128);
        start_sums(dv, block.do_tile(step), own_p());
    }
    /* dS of a step, from both groups when it returns. */
    __device__ __forceinline__ void make_ds(int step)
    {
        pin(dp);
        gradient(step);
        fence_async_proxy();
        named_sync(DS_BARRIER, 256); /* all of dS is there, and both groups are done with the other slot */
    }
    /* A part of dQ to shared memory, in the order that the sum has. */
    __device__ __forceinline__ void stage_dq(const float (&dq)[mem::DQ], int part, uint32_t panel) const
    {
        unsigned char *const to = block.smem + (panel - block.base) + (warp * 32 + lane_asked()) * 16;
#pragma unroll
        for (int j = 0; j < mem::SENT; j++) {
            const float *const x = dq + 4 * (part * mem::SENT + j);
            *(float4 *)(to + j * 2048) = make_float4(x[0], x[1], x[2], x[3]);
        }
    }
    /* Adds dQ of a step while the first rows of dK are computed. */
    __device__ __forceinline__ void add_dq(int step)
    {
        float dq[mem::DQ];
        start_dq(dq, step);
        start_sums(dk, block.q_tile(step), own_ds(step), 0, 1);
        const int place = read_uniform(block.step_slot(step).place);
        wgmma_wait<1>();
        pin(dq);
        pin_sums(dv);
        if constexpr (ORDERED) {
            backward_may_add(p, block, step);
            backward_add<mem>(p, dq, place, wg, 0, warp);
            backward_has_added(p, block, step);
        } else {
            constexpr int STAGED = 2 * mem::SENT;
            stage_dq(dq, 1, own_ds(step + 1));  /* both groups are done with it since this step's DS_BARRIER */
            named_sync(ROWS_BARRIER + wg, 128); /* dV, which reads P, has ended for all four warps */
            stage_dq(dq, 0, own_p());
            fence_async_proxy(); /* before this thread's additions, for which it would wait */
            mbarrier_arrive_by_warp(tall_stage{block.base}.full(wg));
            backward_add_to(backward_sum_at<mem>(p, place, wg, STAGED, warp),
                            *(const float(*)[mem::DQ - 4 * STAGED])(dq + 4 * STAGED));
        }
    }
    __device__ __forceinline__ void pin_sums(float (&sums)[ROWS][OWN / 2])
    {
#pragma unroll
        for (int m = 0; m < ROWS; m++)
            pin(sums[m]);
    }

    __device__ __forceinline__ void run()
    {
        if (steps == 0)
            return;
        start_scores(0);
        start_dp(0);
        wgmma_wait<1>();
        pin(s);
        probabilities(0);
        start_dv(0);
        wgmma_wait<1>();
        make_ds(0);
        for (int step = 1; step < steps; step++) {
            add_dq(step - 1);
            start_scores(step);
            start_sums(dk, block.q_tile(step - 1), own_ds(step - 1), 1, ROWS);
            start_dp(step);
            wgmma_wait<2>();
            pin(s);
            probabilities(step);
            start_dv(step);
            wgmma_wait<1>();
            pin_sums(dk);
            mbarrier_arrive_by_warp(block.empty(step - 1));
            make_ds(step);
        }
        add_dq(steps - 1);
        start_sums(dk, block.q_tile(steps - 1), own_ds(steps - 1), 1, ROWS);
        wgmma_wait<0>();
        pin_sums(dv);
        pin_sums(dk);
    }

    /* dK or dV of the group's keys, by way of its rows of V, which only it reads. */
    __device__ __forceinline__ void store(const float (&sums)[ROWS][OWN / 2], float scale, T *head, int64_t stride_s,
                                          int columns)
    {
        const int corner = mem::V + wg * OWN * ROW_BYTES, thread = threadIdx.x % 128;
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            const uint32_t to = block.base + corner + m * tile_v::PANEL_BYTES + transposed_place(warp, lane_asked());
#pragma unroll
            for (int k = 0; k < OWN / 16; k++) {
                const float *const x = sums[m] + 8 * k;
                store_matrix4_transposed(to + k * 16 * ROW_BYTES, pack(T(), x[0] * scale, x[1] * scale),
                                         pack(T(), x[2] * scale, x[3] * scale), pack(T(), x[4] * scale, x[5] * scale),
                                         pack(T(), x[6] * scale, x[7] * scale));
            }
        }
        named_sync(ROWS_BARRIER + wg, 128);
        constexpr int CHUNKS = mem::COLUMNS / 8; /* chunks of 16 bytes in a row */
        for (int unit = thread; unit < OWN * CHUNKS; unit += 128) {
            const int row = unit / CHUNKS, d = unit % CHUNKS * 8;
            if (first_key + row < p.seq_k && d < columns)
                *(uint4 *)(head + (int64_t)(first_key + row) * stride_s + d) =
                    *(const uint4 *)(block.smem + corner + d / 64 * tile_v::PANEL_BYTES + row * ROW_BYTES +
                                     (d % 64 / 8 ^ row % 8) * 16);
        }
        named_sync(ROWS_BARRIER + wg, 128); /* before V is written again */
    }
};

template <class T, bool CAUSAL, bool ORDERED>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1) flash_backward_tall(const __grid_constant__ backward_params p)
{
    using mem = tall_memory;
    extern __shared__ __align__(1024) unsigned char smem[];
    const backward_block<mem> block = {smem_u32(smem), smem};
    const int warpgroup = uniform(threadIdx.x / 128);
    backward_document none = {};

    if (!ORDERED && threadIdx.x == 0)
        tall_stage{block.base}.init();
    backward_enter<false, CAUSAL, false>(p, block, none);
    if (warpgroup == 0) {
        registers_lower<24>();
        if (!ORDERED && (threadIdx.x == 32 || threadIdx.x == 64)) {
            wait_for_previous_kernel(); /* sums, zeroed */
            tall_send(p, block, threadIdx.x / 32 - 1);
        } else {
            backward_serve<false>(p, block, none.begin);
        }
        return;
    }
    registers_raise<240>();
    tall_keys<T, CAUSAL, ORDERED> keys(p, block, warpgroup - 1);
    wait_for_previous_kernel(); /* sums, zeroed */
    keys.run();
    const volatile backward_job &job = block.job();
    named_sync(ROWS_BARRIER + warpgroup - 1, 128); /* the group has no products under way */
    keys.store(keys.dv, 1, (T *)p.dv + job.b * p.dv_stride_b + job.h_kv * p.dv_stride_h, p.dv_stride_s, p.head_dim_v);
    keys.store(keys.dk, p.scale, (T *)p.dk + job.b * p.dk_stride_b + job.h_kv * p.dk_stride_h, p.dk_stride_s,
               p.head_dim);
}

} // namespace flash_hopper
