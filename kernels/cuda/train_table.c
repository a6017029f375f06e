/* SPDX-License-Identifier: MIT */
/* The table of the training ops. */
#include "kernels/cuda/train.h"

const sb_train_ops sb_cuda_train_ops = {
    .matmul_workspace = sb_cuda_matmul_workspace,
    .matmul = sb_cuda_matmul,
    .matmul_tune = sb_cuda_matmul_tune,
    .matmul_choose = sb_cuda_matmul_choose,
    .float8_supported = sb_cuda_float8_supported,
    .amax = sb_cuda_amax,
    .quantize = sb_cuda_quantize,
    .rmsnorm_forward = sb_cuda_rmsnorm_forward,
    .rmsnorm_workspace = sb_cuda_rmsnorm_workspace,
    .rmsnorm_backward = sb_cuda_rmsnorm_backward,
    .rope = sb_cuda_rope,
    .swiglu_forward = sb_cuda_swiglu_forward,
    .swiglu_backward = sb_cuda_swiglu_backward,
    .swiglu_matmul_supported = sb_cuda_swiglu_matmul_supported,
    .swiglu_matmul_forward = sb_cuda_swiglu_matmul_forward,
    .swiglu_matmul_backward = sb_cuda_swiglu_matmul_backward,
    .embedding_forward = sb_cuda_embedding_forward,
    .embedding_workspace = sb_cuda_embedding_workspace,
    .embedding_backward = sb_cuda_embedding_backward,
    .cross_entropy = sb_cuda_cross_entropy,
    .grad_stats_workspace = sb_cuda_grad_stats_workspace,
    .grad_stats = sb_cuda_grad_stats,
    .optimizer_begin = sb_cuda_optimizer_begin,
    .adamw = sb_cuda_adamw,
    .pointwise = sb_cuda_pointwise,
    .reduce_workspace = sb_cuda_reduce_workspace,
    .reduce = sb_cuda_reduce,
    .attention_merge = sb_cuda_attention_merge,
};
