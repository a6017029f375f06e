/* SPDX-License-Identifier: MIT */
/* FlashAttention backward for Hopper at head_dim above 128, 16-bit. See wide.cuh for the products.
 * dK and dV of 128 keys do not fit into registers. So a block owns 64 keys, walks 64 queries a step, and its two consumer
 * warpgroups share the work by kind: the first makes S^T = K Q^T and P, the second dP^T = V dO^T and dS; then each multiplies for
 * its half of the columns of dV, dK and dQ. P goes to the second group in fp32, in the order of the fragments, which S^T and dP^T
 * share, so that both have P^T in registers for dV; dS goes through shared memory for dK and dQ of both. Neither waits for the
 * other but for these: the next scores and exponentials run under dS, dK and dQ.
 * A step at D 256 on an SM: products 2560 clocks; shared memory 376 KB (S 64, dP 64, dV 32, dK 48, dQ 64, P 32, dS 8, loads 64) =
 * 3010; additions to dQ 64 KB, a fifth of the time (docs/kernels/log.md). They hold up the thread that adds, so it adds when it has
 * issued products. dQ is computed in two chunks at D 256, for want of registers.
 * Registers of a consumer thread at D 256: dK 64, dV 64, S^T or dP^T 32, a chunk of dQ 32, P^T 16, lse2 or delta 16 = 224 of 240. */
#pragma once

#include "kernels/cuda/attention/hopper/backward/alone.cuh"

namespace flash_hopper
{

constexpr int LARGE_KEYS = 64, LARGE_ROWS = 64; /* keys of a block; queries of a step */

/* What steps.cuh asks of a memory, as backward_memory has it. D: 192 or 256. Half of 192 is whole panels only of 32 columns. */
template <int D>
struct large_memory {
    static constexpr int COLUMNS = D, DP = 256, PANEL = D % 128 ? 32 : 64; /* DP: for the pass before */
    using tile_kv = tile<1, LARGE_KEYS, D, PANEL>;
    using tile_q = tile<1, LARGE_ROWS, D, PANEL>;
    using tile_v = tile_kv;
    using tile_do = tile_q;
    using tile_ds = tile<1, LARGE_ROWS, LARGE_KEYS>;
    static constexpr bool DQ_BY_D = true, DQ_ROWS = true, HAS_K2 = false;
    static constexpr int HALF = D / 2, DQ = HALF / 2; /* columns of a group; a thread's accumulators of its dQ */
    static constexpr int K = 0;
    static constexpr int Q = K + tile_kv::BYTES;
    static constexpr int DO = Q + BACKWARD_STAGES * tile_q::BYTES;
    static constexpr int V = DO + BACKWARD_STAGES * tile_q::BYTES;
    static constexpr int P = V + tile_kv::BYTES; /* in fp32, after V; dV and dK leave by way of both */
    static constexpr int DS = P + LARGE_ROWS * LARGE_KEYS * 4;
    using tail = backward_tail<DS + BACKWARD_STAGES * tile_ds::BYTES, LARGE_ROWS>;
    static constexpr int PACKED_BYTES = tail::PACKED_END;
    static_assert(P % 1024 == 0 && PACKED_BYTES <= 227 << 10, "alignment, and what a block may have");
    static constexpr int OUT_PANEL = 64 * ROW_BYTES,
                         OUT = (HALF + 63) / 64 * OUT_PANEL; /* rows of a group on their way out */
    static_assert(2 * OUT <= DS - V, "over V and P");
};

/* Further barriers like DS_BARRIER. At each, one group arrives and the other waits, once a step. */
enum { P_BARRIER = LARGEST_BARRIER, GRADIENTS_BARRIER = 2 };

/* What both consumer warpgroups do. */
template <class T, int D, bool CAUSAL, bool ORDERED, bool WINDOW>
struct large_group {
    using mem = large_memory<D>;
    using tile_kv = typename mem::tile_kv;
    using tile_q = typename mem::tile_q;
    static constexpr int N = LARGE_ROWS, HALF = mem::HALF, CHUNKS = HALF > 96 ? 2 : 1, CHUNK = HALF / CHUNKS;
    const backward_params &p;
    const backward_block<mem> block;
    const int wg, warp, steps, key_end; /* keys of the tile end before key_end */
    float x[N / 2];                     /* S^T, then P; or dP^T, then dS */
    float dk[HALF / 2], dv[HALF / 2];
    uint32_t operand[1][N / 4]; /* P^T */

