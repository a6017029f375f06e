/* SPDX-License-Identifier: MIT */
/* Host interface of the Hopper kernels (compute capability 9.0): bf16, fp16, and fp32 in two 16-bit parts. */
#pragma once

#include "kernels/kernels.h"

SB_C_BEGIN

/* fp32 in memory: products of two 16-bit parts, fp16 for SB_FP32 and bf16 for SB_BF16X3. */
static inline bool flash_in_parts(const sb_attention *a)
{
    return a->dtype == SB_FP32 || a->dtype == SB_BF16X3;
}
/* The dtype of what the tensor cores multiply. */
static inline sb_dtype flash_operand_type(const sb_attention *a)
{
    return a->dtype == SB_FP16 || a->dtype == SB_FP32 ? SB_FP16 : SB_BF16;
}

size_t flash_hopper_forward_workspace(sb_context *ctx, const sb_attention *a);
size_t flash_hopper_backward_workspace(sb_context *ctx, const sb_attention *a);
sb_status flash_hopper_forward(sb_context *ctx, const sb_attention *a, void *stream);
sb_status flash_hopper_backward(sb_context *ctx, const sb_attention *a, void *stream);

/* How the forward's blocks work. */
typedef enum flash_forward_kernel {
    FLASH_FORWARD_CHOSEN = 0, /* by shape */
    FLASH_FORWARD_ALONE,      /* no two tiles share K and V */
    FLASH_FORWARD_PAIRED      /* two do: where flash_forward_has_pairs */
} flash_forward_kernel;
/* 16-bit, head_dim or head_dim_v above 80, no windows or documents. */
bool flash_forward_has_pairs(const sb_attention *a);
/* As asked for, for tests; SB_UNSUPPORTED where there are no pairs. The workspace is that of flash_hopper_forward. */
sb_status flash_hopper_forward_with(sb_context *ctx, const sb_attention *a, flash_forward_kernel kernel, void *stream);

/* The backward's main kernels. */
typedef enum flash_backward_kernel {
    FLASH_BACKWARD_CHOSEN = 0, /* by shape */
    FLASH_BACKWARD_WIDE,       /* backward/wide.cuh, which takes every shape up to head_dim 128 */
    FLASH_BACKWARD_NARROW,     /* backward/narrow.cuh: head_dim <= 64, 16-bit */
    FLASH_BACKWARD_PAIR,       /* backward/pair.cuh: above that, 16-bit */
    FLASH_BACKWARD_LARGE,      /* backward/large.cuh, or latent.cuh for V of up to 128: above head_dim 128, 16-bit */
    FLASH_BACKWARD_TALL        /* backward/tall.cuh: V of 136 to 192, the rest up to 192, no windows or documents */
} flash_backward_kernel;
/* SB_OK, or SB_UNSUPPORTED where `kernel` does not take this dtype and head_dim. */
sb_status flash_hopper_backward_takes(const sb_attention *a, flash_backward_kernel kernel);
/* With the one that is asked for, for tests; FLASH_BACKWARD_CHOSEN is what flash_hopper_backward does. The workspace is that of
 * the same kernel. */
size_t flash_hopper_backward_workspace_with(sb_context *ctx, const sb_attention *a, flash_backward_kernel kernel);
sb_status flash_hopper_backward_with(sb_context *ctx, const sb_attention *a, flash_backward_kernel kernel,
                                     void *stream);

SB_C_END
