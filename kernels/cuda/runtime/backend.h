/* SPDX-License-Identifier: MIT */
/* The ops of the CUDA backend that are not attention, in the order of sb_kernels. */
#pragma once

#include "kernels/kernels.h"

SB_C_BEGIN

size_t sb_cuda_reference_workspace(sb_context *ctx, const sb_attention *a, bool backward);
sb_status sb_cuda_reference(sb_context *ctx, const sb_attention *a, const sb_attention_rows *rows, void *stream);
sb_status sb_cuda_gemm(sb_context *ctx, sb_dtype dtype, int m, int n, int k, const void *a, const void *b, void *c,
                       void *stream);
sb_status sb_cuda_fill_normal(sb_context *ctx, sb_dtype dtype, void *out, size_t n, uint64_t seed, uint32_t stream_id,
                              float scale, void *stream);
sb_status sb_cuda_fill_normal_from(sb_context *ctx, sb_dtype dtype, void *out, size_t n, uint64_t seed,
                                   uint32_t stream_id, uint64_t first, float scale, void *stream);
sb_status sb_cuda_copy(sb_context *ctx, void *dst, const void *src, size_t bytes, void *stream);
sb_status sb_cuda_nothing(sb_context *ctx, void *stream);

SB_C_END