    __device__ __forceinline__ large_group(const backward_params &params, backward_block<mem> shared, int group)
        : p(params), block(shared), wg(group), warp(uniform(threadIdx.x % 128 / 32)), steps(uniform(block.job().steps)),
          key_end((uniform(block.job().key_tile) + 1) * LARGE_KEYS)
    {
#pragma unroll
        for (int i = 0; i < HALF / 2; i++)
            dk[i] = dv[i] = 0;
    }

    /* First query of each pair that this thread holds. */
    __device__ __forceinline__ static int column()
    {
        return 2 * (lane_asked() % 4);
    }
    /* Where this group's columns begin in a tile. */
    template <class TILE>
    __device__ __forceinline__ uint32_t half(uint32_t tile_addr, int chunk = 0) const
    {
        return tile_addr + (wg * HALF + chunk * CHUNK) / TILE::PANEL * TILE::PANEL_BYTES;
    }

    /* x: K or V times a tile of queries, transposed. */
    __device__ __forceinline__ void start_transposed(int keys, uint32_t queries)
    {
        wgmma_fence();
        mma_abt<T, tile_kv, tile_q, LARGE_ROWS, D>(x, anew(block.base + keys), queries);
        wgmma_commit();
    }
    __device__ __forceinline__ void start_dv(int step)
    {
        mbarrier_wait(block.do_full(step), block.parity(step)); /* only the other group has waited for it */
        pin(operand[0]);
        wgmma_fence();
        mma_rs<T, tile_q, HALF>(dv, operand, half<tile_q>(block.do_tile(step)), 1);
        wgmma_commit();
    }
    __device__ __forceinline__ void start_dk(int step)
    {
        mbarrier_wait(block.q_full(step), block.parity(step)); /* only the other group has waited for it */
        wgmma_fence();
        mma_atb<T, tile_q, HALF>(dk, block.ds_tile(step), half<tile_q>(block.q_tile(step)));
        wgmma_commit();
    }
    __device__ __forceinline__ void start_dq(float (&dq)[CHUNK / 2], int step, int chunk)
    {
        wgmma_fence();
        mma_ab<T, typename mem::tile_ds, tile_kv, CHUNK>(dq, block.ds_tile(step),
                                                         half<tile_kv>(block.base + mem::K, chunk));
        wgmma_commit();
    }
    /* A chunk of a step's dQ to the sum. */
    __device__ __forceinline__ void add_dq(const float (&dq)[CHUNK / 2], int step, int place, int chunk) const
    {
        const int first = chunk * (CHUNK / 8);
        if constexpr (!ORDERED) {
            backward_add_to(backward_sum_at<mem>(p, place, wg, first, warp), dq);
            return;
        }
        if (chunk == 0)
            backward_may_add(p, block, step);
        backward_add<mem>(p, dq, place, wg, first, warp);
        if (chunk + 1 == CHUNKS)
            backward_has_added(p, block, step);
    }
    /* The first chunk of a step's dQ has been computed; the last one is, if it is another. dK may be under way. */
    __device__ __forceinline__ void go_on(float (&dq)[CHUNK / 2], int step, int place)
    {
        if constexpr (CHUNKS > 1) {
            add_dq(dq, step, place, 0);
            start_dq(dq, step, 1);
        }
    }
    __device__ __forceinline__ void add_last(const float (&dq)[CHUNK / 2], int step, int place) const
    {
        add_dq(dq, step, place, CHUNKS - 1);
    }
    /* dQ and dK of the last step; dV may be under way. */
    __device__ __forceinline__ void last_step(float (&dq)[CHUNK / 2])
    {
        start_dq(dq, steps - 1, 0);
        start_dk(steps - 1);
        wgmma_wait<1>();
        pin(dv), pin(dq);
        const int last = place(steps - 1);
        go_on(dq, steps - 1, last);
        wgmma_wait<0>();
        pin(dq), pin(dk);
        add_last(dq, steps - 1, last);
    }
    __device__ __forceinline__ static void zero(float (&dq)[CHUNK / 2])
    {
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++)
            dq[i] = 0;
    }
    __device__ __forceinline__ float4 *shared_p() const
    {
        return (float4 *)(block.smem + mem::P) + threadIdx.x % 128;
    }
    __device__ __forceinline__ int place(int step) const
    {
        return read_uniform(block.step_slot(step).place);
    }
};

