/* FlashAttention forward for Hopper: softmax of one block of scores in registers.
 *
 * Lazy maximum: the running maximum that probabilities are relative to need not be the true one, only the same for O and
 * the sum. So it moves only when a row's true one exceeds it by more than 8 in log2 units; O is rarely rescaled, and
 * probabilities stay below 2^8, which neither bf16 nor fp16 minds. (As in FlashAttention-4.)
 *
 * Exponentials by polynomial: the special-function units compute 16 a clock and SM, half of what a block of head_dim 64
 * wants while its products run, and the FMA pipes have slots left. 2^x = 2^n 2^f with n = round(x): a polynomial in f
 * (1 + f c1 + ..., relative minimax on [-1/2, 1/2], by Remez's condition in the form of Lawson's weights), then n into
 * the exponent. Largest relative error: cubic 1.02e-4 for bf16 (rounds at 2e-3), quartic 2.9e-6 for fp16 (2.4e-4). */
#ifndef STEPBENCH_FLASH_FORWARD_SOFTMAX_SM90_CUH
#define STEPBENCH_FLASH_FORWARD_SOFTMAX_SM90_CUH

#include "kernels/cuda/flash_sm90.cuh"

namespace flash_sm90
{

constexpr float LAZY_LIMIT = 8; /* log2 units */

/* 2^x for x up to 127; 0 for x <= -127, and so for -inf. The polynomial is exactly 1 at 0, which makes the 0 exact. */
template <bool QUARTIC>
__device__ __forceinline__ float exp2_polynomial(float x)
{
    constexpr float MAGIC = 12582912.f; /* 1.5 * 2^23: the sum's last bit is worth 1 */
    float bounded;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(bounded) : "f"(x), "f"(-127.f)); /* a NaN stays one */
    const float sum = bounded + MAGIC, f = bounded - (sum - MAGIC);
    float y;
    if constexpr (QUARTIC)
        y = fmaf(fmaf(fmaf(0.00958285388f, f, 0.0559064262f), f, 0.240240991f), f, 0.693124175f);
    else
        y = fmaf(fmaf(0.0550089329f, f, 0.242210984f), f, 0.693282902f);
    y = fmaf(y, f, 1.f);
    return __uint_as_float(__float_as_uint(y) + (__float_as_uint(sum) << 23));
}

/* Running max (unscaled) and sum of the two rows a thread holds. */
struct row_state {
    float max[2], sum[2];
};

/* Scores of one key block to probabilities in place; factor is what older sums and O must be multiplied by. False: the
 * factors of the whole warp are 1. */
template <class T, class WAY, int BN>
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
        if (WAY::LAZY ? (top - rows.max[r]) * c > LAZY_LIMIT /* not when both are -inf */ : top > rows.max[r])
            moved = true;
        else
            top = rows.max[r];
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
                const float x = fmaf(s[4 * j + 2 * r + e], c, -shift);
                const float p = (2 * j + e) * WAY::EMULATED % 16 < WAY::EMULATED
                                    ? exp2_polynomial<!is_bf16<T>::value>(x)
                                    : exp2_approx(x);
                s[4 * j + 2 * r + e] = p;
                sum += p;
            }
        rows.sum[r] = rows.sum[r] * factor[r] + sum;
    }
    return __any_sync(~0u, moved);
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
