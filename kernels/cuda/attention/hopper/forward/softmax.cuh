/* SPDX-License-Identifier: MIT */
/* FlashAttention forward for Hopper: softmax of one block of scores in registers.
 *
 * Lazy maximum: the running maximum that probabilities are relative to need not be the true one, only the same for O and
 * the sum. So it moves only when a row's true one exceeds it by more than 8 in log2 units; O is rarely rescaled, and
 * probabilities stay below 2^8, which neither bf16 nor fp16 minds. (As in FlashAttention-4.) (Exponentials by
 * polynomial on the FMA pipes lost at every head_dim: the notes say how much.) */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_FORWARD_SOFTMAX_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_FORWARD_SOFTMAX_CUH

#include "kernels/cuda/hopper/tile.cuh"

namespace flash_sm90
{

constexpr float LAZY_LIMIT = 8; /* log2 units */

/* Running max (unscaled) and sum of the two rows a thread holds. */
struct row_state {
    float max[2], sum[2];
};

/* Scores of one key block to probabilities in place; factor is what older sums and O must be multiplied by. False: the
 * factors of the whole warp are 1. */
template <bool LAZY, int BN>
__device__ __forceinline__ bool softmax_block(float (&s)[BN / 2], row_state &rows, float (&factor)[2], float c)
{
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = fmaxf(s[2 * r], s[2 * r + 1]), top2 = fmaxf(s[4 + 2 * r], s[4 + 2 * r + 1]);
#pragma unroll
        for (int j = 2; j < BN / 8; j += 2) {
            top = fmaxf(top, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
            top2 = fmaxf(top2, fmaxf(s[4 * j + 4 + 2 * r], s[4 * j + 4 + 2 * r + 1]));
        }
        top = fmaxf(rows.max[r], quad_max(fmaxf(top, top2)));
        if constexpr (LAZY) {
            if ((top - rows.max[r]) * c > LAZY_LIMIT) /* not when both are -inf */
                moved = true;
            else
                top = rows.max[r];
        }
        const float finite_top = top == -INFINITY ? 0.f : top, shift = finite_top * c; /* no keys so far: exp2(-inf) */
        /* the difference first: a fused multiply-add would leave the product's rounding, a factor not quite 1 while the
         * maximum stays, and a drift over many blocks */
        factor[r] = exp2_approx((rows.max[r] - finite_top) * c);
        rows.max[r] = top;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < BN / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float p = exp2_approx(fmaf(s[4 * j + 2 * r + e], c, -shift));
                s[4 * j + 2 * r + e] = p;
                sum += p;
            }
        rows.sum[r] = rows.sum[r] * factor[r] + sum;
    }
    return LAZY ? __any_sync(~0u, moved) : true;
}

/* Keys at or past the limit of a row get -inf. limit[r] counts from this thread's first column of the block. */
template <int BN>
__device__ __forceinline__ void mask_block(float (&s)[BN / 2], const int (&limit)[2])
{
#pragma unroll
    for (int j = 0; j < BN / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (8 * j + (e & 1) >= limit[e >> 1])
                s[4 * j + e] = -INFINITY;
}

} // namespace flash_sm90
#endif
