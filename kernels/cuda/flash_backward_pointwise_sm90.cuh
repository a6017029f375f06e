/* What both main kernels of the Hopper backward do with transposed scores, S^T and dP^T of 64 keys and N / 32 * 64 queries,
 * in the fragments of a thread: two keys, and pairs of queries. lse2 and delta lie in fragment_order; a thread's numbers of
 * 16 queries begin at twice its first query. */
#ifndef STEPBENCH_FLASH_BACKWARD_POINTWISE_SM90_CUH
#define STEPBENCH_FLASH_BACKWARD_POINTWISE_SM90_CUH

#include "kernels/cuda/flash_sm90.cuh"

namespace flash_sm90
{

/* s: scores to P. */
template <int N>
__device__ __forceinline__ void scores_to_probabilities(float (&s)[N], const float *lse2, float scale_log2)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float4 l = *(const float4 *)(lse2 + 16 * j);
        const float pair[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
        for (int e = 0; e < 8; e++)
            s[8 * j + e] = exp2_approx(fmaf(s[8 * j + e], scale_log2, -pair[e / 4 * 2 + e % 2]));
    }
}

/* Queries before limit[r], counted from the thread's first, do not see its key r: their P is 0. */
template <int N>
__device__ __forceinline__ void mask_queries(float (&s)[N], const int (&limit)[2])
{
#pragma unroll
    for (int j = 0; j < N / 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (8 * j + (e & 1) < limit[e >> 1])
                s[4 * j + e] = 0;
}

/* dp: to dS = P (dP - delta). */
template <int N>
__device__ __forceinline__ void to_score_gradient(float (&dp)[N], const float (&p)[N], const float *delta)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float4 d = *(const float4 *)(delta + 16 * j);
        const float pair[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
        for (int e = 0; e < 8; e++)
            dp[8 * j + e] = p[8 * j + e] * (dp[8 * j + e] - pair[e / 4 * 2 + e % 2]);
    }
}

/* Where a lane's row and 16-byte chunk lie when a warp's 16 columns of 16 rows go to a panel by transposing stores. */
__device__ __forceinline__ uint32_t transposed_place(int warp, int lane)
{
    return (lane / 16 * 8 + lane % 8) * ROW_BYTES + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
}

} // namespace flash_sm90
#endif
