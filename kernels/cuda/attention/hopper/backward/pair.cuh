/* SPDX-License-Identifier: MIT */
/* FlashAttention backward for Hopper, 16-bit, head_dim above 64, long sequences: the wide kernel's work with half of its
 * additions to dQ, which bound it (32 KB a step; all SMs together add at most 3.8 TB/s to L2). Launched by pair.cu.
 * Two blocks of a cluster take 256 keys, 128 each, against the same queries, send each other their dS, and each multiplies the
 * dS of both with its own half of d of all 256 keys. dQ of a step is computed while the next one's dS is, by one key group, then
 * by the other, so that one adds while the other computes. A thread that never adds does the fence before dS is sent: it holds
 * up a thread until its additions are done.
 * Deterministic (ORDERED): the order of wide.cuh with pairs for key tiles; each block of a pair has counters of its own.
 * A step of a block at D 128: products 2560 clocks, shared memory 336 KB = 2690; 209 KB of shared memory.
 * Registers of a consumer thread, D 128: dK 64, dV 64, S^T 32, dP^T or dQ 32, P and dS as operands 32 = 224 of 240. */
#pragma once

#include "kernels/cuda/attention/hopper/backward/wide.cuh"

namespace flash_hopper
{

/* ---- shared memory and barriers in addition to steps.cuh ---- */

constexpr int PAIR_ROWS = 64;

/* Where a window leaves few steps to a job, dO of a step is loaded as soon as dV of the step before the last has been computed:
 * 3 % for 4096 of 16384 keys, nothing for 1024. Without a window it costs 2 %. */
__host__ __device__ constexpr bool pair_loads_do_ahead(bool ordered, bool window, bool packed)
{
    return window && !ordered && !packed;
}

template <int D>
struct pair_memory : backward_memory<1, D, PAIR_ROWS> {
    using block_memory = backward_memory<1, D, PAIR_ROWS>;
    using tile_half = tile<1, BACKWARD_KEYS, 64>; /* K of a block, this block's half of d */
    static constexpr int OTHER_K = (block_memory::BYTES + 1023) / 1024 * 1024;
    static constexpr int OTHER_DS = OTHER_K + tile_half::BYTES; /* what the other block sends */
    static constexpr int PAIR_BARRIERS = OTHER_DS + BACKWARD_STAGES * block_memory::tile_ds::BYTES;
    static constexpr int BYTES = PAIR_BARRIERS + 3 * BACKWARD_STAGES * 8;
    static constexpr int DOCUMENT = BYTES, PACKED_BYTES = DOCUMENT + (int)sizeof(backward_document); /* if PACKED */
    static_assert(PACKED_BYTES <= 227 << 10, "what a block may have");
};

template <int D>
struct pair_block : backward_block<backward_memory<1, D, PAIR_ROWS>> {
    using mem = pair_memory<D>;
    using wide = backward_block<backward_memory<1, D, PAIR_ROWS>>;
    __device__ __forceinline__ pair_block(const wide &block) : wide(block) {}

    __device__ uint32_t pair_barrier(unsigned step, int kind) const
    {
        return this->base + mem::PAIR_BARRIERS + 8 * (kind * BACKWARD_STAGES + this->slot(step));
    }
    /* All of this block have stored dS; the dS of both blocks is here; dQ has read it, here and in the other block. */
    __device__ uint32_t ds_stored(unsigned step) const { return pair_barrier(step, 0); }
    __device__ uint32_t ds_full(unsigned step) const { return pair_barrier(step, 1); }
    __device__ uint32_t ds_empty(unsigned step) const { return pair_barrier(step, 2); }
    __device__ uint32_t other_ds(unsigned step) const
    {
        return this->base + mem::OTHER_DS + this->slot(step) * mem::tile_ds::BYTES;
    }
    /* K of this block from its half of d on: a panel of K, or the tile that the wide kernel has for its second group. */
    __device__ uint32_t own_k(int rank) const
    {
        return this->base + (mem::HAS_K2 ? mem::K2 : mem::K + rank * mem::tile_kv::PANEL_BYTES);
    }

