/* SPDX-License-Identifier: MIT */
/* Rows of a result on the way out of a Hopper flash kernel: accumulators of a warp to a swizzled tile. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_ROWS_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_ROWS_CUH

#include "kernels/cuda/hopper/tile.cuh"
#include "kernels/cuda/hopper/store.cuh"

namespace flash_sm90
{

/* A warp's 16 rows of accumulators, times `above` in the first eight and `below` in the others, as 16-bit numbers to swizzled
 * panels of 64 columns. corner: address of the first row, a multiple of 8 rows from the panel's begin. */
template <class T, int COLUMNS, int PANEL_BYTES>
__device__ __forceinline__ void store_warp_rows16(uint32_t corner, const float (&x)[COLUMNS / 2], float above,
                                                  float below, int lane)
{
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2)
        store_matrix4(corner + j / 8 * PANEL_BYTES + lane % 16 * ROW_BYTES + ((j % 8 + lane / 16) ^ lane % 8) * 16,
                      pack(T(), x[4 * j] * above, x[4 * j + 1] * above),
                      pack(T(), x[4 * j + 2] * below, x[4 * j + 3] * below),
                      pack(T(), x[4 * j + 4] * above, x[4 * j + 5] * above),
                      pack(T(), x[4 * j + 6] * below, x[4 * j + 7] * below));
}

} // namespace flash_sm90
#endif
