/* SPDX-License-Identifier: MIT */
/* Between the op flash_portable and its kernels: one table of launchers a dtype. */
#pragma once

#include <cuda_runtime.h>

#include "kernels/kernels.h"

namespace flash_portable
{

/* Both need a.scale resolved (not 0) and positive, a window with no -1, and B*H*Sq and B*Hkv*Sk at most 2^30. backward needs (B,H,Sq) x 2
 * floats of workspace. */
struct launchers {
    cudaError_t (*forward)(const sb_attention &a, cudaStream_t stream);
    cudaError_t (*backward)(const sb_attention &a, cudaStream_t stream);
};
extern const launchers bf16_launchers, fp16_launchers, tf32_launchers, fp32_launchers, bf16x3_launchers;
/* For head_dim above 128. */
extern const launchers bf16_wide_launchers, fp16_wide_launchers;

} // namespace flash_portable
