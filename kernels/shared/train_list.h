/* SPDX-License-Identifier: MIT */
/* The ops of sb_train_ops by name, from which each backend declares its functions and fills its table. */
#pragma once

#include "kernels/kernels.h"

/* clang-format off */
#define TRAIN_OPS(X)                                                                                               \
    X(matmul_workspace) X(matmul) X(matmul_tune) X(matmul_choose)                                                  \
    X(float8_supported) X(amax) X(quantize) X(transpose_codes) X(float8_history)                                   \
    X(rmsnorm_forward) X(rmsnorm_workspace) X(rmsnorm_backward) X(rope) X(swiglu_forward) X(swiglu_backward)       \
    X(swiglu_matmul_supported) X(swiglu_matmul_forward) X(swiglu_matmul_backward)                                  \
    X(embedding_forward) X(embedding_workspace) X(embedding_backward)                                              \
    X(cross_entropy) X(vocab_loss_partial) X(vocab_loss_finish)                                                    \
    X(grad_stats_workspace) X(grad_stats) X(optimizer_begin) X(adamw)                                              \
    X(pointwise) X(reduce_workspace) X(reduce) X(attention_merge)
/* clang-format on */

/* Declares a function of the type that its entry in the table has. */
#define TRAIN_OP(function, op) __typeof__(*((sb_train_ops *)0)->op) function;
