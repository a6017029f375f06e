/* SPDX-License-Identifier: MIT */
/* fp32 tensors as two bf16 parts, hi = bf16(x) and lo = bf16(x - hi), each rounded to nearest. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_SPLIT_BF16_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_SPLIT_BF16_CUH

#include "kernels/kernels.h"

enum { SPLIT_BF16_MAX_TENSORS = 4 };

/* A (B, H, S, D) fp32 tensor to bf16 parts [2][B][H][S][D], contiguous. */
struct split_bf16_tensor {
    sb_tensor from;
    void *to;
    int heads, seq;
};
/* Up to SPLIT_BF16_MAX_TENSORS tensors of the same batch and head_dim in one launch. */
sb_status split_bf16(const split_bf16_tensor *tensors, int count, int batch, int head_dim, void *stream);
/* Bytes of both parts, rounded up to 256. */
size_t split_bf16_bytes(int batch, int heads, int seq, int head_dim);
/* The parts as one (2B, H, S, D) tensor, part p of batch b at index p*B + b. */
sb_tensor split_bf16_view(const split_bf16_tensor *t, int head_dim);

#endif
