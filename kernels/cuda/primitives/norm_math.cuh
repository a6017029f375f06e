/* SPDX-License-Identifier: MIT */
/* RMSNorm of one element. Every kernel that makes it uses this, so that what is made again has the same bits. */
#pragma once

namespace norm_math
{

__device__ __forceinline__ float output(float x, float rstd, float gain)
{
    return x * rstd * gain;
}

} // namespace norm_math
