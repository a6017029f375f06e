/* SPDX-License-Identifier: MIT */
/* The training ops of the CPU backend, in the order of sb_train_ops. */
#pragma once

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t cpu_matmul_workspace(sb_context *ctx, const sb_matmul *p);
sb_status cpu_matmul(sb_context *ctx, const sb_matmul *p, void *stream);
sb_status cpu_matmul_tune(sb_context *ctx, const sb_matmul *p, sb_matmul_choice *chosen, sb_matmul_choice *rivals,
                          int most, void *stream);
sb_status cpu_matmul_choose(sb_context *ctx, const sb_matmul *p, const sb_matmul_choice *chosen);
sb_status cpu_float8_supported(sb_context *ctx, sb_scaling scaling);
sb_status cpu_amax(sb_context *ctx, const sb_amax *p, void *stream);
sb_status cpu_quantize(sb_context *ctx, const sb_quantize *p, void *stream);
sb_status cpu_transpose_codes(sb_context *ctx, const sb_codes *p, void *stream);
sb_status cpu_float8_history(sb_context *ctx, const sb_float8_history *p, void *stream);
sb_status cpu_rmsnorm_forward(sb_context *ctx, const sb_rmsnorm *p, void *stream);
size_t cpu_rmsnorm_workspace(sb_context *ctx, const sb_rmsnorm *p);
sb_status cpu_rmsnorm_backward(sb_context *ctx, const sb_rmsnorm *p, void *stream);
sb_status cpu_rope(sb_context *ctx, const sb_rope *p, void *stream);
sb_status cpu_swiglu_forward(sb_context *ctx, const sb_swiglu *p, void *stream);
sb_status cpu_swiglu_backward(sb_context *ctx, const sb_swiglu *p, void *stream);
sb_status cpu_swiglu_matmul_supported(sb_context *ctx, const sb_swiglu_matmul *p);
sb_status cpu_swiglu_matmul_forward(sb_context *ctx, const sb_swiglu_matmul *p, void *stream);
sb_status cpu_swiglu_matmul_backward(sb_context *ctx, const sb_swiglu_matmul *p, void *stream);
sb_status cpu_embedding_forward(sb_context *ctx, const sb_embedding *p, void *stream);
size_t cpu_embedding_workspace(sb_context *ctx, const sb_embedding *p);
sb_status cpu_embedding_backward(sb_context *ctx, const sb_embedding *p, void *stream);
sb_status cpu_cross_entropy(sb_context *ctx, const sb_cross_entropy *p, void *stream);
sb_status cpu_vocab_loss_partial(sb_context *ctx, const sb_vocab_loss *p, void *stream);
sb_status cpu_vocab_loss_finish(sb_context *ctx, const sb_vocab_loss *p, void *stream);
size_t cpu_grad_stats_workspace(sb_context *ctx, const sb_grad_stats *p);
sb_status cpu_grad_stats(sb_context *ctx, const sb_grad_stats *p, void *stream);
sb_status cpu_optimizer_begin(sb_context *ctx, const sb_optimizer_begin *p, void *stream);
sb_status cpu_adamw(sb_context *ctx, const sb_adamw *p, void *stream);
sb_status cpu_pointwise(sb_context *ctx, const sb_pointwise *p, void *stream);
size_t cpu_reduce_workspace(sb_context *ctx, const sb_reduce *p);
sb_status cpu_reduce(sb_context *ctx, const sb_reduce *p, void *stream);
sb_status cpu_attention_merge(sb_context *ctx, const sb_attention_merge *p, void *stream);

extern const sb_train_ops cpu_train_ops;

#ifdef __cplusplus
}
#endif
