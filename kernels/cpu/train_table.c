/* SPDX-License-Identifier: MIT */
/* The table of the training ops. */
#include "kernels/cpu/train.h"

const sb_train_ops cpu_train_ops = {
    .matmul_workspace = cpu_matmul_workspace,
    .matmul = cpu_matmul,
    .matmul_tune = cpu_matmul_tune,
    .matmul_choose = cpu_matmul_choose,
    .float8_supported = cpu_float8_supported,
    .amax = cpu_amax,
    .quantize = cpu_quantize,
    .rmsnorm_forward = cpu_rmsnorm_forward,
    .rmsnorm_workspace = cpu_rmsnorm_workspace,
    .rmsnorm_backward = cpu_rmsnorm_backward,
    .rope = cpu_rope,
    .swiglu_forward = cpu_swiglu_forward,
    .swiglu_backward = cpu_swiglu_backward,
    .swiglu_matmul_supported = cpu_swiglu_matmul_supported,
    .swiglu_matmul_forward = cpu_swiglu_matmul_forward,
    .swiglu_matmul_backward = cpu_swiglu_matmul_backward,
    .embedding_forward = cpu_embedding_forward,
    .embedding_workspace = cpu_embedding_workspace,
    .embedding_backward = cpu_embedding_backward,
    .cross_entropy = cpu_cross_entropy,
    .grad_stats_workspace = cpu_grad_stats_workspace,
    .grad_stats = cpu_grad_stats,
    .optimizer_begin = cpu_optimizer_begin,
    .adamw = cpu_adamw,
    .pointwise = cpu_pointwise,
    .reduce_workspace = cpu_reduce_workspace,
    .reduce = cpu_reduce,
    .attention_merge = cpu_attention_merge,
};
