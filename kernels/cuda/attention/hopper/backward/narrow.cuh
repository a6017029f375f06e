/* SPDX-License-Identifier: MIT */
/* FlashAttention backward for Hopper at head_dim <= 64, 16-bit: the main kernel. Launched by
 * narrow.cu; the products and their notation are those of wide.cuh.
 *
 * Blocks stay on their multiprocessor and take jobs: 128 keys of one key/value head against every query of its group,
 * 64 queries a step, from the last query back to the diagonal. Four warpgroups, which meet only at mbarriers:
 *   loader    one thread: K and V of a job into one of two slots (so that the next job's come under this one's steps),
 *             Q, dO, lse2 and delta of a step into a ring; three more for turns, below;
 *   keys 0, 1 64 keys each: S^T and dP^T, P and dS in registers, dV and dK in registers; dS^T to shared memory;
 *   queries   dQ^T = K^T dS^T of both groups' keys, added to an fp32 buffer in fragment order.
 * So one key group's exponentials run under the other's products and under dQ, and additions to memory delay nobody.
 *
 * Bounds, a step on one multiprocessor: products 5 x 64 x 128 x 64 at 4096 FLOP a clock = 1280 clocks; shared memory
 * 160 KB (S 32, dP 16, dV 16, dK 16, dQ 32, dS 16, loads 16, lse2 and delta 16) at 128 B a clock = 1280; L2 16 KB of
 * loads and 16 KB of additions.
 *
 * V is the A operand of dP and lies in registers. On the diagonal the second group has none of its keys in the last
 * step of a head and passes it.
 *
 * Adders of one query block of dQ come in any order, or take turns in the order of the key tiles: then dQ is the same on
 * every run, the first stores instead of adding and the last writes the tensor, so that the sums need no zeros before
 * and no pass after. Jobs are given out in that order, so no job waits for one that nobody has taken. All jobs of a head
 * start at its last query: each stays about a step behind the one before, and when causal the later ones are shorter by
 * two. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_NARROW_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_NARROW_CUH

#include "kernels/cuda/attention/hopper/backward/narrow_keys.cuh"
#include "kernels/cuda/attention/hopper/backward/narrow_queries.cuh"

namespace flash_sm90
{

/* Jobs are numbered longest first within a section of heads. */
template <bool CAUSAL>
__device__ __forceinline__ narrow_job narrow_decode(const narrow_params &p, int number)
{
    if (number >= p.jobs)
        return {-1, 0, 0, 0};
    const int section = min(number / (p.section * p.key_tiles), p.sections - 1), first_head = section * p.section;
    const int section_heads = section == p.sections - 1 ? p.batch * p.heads_kv - first_head : p.section;
    const int in_section = number - first_head * p.key_tiles, key_tile = in_section / section_heads;
    const int head = first_head + in_section - key_tile * section_heads, b = head / p.heads_kv;
    const int key_first = key_tile * NARROW_KEYS;
    /* causal: query i sees keys j <= i + Sk - Sq */
    return {b, head - b * p.heads_kv, key_first, CAUSAL ? max(key_first + p.seq_q - p.seq_k, 0) / NARROW_ROWS : 0};
}