    /* By one thread, before the cluster's first meeting. */
    __device__ void init_pair_barriers() const
    {
        for (int step = 0; step < BACKWARD_STAGES; step++) {
            mbarrier_init(ds_stored(step), 8);
            mbarrier_init(ds_full(step), 1);
            mbarrier_init(ds_empty(step), 8); /* four warps here and four there */
        }
    }
};

/* ---- a key group: 64 keys, their dK and dV, and every second step's dQ ---- */

/* ORDERED: deterministic; adds in order, or stores to a sum that the pair has for itself. */
template <class T, int D, bool CAUSAL, bool ORDERED, bool WINDOW, bool PACKED>
struct pair_keys : backward_keys<T, 1, D, PAIR_ROWS, CAUSAL, false, WINDOW> {
    using keys = backward_keys<T, 1, D, PAIR_ROWS, CAUSAL, false, WINDOW>;
    using mem = typename keys::mem;
    using tile_ds = typename keys::tile_ds;
    using keys::arrive, keys::dk, keys::dp, keys::dv, keys::p, keys::s, keys::steps, keys::warp, keys::wg;
    const pair_block<D> block;
    const int rank;
    const uint32_t other; /* where the other block's shared memory begins */

    __device__ __forceinline__ pair_keys(const backward_params &params, pair_block<D> shared, int group)
        : keys(params, shared, group), block(shared), rank(uniform(cluster_rank())),
          other(uniform(cluster_map(shared.base, rank ^ 1)))
    {
    }

    /* dQ of a step: 64 queries, this block's half of d, the keys of both blocks. */
    __device__ __forceinline__ void start_dq(float (&dq)[mem::DQ], unsigned step)
    {
        mbarrier_wait(block.ds_full(step), block.parity(step));
        wgmma_fence();
        mma_dq_rows<T, tile_ds, D / 2>(dq, block.ds_tile(step), block.own_k(rank), 0);
        mma_dq_rows<T, tile_ds, D / 2>(dq, block.other_ds(step), block.base + pair_memory<D>::OTHER_K, 1);
        wgmma_commit();
    }
    /* For the step after the next one, if there is one: a block may exit when nothing more comes to it. */
    __device__ __forceinline__ void release_ds(unsigned step)
    {
        if (step + 2 >= (unsigned)steps)
            return;
        arrive(block.ds_empty(step));
        mbarrier_arrive_remote_by_warp(other + (block.ds_empty(step) - block.base));
    }
    __device__ __forceinline__ void add_dq(const float (&dq)[mem::DQ], unsigned step, int place)
    {
        if constexpr (ORDERED)
            keys::add_dq(dq, step, place, rank);
        else
            backward_add_to(backward_sum_at<mem>(this->p, place, rank, 0, this->warp), dq);
    }

    /* A step in which no query sees a key of this group, one to three at the start of a head, and in a window at its end: dS is 0, and that spares four
     * products. (In order, and at head_dim 80, the code in the loop costs what it saves.) */
    static constexpr bool PASSES = CAUSAL && !ORDERED && D > 80;
    static constexpr bool DO_AHEAD = pair_loads_do_ahead(ORDERED, WINDOW, PACKED);
    __device__ __forceinline__ void pass(unsigned step, int place_before)
    {
        const uint32_t ds[1][PAIR_ROWS / 4] = {};
        mbarrier_wait(block.q_full(step), block.parity(step));
        mbarrier_wait(block.do_full(step), block.parity(step));
        mbarrier_wait(block.ds_empty(step), block.parity(step) ^ 1);
        this->store_ds(ds, step);
        arrive(block.ds_stored(step));
        if (DO_AHEAD)
            arrive(block.added(step));
        if (step > 0 && (step - 1) % 2 == wg) {
            float dq[mem::DQ];
            start_dq(dq, step - 1);
            wgmma_wait<0>();
            pin(dq);
            release_ds(step - 1);
            add_dq(dq, step - 1, place_before);
        }
        arrive(block.empty(step));
    }

