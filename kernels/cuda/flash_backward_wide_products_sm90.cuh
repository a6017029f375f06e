/* Products of the wide backward in which only the first D columns of padded tiles take part. */
#ifndef STEPBENCH_FLASH_BACKWARD_WIDE_PRODUCTS_SM90_CUH
#define STEPBENCH_FLASH_BACKWARD_WIDE_PRODUCTS_SM90_CUH

#include "kernels/cuda/flash_backward_wide_layout_sm90.cuh"
#include "kernels/cuda/flash_backward_wide_wgmma_sm90.cuh"

namespace flash_sm90
{

/* X = A B^T over D columns: A 64 rows from a_addr on, B N rows from b_addr on, both K-major. */
template <class T, class TA, class TB, int D, int N>
__device__ __forceinline__ void mma_columns(float (&x)[N / 2], uint32_t a_addr, uint32_t b_addr)
{
    const uint64_t a0 = wgmma_descriptor(a_addr, 16), b0 = wgmma_descriptor(b_addr, 16);
#pragma unroll
    for (int p = 0; p < products<TA::PLANES>::COUNT; p++)
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            const int a = plane_a(p) * TA::PLANE_BYTES + k / 4 * TA::PANEL_BYTES + k % 4 * 32;
            const int b = plane_b(p) * TB::PLANE_BYTES + k / 4 * TB::PANEL_BYTES + k % 4 * 32;
            wgmma<T, N, 0, 0>(x, a0 + (a >> 4), b0 + (b >> 4), p + k != 0);
        }
}

/* X += A B: A (64 x ROWS of B) in registers, B's rows the k index, its first D columns. */
template <class T, class TB, int D>
__device__ __forceinline__ void mma_keys(float (&x)[D / 2], const uint32_t (&a)[1][TB::ROWS / 4], uint32_t b_addr)
{
    const uint64_t b0 = wgmma_descriptor(b_addr, TB::PANEL_BYTES);
#pragma unroll
    for (int k = 0; k < TB::ROWS / 16; k++)
        wgmma_add<T, D>(x, &a[0][4 * k], b0 + (k * 16 * ROW_BYTES >> 4));
}

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

} // namespace flash_sm90
#endif
