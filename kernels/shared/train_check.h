/* SPDX-License-Identifier: MIT */
/* The argument checks of the training ops that no device is needed for: shapes, dtypes, leading dimensions, pointers
 * that must be given, constants out of range, aliases that cannot work. Each returns SB_OK, or SB_INVALID with a
 * sentence for sb_last_message that begins with the op's name. Alignment is the CUDA backend's own matter. Not part of
 * the API. */
#pragma once

#include "kernels/shared/internal.h"

SB_C_BEGIN

sb_status sb_matmul_check(const sb_matmul *p);
sb_status sb_amax_check(const sb_amax *p);
sb_status sb_quantize_check(const sb_quantize *p);
sb_status sb_codes_check(const sb_codes *p);
sb_status sb_float8_history_check(const sb_float8_history *p);
sb_status sb_rmsnorm_check(const sb_rmsnorm *p, bool backward);
sb_status sb_rope_check(const sb_rope *p);
sb_status sb_swiglu_check(const sb_swiglu *p, bool backward);
sb_status sb_swiglu_matmul_shape_check(const sb_swiglu_matmul *p); /* SB_UNSUPPORTED too; no pointers */
sb_status sb_swiglu_matmul_check(const sb_swiglu_matmul *p, bool backward);
sb_status sb_embedding_check(const sb_embedding *p, bool backward);
sb_status sb_cross_entropy_check(const sb_cross_entropy *p);
sb_status sb_vocab_loss_check(const sb_vocab_loss *p, bool finish);
sb_status sb_grad_stats_check(const sb_grad_stats *p);
sb_status sb_optimizer_begin_check(const sb_optimizer_begin *p);
sb_status sb_adamw_check(const sb_adamw *p);
sb_status sb_pointwise_check(const sb_pointwise *p);
sb_status sb_reduce_check(const sb_reduce *p);
sb_status sb_attention_merge_check(const sb_attention_merge *p);

/* Whether a pointwise op reads b. */
bool sb_point_has_b(sb_point op);

/* SB_NO_MEMORY unless the caller's workspace of `bytes` holds at least `need`. */
sb_status sb_train_workspace_check(const char *op, const void *workspace, size_t bytes, size_t need);

SB_C_END