    /* All steps, in the order of backward_walk. */
    __device__ __forceinline__ void run()
    {
        const int begin = uniform(this->job().query_begin),
                  end = (WINDOW ? uniform(this->job().query_end) : p.query_blocks) - 1;
        const bool back = ORDERED && p.order && uniform(this->job().adder) >= p.early;
        const int adder = WINDOW ? uniform(this->job().adder) : 0;
        const int stores_before = ORDERED && !WINDOW ? uniform(this->job().stores_before) : 0;
        const int first = back ? end : begin, last = back ? begin : end, by = back ? -1 : 1;
        int u = first, place_before = 0;
        int place = uniform(this->job().b * p.heads + this->job().h_kv * p.group) * p.query_blocks + first +
                    (ORDERED || PACKED ? uniform(this->job().sum_begin) : 0);
        int first_seen = 0,
            last_seen = 0; /* if PASSES: query blocks that see a key of this group; the last in a window */
        if constexpr (PASSES)
            first_seen = first_to_see<PAIR_ROWS, WINDOW>(p, this->key_end - BACKWARD_KEYS + wg * 64);
        if constexpr (PASSES && WINDOW)
            last_seen = last_to_see<PAIR_ROWS>(p, this->key_end - BACKWARD_KEYS + wg * 64 + 63);
        const auto advance = [&] {
            if constexpr (WINDOW && ORDERED)
                place_before = adder == first_adder<2, PAIR_ROWS>(p, u) ? ~place : place;
            else
                place_before = u < stores_before ? ~place : place;
            if (u == last)
                u = first, place += (WINDOW ? p.query_blocks : end + 1) - last + first; /* the next query head */
            else
                u += by, place += by;
        };
        for (unsigned step = 0; step < (unsigned)steps; step++) {
            uint32_t prob[1][PAIR_ROWS / 4], ds[1][PAIR_ROWS / 4];
            if constexpr (PASSES) {
                if (u < first_seen || (WINDOW && u > last_seen)) {
                    pass(step, place_before);
                    advance();
                    continue;
                }
            }
            /* S and dP, then P and dS from them */
            this->start_scores(step);
            this->start_dp(step);
            this->load_lse(step);
            wgmma_wait<1>();
            pin(s);
            if constexpr (keys::MIXES) {
                mbarrier_wait(block.ds_empty(step), block.parity(step) ^ 1); /* it is a branch */
                this->probabilities_and_gradient(step, u * PAIR_ROWS);
                to_operand<T, 1, PAIR_ROWS / 4>(prob, s);
                to_operand<T, 1, PAIR_ROWS / 4>(ds, dp);
            } else {
                this->probabilities(step, u * PAIR_ROWS);
                to_operand<T, 1, PAIR_ROWS / 4>(prob, s);
                pin(prob[0]); /* not later, when dP is waited for */
                wgmma_wait<0>();
                pin(dp);
                this->gradient(step);
                to_operand<T, 1, PAIR_ROWS / 4>(ds, dp);
                mbarrier_wait(block.ds_empty(step), block.parity(step) ^ 1);
            }
            /* dS to both blocks, and dV */
            this->store_ds(ds, step);
            arrive(block.ds_stored(step));
            this->start_dv(prob, step);
            /* dK, and every second step dQ of the step before, which needs the dS of both blocks */
            if (step > 0 && (step - 1) % 2 == wg) {
                float dq[mem::DQ];
                start_dq(dq, step - 1);
                this->start_dk(ds, step);
                wgmma_wait<1>();
                pin(dv);
                pin(dq);
                if (DO_AHEAD)
                    arrive(block.added(step));
                release_ds(step - 1);
                add_dq(dq, step - 1, place_before);
            } else {
                this->start_dk(ds, step);
                if constexpr (DO_AHEAD) {
                    wgmma_wait<1>();
                    pin(dv);
                    arrive(block.added(step));
                }
            }
            wgmma_wait<0>();
            pin(dv);
            pin(dk);
            arrive(block.empty(step));
            advance();
        }
        /* dQ of the last step */
        if (steps > 0 && (steps - 1) % 2 == wg) {
            float dq[mem::DQ];
            start_dq(dq, steps - 1);
            wgmma_wait<0>();
            pin(dq);
            add_dq(dq, steps - 1, place_before);
        }
    }
};

/* ---- the first warpgroup and the kernel ---- */

/* What else the first step needs: this block's half of d of both blocks' K, for dQ. */
template <int D>
struct pair_more {
    using mem = pair_memory<D>;
    static constexpr int BYTES = mem::tile_half::BYTES * (mem::HAS_K2 ? 2 : 1);
    int k_begin = 0; /* a document's first key */
    __device__ __forceinline__ void operator()(const backward_params &p, pair_block<D> block, uint32_t bar) const
    {
        const volatile backward_job &job = block.job();
        const int rank = cluster_rank(), d = rank * (D / 2), tile = job.key_tile;
        if (mem::HAS_K2)
            tma_load_4d(block.base + mem::K2, &p.k_map, bar, d, k_begin + tile * BACKWARD_KEYS, job.h_kv, job.b);
        tma_load_4d(block.base + mem::OTHER_K, &p.k_map, bar, d, k_begin + (tile ^ 1) * BACKWARD_KEYS, job.h_kv, job.b);
    }
};

/* One thread: each step's dS, when all have stored it, to the other block. It may write there as soon as the key groups here
 * could store: they waited until dQ had read the slot in both blocks. */
template <int D>
__device__ __forceinline__ void pair_send(pair_block<D> block)
{
    constexpr int BYTES = pair_memory<D>::tile_ds::BYTES;
    const int steps = block.job().steps;
    const uint32_t other = cluster_map(block.base, cluster_rank() ^ 1);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const uint32_t full = block.ds_full(step);
        mbarrier_wait(block.ds_stored(step), block.parity(step));
        fence_async_proxy();
        mbarrier_expect(full, BYTES); /* bytes that the other block sends */
        copy_to_block(other + (block.other_ds(step) - block.base), block.ds_tile(step), BYTES,
                      other + (full - block.base));
    }
}

