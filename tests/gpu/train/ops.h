/* SPDX-License-Identifier: MIT */
/* The families of training ops that are tested, a file each. */
#pragma once

#include "tests/gpu/train/case.h"

extern const train_op train_matmul;
extern const train_op train_amax, train_quantize, train_codes, train_float8_matmul;
extern const train_op train_quantize_within, train_float8_history;
extern const train_op train_rmsnorm_forward, train_rmsnorm_backward;
extern const train_op train_rope;
extern const train_op train_swiglu_forward, train_swiglu_backward;
extern const train_op train_swiglu_matmul_forward, train_swiglu_matmul_backward;
extern const train_op train_embedding_forward, train_embedding_backward;
extern const train_op train_cross_entropy;
extern const train_op train_vocab_loss_partial, train_vocab_loss_finish;
extern const train_op train_grad_stats, train_optimizer_begin;
extern const train_op train_adamw;
extern const train_op train_pointwise;
extern const train_op train_reduce;
extern const train_op train_attention_merge;
