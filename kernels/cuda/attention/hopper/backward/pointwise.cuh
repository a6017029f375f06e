/* SPDX-License-Identifier: MIT */
/* What both main kernels of the Hopper backward do with transposed scores, S^T and dP^T of 64 keys and N / 32 * 64 queries,
 * in the fragments of a thread: two keys, and pairs of queries. lse2 and delta are in fragment_order; a thread's numbers of
 * 16 queries begin at twice its first query. */
#pragma once

#include "kernels/cuda/hopper/tile.cuh"

namespace flash_hopper
{

using namespace hopper;

/* lse2 or delta of a thread's queries. Loaded before the wait for the product that they belong to they are there in time: among
 * products, which read shared memory as fast as it goes, a load takes hundreds of clocks. */
template <int N>
struct query_numbers {
    float4 x[N / 8];

    __device__ __forceinline__ void load(const float *from)
    {
#pragma unroll
        for (int j = 0; j < N / 8; j++)
            x[j] = *(const float4 *)(from + 16 * j);
    }
    /* For the i-th accumulator. */
    __device__ __forceinline__ float of(int i) const
    {
        const float pair[4] = {x[i / 8].x, x[i / 8].y, x[i / 8].z, x[i / 8].w};
        return pair[i % 8 / 4 * 2 + i % 2];
    }
};

/* s: scores to P, in two parts: lse2 is not needed after the first. Where no branch is between here and the stores of dS, ptxas
 * puts the arithmetic of dS between the exponentials, for which there are few units; so scores are masked before. */
template <int N>
__device__ __forceinline__ void scores_to_exponents(float (&s)[N], const query_numbers<N> &lse2, float scale_log2)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        s[i] = fmaf(s[i], scale_log2, -lse2.of(i));
}
/* With natural lse and scores that are f times as large: the difference is rounded once, whatever the size of the scores. */
template <int N>
__device__ __forceinline__ void scaled_scores_to_exponents(float (&s)[N], const query_numbers<N> &lse, float f)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        s[i] = fmaf(s[i], f, -lse.of(i)) * LOG2E;
}
template <int N>
__device__ __forceinline__ void exponentials(float (&s)[N], int first = 0, int end = N)
{
#pragma unroll
    for (int i = first; i < end; i++)
        s[i] = exp2_approx(s[i]);
}

/* A score whose P is 0. */
__device__ __forceinline__ float hidden_score(float scale_log2)
{
    return -copysignf(INFINITY, scale_log2);
}
/* Queries before limit[r], counted from the thread's first, do not see its key r: their scores, or P, become `hidden`. */
template <int N>
__device__ __forceinline__ void mask_queries(float (&s)[N], const int (&limit)[2], float hidden)
{
#pragma unroll
    for (int j = 0; j < N / 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (8 * j + (e & 1) < limit[e >> 1])
                s[4 * j + e] = hidden;
}

/* Hides the queries from limit[r] on. */
template <int N>
__device__ __forceinline__ void mask_queries_from(float (&s)[N], const int (&limit)[2], float hidden)
{
#pragma unroll
    for (int j = 0; j < N / 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (8 * j + (e & 1) >= limit[e >> 1])
                s[4 * j + e] = hidden;
}

/* dp: to dS = P (dP - delta), of dP that is f times as large, f a power of two. */
template <int N>
__device__ __forceinline__ void to_score_gradient(float (&dp)[N], const float (&p)[N], const query_numbers<N> &delta,
                                                  float f = 1)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        dp[i] = p[i] * fmaf(dp[i], f, -delta.of(i));
}

/* Where a lane's row and 16-byte chunk are when a warp's 16 columns of 16 rows go to a panel by transposing stores. */
__device__ __forceinline__ uint32_t transposed_place(int warp, int lane)
{
    return (lane / 16 * 8 + lane % 8) * ROW_BYTES + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
}

} // namespace flash_hopper
