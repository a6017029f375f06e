/* SPDX-License-Identifier: MIT */
/* FlashAttention backward for Hopper: the main kernel that takes every shape. Launched by host.cu.
 *
 *   P = exp2(S c - lse2)   dP = dO V^T   dS = P (dP - delta)   dV = P^T dO   dK = dS^T Q scale   dQ = dS K scale
 *
 * A block owns 128 keys of one key/value head (two consumer warpgroups of 64), walks the query blocks of every query
 * head of its group and keeps dK and dV in registers. Everything is computed transposed, S^T = K Q^T and dP^T = V dO^T,
 * so that P^T and dS^T are already operands in registers for dV and dK; only dS passes through shared memory, for
 * dQ = dS K. Each group has a half of dQ: of the columns of d if a step has 64 queries, else it computes dQ^T = K^T dS^T and
 * has 64 rows of d or half of the queries. dQ leaves by vector reductions into an fp32 buffer in fragment order, which a later
 * kernel turns into rows.
 *
 * The two groups meet in every step, when both halves of dS are there. (With dQ a step late they can drift apart or
 * take turns, which gained 1 % at S 16384 and lost 1.5 to 5 % elsewhere.)
 *
 * Tiles (query rows BM): head_dim above 64: 64, fp32 32; else 128, fp32 64.
 * Columns D that products have: 64, 80, 96 or 128, fp32 64 or 128; tiles in shared memory have 64 or 128.
 * Shared memory, bytes, D 128: K 32K, V 32K, Q 2 x 16K, dO 2 x 16K, dS 2 x 16K = 160K (fp32: 64+64+32+32+32 = 224K); D 80
 * and 96 16K more, the second half of K once more so that it begins a panel.
 * Registers of a consumer thread, D 128: dK 64, dV 64, S^T 32, dP^T or dQ 32, P or dS as operand 16 = 208 of 240.
 * Bounds, a step of 64 queries at D 128: products 5 x 2 x 64 x 128 x 128 at 4096 FLOP a clock = 2560 clocks; shared
 * memory 304 KB (S 64, dP 64, dV 32, dK 32, dQ 64, dS 16, loads 32) at 128 B a clock = 2430. D 96: 1920 clocks, D 80:
 * 1600.
 *
 * Few key tiles: a cluster of blocks shares one, each takes a range of its steps, and they add their dK and dV through
 * distributed shared memory, in a fixed order.
 *
 * Deterministic mode: the key tiles of a head add to one of several sums of dQ, in turns, and the kernel after adds the sums up
 * in their order. The first adder of a query block stores, so that nothing need be zero before. order.c says how
 * many sums there are; with one for each key tile there are no turns, and blocks walk as in the default mode.
 *
 * The adders of one query block of a sum take turns in the order in which their blocks start, so that no block waits for one
 * that can't run. Waiting and giving on are done by idle warps of the first group. The blocks of a cluster take every split-th
 * step: with ranges, each would begin where another block of the tile before ends. They start together, wait for each other
 * only when they merge, and otherwise only for tiles of clusters that started before; so the first cluster that is not done can
 * always go on.
 *
 * Late adders walk from the last query to the diagonal, the first key tile first: each tile of a sum stays behind the one
 * before, the later ones are shorter (by more, the more sums there are: hence every n-th tile and not ranges of them), and the
 * longest start first. But all of a first round start at the same query, and so the last one of a row is late by a hand-over,
 * 1.75 us, for each before it. Many heads have short rows. For few heads and causal, the first round are early adders, as many
 * tiles of a head as run at once: they walk from the diagonal on, the last tile first. All start together, but each at a
 * diagonal of its own, so that it comes to every query block a tile's steps after the one ahead of it, which has added by then.
 * They have sums of their own, since the last queries, where late adders begin, are where they end; late adders start as they
 * end, one after the other, and so are apart, too. (If all tiles were early ones, the longest would start last.) */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_CUH

#include "kernels/cuda/attention/hopper/backward/wide_keys.cuh"
#include "kernels/cuda/attention/hopper/backward/wide_load.cuh"
#include "kernels/cuda/attention/hopper/backward/wide_rows.cuh"
#include "kernels/kernels.h"

namespace flash_sm90
{

template <class T, int PLANES, int D, int BM, bool CAUSAL>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1) flash_backward(const __grid_constant__ backward_params p)
{
    using mem = backward_memory<PLANES, D, BM>;
    extern __shared__ __align__(1024) unsigned char smem[];
    const backward_block<mem> block = {smem_u32(smem), smem};
    const int warpgroup = uniform(threadIdx.x / 128);

    if (threadIdx.x == 0)
        backward_begin<1, mem, CAUSAL>(p, block);
    __syncthreads();
    let_next_kernel_start();

    if (warpgroup == 0) {
        registers_lower<24>();
        if (threadIdx.x == 0 && block.job().steps > 0) {
            backward_load<1>(p, block, backward_second_k<mem>());
        } else if (p.turn && threadIdx.x % 32 == 0) {
            wait_for_previous_kernel(); /* turns start at zero */
            if (threadIdx.x == 32)
                backward_watch<1>(p, block, p.turn);
            else if (threadIdx.x > 32)
                backward_report<1, 2>(p, block, p.turn, threadIdx.x / 32 - 2);
        }
        if (cluster_size() > 1) { /* the block's shared memory must outlive its readers */
            __syncwarp();
            cluster_wait();
            cluster_wait();
        }
        return;
    }

    registers_raise<240>();
    backward_keys<T, PLANES, D, BM, CAUSAL> keys(p, block, warpgroup - 1);
    wait_for_previous_kernel(); /* sums, zeroed or free */
    keys.run();
    store_key_rows<typename memory_type<T, PLANES>::type>(p, keys, block.base, smem);
}

} // namespace flash_sm90
#endif
