/* SPDX-License-Identifier: MIT */
/* What the large, the tall and the latent backward share, where each block owns a key tile: products that read an operand transposed,
 * the start of a block and its first warpgroup, and their launch. */
#pragma once

#include "kernels/cuda/attention/hopper/backward/wide.cuh"

namespace flash_hopper
{

/* D (+)= A^T B: A is 64 columns of a panel in shared memory, with as many rows as B; N columns of B from b_addr on, a panel's begin. */
template <class T, class TB, int N>
__device__ __forceinline__ void mma_atb(float (&d)[N / 2], uint32_t a_addr, uint32_t b_addr)
{
    const uint64_t a0 = wgmma_descriptor(a_addr, 16), b0 = TB::descriptor(b_addr, TB::PANEL_BYTES);
    /* there is no transposed A with 96 or 192 columns: two products */
    constexpr int WIDE = N == 96 ? 64 : N == 192 ? 128 : N;
    static_assert(WIDE == N || WIDE % TB::PANEL == 0, "whole panels, but for the last");
#pragma unroll
    for (int k = 0; k < TB::ROWS / 16; k++) {
        const uint64_t a = a0 + (k * 16 * ROW_BYTES >> 4), b = b0 + (k * 16 * TB::PANEL_ROW >> 4);
        wgmma<T, WIDE, 1, 1>(*(float(*)[WIDE / 2]) d, a, b, 1);
        if constexpr (WIDE < N)
            wgmma<T, N - WIDE, 1, 1>(*(float(*)[(N - WIDE) / 2])(d + WIDE / 2), a,
                                     b + (WIDE / TB::PANEL * TB::PANEL_BYTES >> 4), 1);
    }
}

/* D = A B: A 64 rows from a_addr on, B's rows the k index, N columns of it from b_addr on, a panel's begin. */
template <class T, class TA, class TB, int N>
__device__ __forceinline__ void mma_ab(float (&d)[N / 2], uint32_t a_addr, uint32_t b_addr)
{
    const uint64_t a0 = TA::descriptor(a_addr, 16), b0 = TB::descriptor(b_addr, TB::PANEL_BYTES);
#pragma unroll
    for (int k = 0; k < TB::ROWS / 16; k++)
        wgmma<T, N, 0, 1>(d, a0 + (TA::step(k) >> 4), b0 + (k * 16 * TB::PANEL_ROW >> 4), k);
}

/* Returns the address in a way that the compiler cannot see through. Otherwise it would keep what products before and in the loop
 * have in common, descriptors of every step of 16 columns, in registers, and ptxas would spill them. */
__device__ __forceinline__ uint32_t anew(uint32_t address)
{
    asm volatile("mov.u32 %0, %0;" : "+r"(address));
    return address;
}

struct nothing_more {
    static constexpr int BYTES = 0;
    template <class MEM>
    __device__ __forceinline__ void operator()(const backward_params &, backward_block<MEM>, uint32_t) const
    {
    }
};

/* Barriers and the block's job; `document` is set if PACKED. False: the number has no tile. */
template <bool WINDOW, bool CAUSAL, bool PACKED, class MEM>
__device__ __forceinline__ bool backward_enter(const backward_params &p, backward_block<MEM> block,
                                               backward_document &document)
{
    unsigned char *const at = block.smem + MEM::tail::DOCUMENT;
    if (threadIdx.x == 0)
        backward_begin<1, MEM, CAUSAL, WINDOW>(p, block, PACKED ? (volatile backward_document *)at : nullptr);
    __syncthreads();
    let_next_kernel_start();
    if constexpr (PACKED) {
        if (uniform(block.job().steps) == 0)
            return false;
        document = backward_document_of(at);
    }
    return true;
}

/* The first warpgroup. */
template <bool WINDOW, class MEM>
__device__ __forceinline__ void backward_serve(const backward_params &p, backward_block<MEM> block,
                                               const backward_begins &begin)
{
    if (block.job().steps == 0)
        return;
    if (threadIdx.x == 0) {
        backward_load<1, WINDOW>(p, block, nothing_more(), begin);
    } else if (!WINDOW && p.order && threadIdx.x % 32 == 0) {
        wait_for_previous_kernel(); /* counts start at zero */
        if (threadIdx.x == 32)
            backward_await<1>(p, block, p.order);
        else
            backward_pass_on<1, 2>(p, block, p.order, threadIdx.x / 32 - 2);
    }
}

/* The main kernel that MEM is the memory of: large_memory<192>, <256>, tall_memory or latent_memory. T: bf16 or fp16. */
template <class T, class MEM>
sb_status backward_alone_launch(const backward_params &p, const sb_attention *a, cudaStream_t stream);

} // namespace flash_hopper
