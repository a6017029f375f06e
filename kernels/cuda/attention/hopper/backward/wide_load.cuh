/* SPDX-License-Identifier: MIT */
/* The first warpgroup of the wide backward, and of the one for pairs: loads, and the two sides of taking turns; see
 * wide.cuh. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_LOAD_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_LOAD_CUH

#include "kernels/cuda/attention/hopper/backward/wide_layout.cuh"
#include "kernels/cuda/hopper/store.cuh"

namespace flash_sm90
{

/* One thread, first of all: barriers, and what the block does. TILES: see find_job; of pairs one group alone adds a step. */
template <int TILES, class MEM, bool CAUSAL>
__device__ __forceinline__ void backward_begin(const backward_params &p, backward_block<MEM> block)
{
    tma_prefetch(&p.k_map);
    tma_prefetch(&p.q_map);
    tma_prefetch(&p.v_map);
    tma_prefetch(&p.do_map);
    block.init_barriers(TILES == 1 ? 8 : 4);
    mbarrier_init_fence();
    find_job<TILES, MEM::tile_q::ROWS, CAUSAL>(p, block.job());
}

/* What else the first step needs: K from half of d on, for the second group's dQ. */
template <class MEM>
struct backward_second_k {
    static constexpr int BYTES = MEM::HAS_K2 ? MEM::tile_k2::BYTES : 0;
    __device__ __forceinline__ void operator()(const backward_params &p, backward_block<MEM> block, uint32_t bar) const
    {
        const volatile backward_job &job = block.job();
        if (MEM::HAS_K2)
            tma_load_4d(block.base + MEM::K2, &p.k_map, bar, MEM::COLUMNS / 2, job.key_tile * BACKWARD_KEYS, job.h_kv,
                        job.b);
    }
};

/* One thread: Q, dO, lse2 and delta of each step; K comes with the first Q, V and what `more` loads with the first dO. Q, K, V
 * and dO are older than the kernel ahead, which waited for them before this one could start. */
template <int TILES, class MEM, class MORE>
__device__ __forceinline__ void backward_load(const backward_params &p, backward_block<MEM> block, MORE more)
{
    using tile_kv = typename MEM::tile_kv;
    using tile_q = typename MEM::tile_q;
    constexpr int BM = tile_q::ROWS, BYTES = tile_q::BYTES + BM * 4;
    const volatile backward_job &job = block.job();
    const int steps = job.steps;
    backward_walk<TILES, BM> walk;
    walk.begin(p, job);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const int at = walk.block(p, job), row = at * BM, h = walk.head - job.b * p.heads, place = walk.place(p, job);
        mbarrier_wait(block.empty(step), block.parity(step) ^ 1);
        if (TILES == 1) /* pairs count for themselves */
            block.step_slot(step) = {row, at < job.stores_before ? ~place : place};
        mbarrier_expect(block.q_full(step), BYTES + (step == 0 ? tile_kv::BYTES : 0));
        if (step == 0)
            load_tile<tile_kv>(block.base + MEM::K, &p.k_map, block.q_full(0), job.key_tile * BACKWARD_KEYS, job.h_kv,
                               job.b, p.batch);
        load_tile<tile_q>(block.q_tile(step), &p.q_map, block.q_full(step), row, h, job.b, p.batch);
        wait_for_previous_kernel(); /* lse2, delta */
        tma_load_2d(block.base + block.lse(step), &p.lse_map, block.q_full(step), row, walk.head);
        mbarrier_expect(block.do_full(step), BYTES + (step == 0 ? tile_kv::BYTES + MORE::BYTES : 0));
        if (step == 0)
            load_tile<tile_kv>(block.base + MEM::V, &p.v_map, block.do_full(0), job.key_tile * BACKWARD_KEYS, job.h_kv,
                               job.b, p.batch);
        load_tile<tile_q>(block.do_tile(step), &p.do_map, block.do_full(step), row, h, job.b, p.batch);
        tma_load_2d(block.base + block.delta(step), &p.delta_map, block.do_full(step), row, walk.head);
        if (step == 0)
            more(p, block, block.do_full(0));
        walk.next(p, job);
    }
}

/* ---- turns: asking and telling take as long as a step, so each has a thread of its own. `turn`: of the first query block of
 * the first sum ---- */

/* Tells the key groups when the turn of each of their steps has come, at most BACKWARD_TURNS steps ahead of what has
 * been given on. */
template <int TILES, class MEM>
__device__ __forceinline__ void backward_watch(const backward_params &p, backward_block<MEM> block,
                                               const uint32_t *turn)
{
    const volatile backward_job &job = block.job();
    const int steps = job.steps;
    backward_walk<TILES, MEM::tile_q::ROWS> walk;
    walk.begin(p, job);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const uint32_t *const now = turn + walk.place(p, job), mine = walk.turn(p, job);
        mbarrier_wait(block.reported(step), block.turn_parity(step) ^ 1);
        while (load_acquire(now) != mine)
            __nanosleep(20);
        mbarrier_arrive(block.turn_here(step));
        walk.next(p, job);
    }
}

/* Gives the turn on, once what was added is there for whoever has it next: one of REPORTERS threads, of every
 * REPORTERS-th step from `first` on. */
template <int TILES, int REPORTERS, class MEM>
__device__ __forceinline__ void backward_report(const backward_params &p, backward_block<MEM> block, uint32_t *turn,
                                                int first)
{
    const volatile backward_job &job = block.job();
    const int steps = job.steps;
    backward_walk<TILES, MEM::tile_q::ROWS> walk;
    walk.begin(p, job);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        if (step % REPORTERS == first) {
            mbarrier_wait(block.added(step), block.turn_parity(step));
            store_release(turn + walk.place(p, job), walk.turn(p, job) + 1);
            mbarrier_arrive(block.reported(step));
        }
        walk.next(p, job);
    }
}

} // namespace flash_sm90
#endif