/* The first group: P. */
template <class T, int D, bool CAUSAL, bool ORDERED, bool WINDOW>
struct large_scores : large_group<T, D, CAUSAL, ORDERED, WINDOW> {
    using group = large_group<T, D, CAUSAL, ORDERED, WINDOW>;
    using mem = typename group::mem;
    using group::block, group::dk, group::dv, group::operand, group::p, group::steps, group::warp, group::x;
    using group::group;

    __device__ __forceinline__ void start_scores(int step)
    {
        mbarrier_wait(block.q_full(step), block.parity(step));
        this->start_transposed(mem::K, block.q_tile(step));
    }
    /* x: scores to P, for both groups. */
    __device__ __forceinline__ void probabilities(int step, const query_numbers<LARGE_ROWS / 2> &lse2)
    {
        scores_to_exponents(x, lse2, p.scale_log2);
        exponentials(x);
        mask_block<LARGE_ROWS, LARGE_KEYS, CAUSAL, WINDOW>(
            p, x, this->key_end, read_uniform(block.step_slot(step).first_query), this->column(),
            [&] { return this->key_end - LARGE_KEYS + warp * 16 + lane_asked() / 4; }, 0);
#pragma unroll
        for (int j = 0; j < LARGE_ROWS / 8; j++)
            this->shared_p()[j * 128] = make_float4(x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
        to_operand<T, 1, LARGE_ROWS / 4>(operand, x);
    }
    __device__ __forceinline__ void load_lse(query_numbers<LARGE_ROWS / 2> &lse2, int step) const
    {
        lse2.load((const float *)(block.smem + block.lse(step)) + 2 * this->column());
    }
    __device__ __forceinline__ void run()
    {
        if (steps == 0)
            return;
        query_numbers<LARGE_ROWS / 2> lse2;
        float dq[group::CHUNK / 2];
        start_scores(0);
        load_lse(lse2, 0);
        wgmma_wait<0>();
        pin(x);
        probabilities(0, lse2);
        named_arrive(P_BARRIER, 256);
        int place = this->place(0);
        this->zero(dq);
        for (int step = 0;; step++) {
            this->start_dv(step);
            if (step + 1 == steps)
                break;
            start_scores(step + 1);
            if (!ORDERED || step > 0)
                this->add_last(dq, step - 1, place); /* dQ of the step before; at first zeros */
            named_sync(DS_BARRIER, 256);
            load_lse(lse2, step + 1);
            this->start_dq(dq, step, 0);
            this->start_dk(step);
            wgmma_wait<2>();
            pin(dv), pin(x);
            probabilities(step + 1, lse2);
            named_arrive(P_BARRIER, 256);
            wgmma_wait<1>();
            pin(dq);
            place = this->place(step);
            this->go_on(dq, step, place);
            wgmma_wait<0>();
            pin(dq), pin(dk);
            mbarrier_arrive_by_warp(block.empty(step));
        }
        if (!ORDERED || steps > 1)
            this->add_last(dq, steps - 2, place);
        named_sync(DS_BARRIER, 256);
        this->last_step(dq);
    }
};

/* The second group: dS. */
template <class T, int D, bool CAUSAL, bool ORDERED, bool WINDOW>
struct large_gradients : large_group<T, D, CAUSAL, ORDERED, WINDOW> {
    using group = large_group<T, D, CAUSAL, ORDERED, WINDOW>;
    using mem = typename group::mem;
    using group::block, group::dk, group::dv, group::operand, group::p, group::steps, group::warp, group::x;
    using group::group;