template <bool CAUSAL>
__device__ __forceinline__ void narrow_load(const narrow_params &p, narrow_block block)
{
    using mem = narrow_memory;
    /* In turns no job may wait for one that nobody has taken: all are given out by the counter. Else the first job's
     * loads may run under the end of the kernel ahead, which zeroes the counter. */
    if (p.turn)
        wait_for_previous_kernel();
    const int given = p.turn ? 0 : gridDim.x;
    int number = p.turn ? (int)atomicAdd(p.next_job, 1) : blockIdx.x;
    unsigned step = 0;
    for (unsigned n = 0;; n++) {
        const narrow_job job = narrow_decode<CAUSAL>(p, number);
        mbarrier_wait(block.kv_empty(n), block.job_parity(n) ^ 1);
        volatile narrow_job *const slot = block.job_slot(n);
        slot->b = job.b, slot->h_kv = job.h_kv, slot->key_first = job.key_first, slot->query_begin = job.query_begin;
        if (job.b < 0) {
            mbarrier_arrive(block.kv_full(n));
            return;
        }
        /* Q, K, V and dO are older than the kernel ahead, which waited for them before this one could start */
        mbarrier_expect(block.kv_full(n), 2 * mem::tile_kv::BYTES);
        load_tile<mem::tile_kv>(block.k_tile(n), &p.k_map, block.kv_full(n), job.key_first, job.h_kv, job.b, p.batch);
        load_tile<mem::tile_kv>(block.v_tile(n), &p.v_map, block.kv_full(n), job.key_first, job.h_kv, job.b, p.batch);
        for (int h = job.h_kv * p.group; h < (job.h_kv + 1) * p.group; h++)
#pragma unroll 1 /* four steps in a row would need more registers than the loader has */
            for (int i = p.query_blocks - 1; i >= job.query_begin; i--, step++) {
                const uint32_t parity = block.step_parity(step) ^ 1;
                mbarrier_wait(block.q_empty(step), parity);
                mbarrier_expect(block.q_full(step), mem::tile_q::BYTES + NARROW_ROWS * 4);
                load_tile<mem::tile_q>(block.q_tile(step), &p.q_map, block.q_full(step), i * NARROW_ROWS, h, job.b,
                                       p.batch);
                wait_for_previous_kernel(); /* lse2, delta, zeroed sums and counters */
                tma_load_2d(block.base + block.lse(step), &p.lse_map, block.q_full(step), i * NARROW_ROWS,
                            job.b * p.heads + h);
                mbarrier_wait(block.do_empty(step), parity);
                mbarrier_expect(block.do_full(step), mem::tile_q::BYTES + NARROW_ROWS * 4);
                load_tile<mem::tile_q>(block.do_tile(step), &p.do_map, block.do_full(step), i * NARROW_ROWS, h, job.b,
                                       p.batch);
                tma_load_2d(block.base + block.delta(step), &p.delta_map, block.do_full(step), i * NARROW_ROWS,
                            job.b * p.heads + h);
            }
        number = given + (int)atomicAdd(p.next_job, 1); /* late: whoever is done first takes the next */
    }
}

template <class T, bool CAUSAL>
__global__ void __launch_bounds__(NARROW_THREADS, 1) flash_backward_narrow(const __grid_constant__ narrow_params p)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const narrow_block block = {smem_u32(smem), smem};
    const int warpgroup = uniform(threadIdx.x / 128);

    if (threadIdx.x == 0) {
        tma_prefetch(&p.k_map);
        tma_prefetch(&p.v_map);
        tma_prefetch(&p.q_map);
        tma_prefetch(&p.do_map);
        tma_prefetch(&p.lse_map);
        tma_prefetch(&p.delta_map);
        tma_prefetch(&p.dk_map);
        tma_prefetch(&p.dv_map);
        tma_prefetch(&p.dq_map);
        block.init_barriers();
        mbarrier_init_fence();
    }
    __syncthreads();
    let_next_kernel_start();

    if (warpgroup == 0) {
        registers_lower<24>();
        if (threadIdx.x == 0) {
            narrow_load<CAUSAL>(p, block);
        } else if (p.turn && threadIdx.x % 32 == 0) {
            wait_for_previous_kernel(); /* turns start at zero */
            if (threadIdx.x == 32)
                narrow_watch(p, block);
            else
                narrow_report_turns(p, block, threadIdx.x / 32 - 2);
        }
    } else if (warpgroup == 3) {
        registers_lower<72>();
        wait_for_previous_kernel(); /* zeroed sums */
        narrow_queries<T, CAUSAL>(p, block);
    } else {
        registers_raise<208>();
        wait_for_previous_kernel();
        narrow_keys<T, CAUSAL>(p, block, warpgroup - 1).run();
    }
}

} // namespace flash_sm90
#endif
