/* SPDX-License-Identifier: MIT */
/* The products of the wide backward that hopper/tile.cuh has not. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_PRODUCTS_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_PRODUCTS_CUH

#include "kernels/cuda/attention/hopper/backward/wide_layout.cuh"

namespace flash_sm90
{

/* dQ^T of a group: 64 rows of d times N queries, A = K^T read transposed, B = dS. */
template <class T, class TKV, class TDS, int N>
__device__ __forceinline__ void mma_dq(float (&dq)[N / 2], uint32_t k_addr, uint32_t ds_addr)
{
    const uint64_t a0 = wgmma_descriptor(k_addr, 16), b0 = wgmma_descriptor(ds_addr, 16);
#pragma unroll
    for (int p = 0; p < products<TKV::PLANES>::COUNT; p++)
#pragma unroll
        for (int k = 0; k < BACKWARD_KEYS / 16; k++) {
            const int a = plane_a(p) * TKV::PLANE_BYTES + k * 16 * ROW_BYTES;
            const int b = plane_b(p) * TDS::PLANE_BYTES + k / 4 * TDS::PANEL_BYTES + k % 4 * 32;
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
        wgmma_any<T, N, 1>(dq, a0 + ((k / 4 * TDS::PANEL_BYTES + k % 4 * 32) >> 4), b0 + (k * 16 * ROW_BYTES >> 4),
                           accumulate | k);
}

} // namespace flash_sm90
#endif
