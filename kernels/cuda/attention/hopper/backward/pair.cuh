/* SPDX-License-Identifier: MIT */
/* FlashAttention backward for Hopper, 16-bit, head_dim above 64, long sequences: the wide kernel's work with half of its
 * additions to dQ. Launched by pair.cu; products and notation are those of wide.cuh.
 *
 * What bounds the wide kernel is adding dQ: 32 KB a step of 64 queries and 128 keys. All multiprocessors together add at
 * most 3.8 TB/s to L2, one alone 50 GB/s, and a warp that adds is held up until its additions are on the way. So two blocks
 * of a cluster take 256 keys, 128 each, against the same queries, send each other their dS, and each multiplies the dS of
 * both with its own half of d of all 256 keys: 16 KB of additions a step for each.
 *
 * dQ of a step is computed while the next one's dS is, so that nobody waits for the other block; by one key group, then by the
 * other, so that one adds while the other computes.
 * A fence between ordinary and asynchronous writes holds up a thread until its additions are done. So the key groups only say
 * that they have stored dS; a thread of the first warpgroup, which never adds, does the fence, and sends.
 *
 * Deterministic mode (ORDERED): that of wide.cuh, with pairs for key tiles. The two blocks of a pair add to
 * different halves of d and so take turns apart from each other, each with counters of its own. A pair waits
 * only for pairs of its head that started before it, and its blocks otherwise only for each other, so the first pair that is
 * not done can always go on. Of the two idle warps one asks for turns and one gives them on. In the wide kernel two threads
 * give on in alternation; here a release waits for 16 KB, about 1 us of a step of 2.5, so one thread is back in time.
 *
 * Shared memory, bytes, D 128: the wide kernel's 161K, K of the other block 16K, its dS 2 x 16K = 209K; D 80 and 96 16K more
 * for the second half of K.
 * Registers of a consumer thread, D 128: dK 64, dV 64, S^T 32, dP^T or dQ 32, P and dS as operands 32 = 224 of 240.
 * Bounds, a step of a block at D 128: products 2560 clocks as before; shared memory 336 KB (as before, and dS out and in 32)
 * = 2690. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_PAIR_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_PAIR_CUH

#include "kernels/cuda/attention/hopper/backward/pair_keys.cuh"
#include "kernels/cuda/attention/hopper/backward/wide_load.cuh"
#include "kernels/cuda/attention/hopper/backward/wide_rows.cuh"

namespace flash_sm90
{

/* What else the first step needs: this block's half of d of both blocks' K, for dQ. */
template <int D>
struct pair_more {
    using mem = pair_memory<D>;
    static constexpr int BYTES = mem::tile_half::BYTES * (mem::HAS_K2 ? 2 : 1);
    __device__ __forceinline__ void operator()(const backward_params &p, pair_block<D> block, uint32_t bar) const
    {
        const volatile backward_job &job = block.job();
        const int rank = cluster_rank(), d = rank * (D / 2), tile = job.key_tile;
        if (mem::HAS_K2)
            tma_load_4d(block.base + mem::K2, &p.k_map, bar, d, tile * BACKWARD_KEYS, job.h_kv, job.b);
        tma_load_4d(block.base + mem::PEER_K, &p.k_map, bar, d, (tile ^ 1) * BACKWARD_KEYS, job.h_kv, job.b);
    }
};

/* One thread: each step's dS, when all have stored it, to the other block. It may write there as soon as the key groups here
 * could store: they waited until dQ had read the slot in both blocks. */
template <int D>
__device__ __forceinline__ void pair_send(pair_block<D> block)
{
    constexpr int BYTES = pair_memory<D>::tile_ds::BYTES;
    const int steps = block.job().steps;
    const uint32_t peer = cluster_map(block.base, cluster_rank() ^ 1);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const uint32_t full = block.ds_full(step);
        mbarrier_wait(block.ds_stored(step), block.parity(step));
        fence_async_proxy();
        mbarrier_expect(full, BYTES); /* of the other block's */
        copy_to_block(peer + (block.peer_ds(step) - block.base), block.ds_tile(step), BYTES,
                      peer + (full - block.base));
    }
}

/* Two threads: one asks for this block's turns, the other gives them on. */
template <class MEM>
__device__ __forceinline__ void pair_take_turns(const backward_params &p, backward_block<MEM> block)
{
    uint32_t *const turn = p.turn + cluster_rank() * p.sums * p.batch * p.heads * p.query_blocks;
    wait_for_previous_kernel(); /* turns start at zero */
    if (threadIdx.x == 64)
        backward_watch<2>(p, block, turn);
    else
        backward_report<2, 1>(p, block, turn, 0);
}

template <class T, int D, bool CAUSAL, bool ORDERED>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1) flash_backward_pair(const __grid_constant__ backward_params p)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const typename pair_block<D>::wide wide = {smem_u32(smem), smem};
    const pair_block<D> block = wide;
    const int warpgroup = uniform(threadIdx.x / 128);

    if (threadIdx.x == 0) {
        block.init_pair_barriers();
        backward_begin<2, typename pair_memory<D>::block_memory, CAUSAL>(p, wide);
    }
    cluster_sync_shared();
    let_next_kernel_start();

    if (warpgroup == 0) {
        registers_lower<24>();
        if (threadIdx.x == 0)
            backward_load<2>(p, wide, pair_more<D>());
        else if (threadIdx.x == 32)
            pair_send(block);
        else if (ORDERED && p.turn && threadIdx.x % 32 == 0)
            pair_take_turns(p, wide);
        __syncwarp();
        cluster_wait();
        return;
    }

    registers_raise<240>();
    pair_keys<T, D, CAUSAL, ORDERED> keys(p, block, warpgroup - 1);
    wait_for_previous_kernel(); /* sums, zeroed or free */
    keys.run();
    store_own_rows<T>(p, keys);
    cluster_wait(); /* the other block has all that was sent from here: its last dQ waited for it */
}

} // namespace flash_sm90
#endif
