/* SPDX-License-Identifier: MIT */
/* The ops of a step but its linear layers; each takes its workspace from the arena. */
#pragma once

#include "common/step/step.h"

/* A (T, columns) activation; the statistics of a norm. */
arena_slot take_rows(step *s, int columns, memory_kind kind, int layer, const char *name);
arena_slot take_stream(step *s, memory_kind kind, int layer,
                       const char *name); /* of the residual stream, or of a norm */
arena_slot take_rstd(step *s, int layer);
/* The norm of x, taken as `held`; all rows of it where ranks keep those (share_norm). */
arena_slot norm_forward(step *s, param_kind kind, int layer, memory_kind held, const char *name, arena_slot x,
                        arena_slot rstd);
/* In y, or where that is -1 its statistics alone, with fused kernels. */
void norm_make(step *s, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd);
/* dx = d_residual (-1: none) + gradient through the norm; writes the gain's gradient. */
void norm_backward(step *s, param_kind kind, int layer, arena_slot x, arena_slot rstd, arena_slot dy,
                   arena_slot d_residual, arena_slot dx);
void swiglu_forward(step *s, int layer, arena_slot gate_up, arena_slot h);
/* gate_up becomes its gradient; h, where it is not -1, is made again. */
void swiglu_backward(step *s, int layer, arena_slot gate_up, arena_slot dh, arena_slot h);
/* SwiGLU within the matrix products: gate and up from x, kept where gate_up is not -1; gate_up becomes its gradient from
 * that of the block's output. */
void swiglu_matmul_forward(step *s, int layer, arena_slot x, arena_slot gate_up, arena_slot h);
void swiglu_matmul_backward(step *s, int layer, arena_slot dy, arena_slot gate_up, arena_slot h);
/* Whether SwiGLU runs within its matrix products: with fused kernels, in 16 bits, where the backend can. */
bool step_fuses_swiglu(const step_options *o, const sb_kernels *k, sb_context *ctx);
void rope(step *s, int layer, arena_slot qkv, bool inverse);
void attention_begin(step *s, int layer, block_slots *b); /* takes what its forward makes */
/* Attention of the micro-batch in a block, on rows [first, first + rows), which are whole sequences. */
void attention_forward(step *s, int layer, int first, int rows);
void attention_backward(step *s, int layer, block_slots *b, arena_slot d_att, arena_slot d_qkv);
sb_attention step_attention(const step_options *o); /* of the tokens that this rank has */
attention_bytes step_attention_bytes(const step_options *o, const sb_kernels *k, sb_context *ctx);
/* Where ranks share sequences; NULL and a sentence where they cannot. */
context *step_context_create(const step_options *o, device *d, const sb_kernels *k, sb_context *ctx, char *why,
                             size_t why_bytes);
/* Logits (rows, V) of tokens [first, first + rows) become their gradient, with `backward`. */
void cross_entropy(step *s, int first, int rows, arena_slot logits, bool backward);
/* The mean over all tokens, from what cross_entropy left for each. */
void mean_loss(step *s);

/* Eager forms; see eager.c. */
void eager_add(step *s, int layer, arena_slot a, arena_slot b, arena_slot out);
void eager_norm_forward(step *s, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd);
void eager_norm_backward(step *s, param_kind kind, int layer, arena_slot x, arena_slot rstd, arena_slot dy,
                         arena_slot d_residual, arena_slot dx, void *dweight);
void eager_swiglu_forward(step *s, int layer, arena_slot gate_up, arena_slot h);
void eager_swiglu_backward(step *s, int layer, arena_slot gate_up, arena_slot dh, arena_slot h);