    __device__ __forceinline__ void start_dp(int step)
    {
        mbarrier_wait(block.do_full(step), block.parity(step));
        this->start_transposed(mem::V, block.do_tile(step));
    }
    /* x: to dS; operand: P^T. */
    __device__ __forceinline__ void gradient(const query_numbers<LARGE_ROWS / 2> &delta)
    {
#pragma unroll
        for (int j = 0; j < LARGE_ROWS / 8; j++) {
            const float4 prob = this->shared_p()[j * 128];
            operand[0][2 * j] = pack(T(), prob.x, prob.y), operand[0][2 * j + 1] = pack(T(), prob.z, prob.w);
            x[4 * j] = prob.x * (x[4 * j] - delta.of(4 * j));
            x[4 * j + 1] = prob.y * (x[4 * j + 1] - delta.of(4 * j + 1));
            x[4 * j + 2] = prob.z * (x[4 * j + 2] - delta.of(4 * j + 2));
            x[4 * j + 3] = prob.w * (x[4 * j + 3] - delta.of(4 * j + 3));
        }
    }
    /* dS^T fragments to dS[query][key] by transposing stores. */
    __device__ __forceinline__ void store_ds(int step) const
    {
        const uint32_t to = block.ds_tile(step) + transposed_place(warp, lane_asked());
        uint32_t ds[1][LARGE_ROWS / 4];
        to_operand<T, 1, LARGE_ROWS / 4>(ds, x);
#pragma unroll
        for (int k = 0; k < LARGE_ROWS / 16; k++)
            store_matrix4_transposed(to + k * 16 * ROW_BYTES, ds[0][4 * k], ds[0][4 * k + 1], ds[0][4 * k + 2],
                                     ds[0][4 * k + 3]);
    }
    __device__ __forceinline__ void run()
    {
        if (steps == 0)
            return;
        query_numbers<LARGE_ROWS / 2> delta;
        float dq[group::CHUNK / 2];
        start_dp(0);
        for (int step = 0;; step++) {
            delta.load((const float *)(block.smem + block.delta(step)) + 2 * this->column());
            wgmma_wait<0>();
            pin(x);
            named_sync(P_BARRIER, 256);
            gradient(delta);
            this->start_dv(step);
            store_ds(step);
            fence_async_proxy();
            named_arrive(DS_BARRIER, 256);
            named_sync(GRADIENTS_BARRIER, 128);
            if (step + 1 == steps)
                break;
            this->start_dq(dq, step, 0);
            this->start_dk(step);
            wgmma_wait<1>();
            pin(dv), pin(dq);
            const int place = this->place(step);
            this->go_on(dq, step, place);
            start_dp(step + 1);
            if constexpr (group::CHUNKS == 1)
                this->add_last(dq, step, place);
            wgmma_wait<1>();
            pin(dq), pin(dk);
            if constexpr (group::CHUNKS > 1)
                this->add_last(dq, step, place);
            mbarrier_arrive_by_warp(block.empty(step));
        }
        this->last_step(dq);
    }
};

/* dK and dV of a group's columns, by way of V and P, which are no longer read: all are past the last DS_BARRIER. */
template <class T, class GROUP>
__device__ __forceinline__ void large_store_rows(const backward_params &p, const GROUP &keys)
{
    using mem = typename GROUP::mem;
    const volatile backward_job &job = keys.block.job();
    const int corner = mem::V + keys.wg * mem::OUT + keys.warp * 16 * ROW_BYTES, d = keys.wg * mem::HALF;
    const int first = job.key_tile * LARGE_KEYS + keys.warp * 16;
    T *const dv = (T *)p.dv + job.b * p.dv_stride_b + job.h_kv * p.dv_stride_h + d;
    T *const dk = (T *)p.dk + job.b * p.dk_stride_b + job.h_kv * p.dk_stride_h + d;
    store_rows_by_way_of<T, mem::HALF, mem::OUT_PANEL>(keys.block.smem, keys.block.base, corner, keys.dv, 1, dv,
                                                       p.dv_stride_s, first, p.seq_k, min(p.head_dim_v - d, mem::HALF));
    store_rows_by_way_of<T, mem::HALF, mem::OUT_PANEL>(keys.block.smem, keys.block.base, corner, keys.dk, p.scale, dk,
                                                       p.dk_stride_s, first, p.seq_k, min(p.head_dim - d, mem::HALF));
}

/* WINDOW, PACKED: see flash_backward_pair. In any order. */
template <class T, int D, bool CAUSAL, bool ORDERED, bool WINDOW = false, bool PACKED = false>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1)
    flash_backward_large(const __grid_constant__ backward_params whole)
{
    using mem = large_memory<D>;
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
    wait_for_previous_kernel(); /* sums, zeroed */
    if (warpgroup == 1) {
        large_scores<T, D, CAUSAL, ORDERED, WINDOW> keys(p, block, 0);
        keys.run();
        large_store_rows<T>(p, keys);
    } else {
        large_gradients<T, D, CAUSAL, ORDERED, WINDOW> keys(p, block, 1);
        keys.run();
        large_store_rows<T>(p, keys);
    }
}

} // namespace flash_hopper
