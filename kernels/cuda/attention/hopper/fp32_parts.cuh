/* SPDX-License-Identifier: MIT */
/* fp32 tensors as two 16-bit parts whose sum they are, each rounded to nearest: hi = (x s), lo = (x s - hi).
 * bf16: s = 1, and hi + lo has 16 bits of x. fp16: s is a power of two that takes the largest finite magnitude of a group of rows
 * to [2^14, 2^15): hi + lo has at least 22 bits of what is above 2^-17 of that, and below errs by at most 2^-40 of it. */
#pragma once

#include "kernels/kernels.h"

enum {
    FP32_PARTS_MAX_TENSORS = 4,
    FP32_PARTS_QUERY_ROWS = 64, /* rows that share a scale: of q and d_o */
    FP32_PARTS_KEY_ROWS = 128   /* rows of k and v */
};

/* A (B, H, S, D) fp32 tensor to parts [2][B][H][S][D], contiguous, and 1/s of each group, [B][H][groups]. */
struct fp32_parts_tensor {
    sb_tensor from;
    void *to;
    float *inverse; /* fp16 only */
    int heads, seq, rows;
};

/* Up to FP32_PARTS_MAX_TENSORS tensors of the same batch and head_dim in one launch; type is that of the parts. */
sb_status fp32_parts(sb_dtype type, const fp32_parts_tensor *tensors, int count, int batch, int head_dim, void *stream);
/* Bytes of both parts and the scales, each rounded up to 256; the scales come last. */
size_t fp32_parts_bytes(int batch, int heads, int seq, int head_dim, int rows);
/* A tensor of queries or of keys, with its parts at `to`, which has fp32_parts_bytes. */
fp32_parts_tensor fp32_parts_queries(const sb_attention *a, const sb_tensor &from, void *to);
fp32_parts_tensor fp32_parts_keys(const sb_attention *a, const sb_tensor &from, void *to);
/* The parts as one (2B, H, S, D) tensor, part p of batch b at index p*B + b. */
sb_tensor fp32_parts_view(const fp32_parts_tensor *t, int head_dim);
int fp32_parts_groups(int seq, int rows); /* groups of a head */