/* Two threads: one waits until this block may add, the other passes on that it has. In the wide kernel two threads pass on in
 * alternation; here a release waits for 16 KB, about 1 us of a step of 2.5, so one thread is back in time. */
template <bool WINDOW, class MEM>
__device__ __forceinline__ void pair_keep_order(const backward_params &p, backward_block<MEM> block)
{
    uint32_t *const order = p.order + cluster_rank() * p.sums * p.batch * p.heads * p.query_blocks;
    wait_for_previous_kernel(); /* counts start at zero */
    if (threadIdx.x == 64)
        backward_await<2, WINDOW>(p, block, order);
    else
        backward_pass_on<2, 1, WINDOW>(p, block, order, 0);
}

/* WINDOW: a query also sees no key that is more than window_left before its own; comes with CAUSAL. PACKED: a pair belongs to a
 * document; comes with WINDOW, in any order. Boxes at its end hold rows of the next document: those queries have lse2 = inf, so
 * that P and dS are 0 as past the end, and those keys are masked and their rows not stored. */
template <class T, int D, bool CAUSAL, bool ORDERED, bool WINDOW = false, bool PACKED = false>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1)
    flash_backward_pair(const __grid_constant__ backward_params whole)
{
    static_assert(!WINDOW || CAUSAL, "what a window goes with");
    static_assert(!PACKED || (WINDOW && !ORDERED), "what documents go with");
    constexpr bool DO_AHEAD = pair_loads_do_ahead(ORDERED, WINDOW, PACKED);
    extern __shared__ __align__(1024) unsigned char smem[];
    const typename pair_block<D>::wide wide = {smem_u32(smem), smem};
    const pair_block<D> block = wide;
    const int warpgroup = uniform(threadIdx.x / 128);

    if (threadIdx.x == 0) {
        block.init_pair_barriers();
        backward_begin<2, typename pair_memory<D>::block_memory, CAUSAL, WINDOW, DO_AHEAD>(
            whole, wide, PACKED ? (volatile backward_document *)(smem + pair_memory<D>::DOCUMENT) : nullptr);
    }
    cluster_sync_shared();
    let_next_kernel_start();
    backward_document document = {};
    if constexpr (PACKED) {
        if (uniform(wide.job().steps) == 0)
            return; /* both blocks of the pair do */
        document = backward_document_of(smem + pair_memory<D>::DOCUMENT);
    }
    const backward_params &p = backward_problem<T, PACKED>(whole, document);

    if (warpgroup == 0) {
        registers_lower<24>();
        if (threadIdx.x == 0)
            backward_load<2, WINDOW, DO_AHEAD>(whole, wide, pair_more<D>{document.begin.k}, document.begin);
        else if (threadIdx.x == 32)
            pair_send(block);
        else if (ORDERED && p.order && threadIdx.x % 32 == 0)
            pair_keep_order<WINDOW>(whole, wide);
        __syncwarp();
        cluster_wait();
        return;
    }

    registers_raise<240>();
    pair_keys<T, D, CAUSAL, ORDERED, WINDOW, PACKED> keys(p, block, warpgroup - 1);
    wait_for_previous_kernel(); /* sums, zeroed or free */
    keys.run();
    store_own_rows<T>(p, keys);
    cluster_wait(); /* the other block has all that was sent from here: its last dQ waited for it */
}

} // namespace flash_hopper
