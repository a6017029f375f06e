/* SPDX-License-Identifier: MIT */
/* RoPE of one pair. Every kernel that turns pairs uses this, so that each turns them to the same bits: which product is rounded
 * before the sum is not left to the compiler. */
#pragma once

namespace rope_math
{

struct pair {
    float first, second;
};

__device__ __forceinline__ pair turned(float first, float second, float cosine, float sine)
{
    return {__fmaf_rn(first, cosine, -__fmul_rn(second, sine)), __fmaf_rn(first, sine, __fmul_rn(second, cosine))};
}

} // namespace rope_math
