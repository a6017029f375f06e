/* SPDX-License-Identifier: MIT */
/* Bytes of a transformer's training step, in closed form: what is held at its worst moments, and by what. Derived from
 * shapes and from what each op reads and writes, not from the planner of common/train, which it checks.
 *
 * T = batch seq tokens, d, kv = heads_kv head_dim, F, H heads, V vocab, e bytes of an activation, g of a gradient.
 * A block keeps these for its backward, unless backward recomputes them:
 *   x, n1 (the first norm), attention's output, x_mid, n2       5 T d e
 *   q, k, v after RoPE                                          T (d + 2 kv) e
 *   gate and up, their product h                                T 2F e,  T F e
 *   1/rms of both norms                                         8 T
 *   log-sum-exp of each query, or the S x S matrix              4 T H, or what the op says
 * that is 8 d + 3 F elements of a token where kv = d. The head keeps its input, its norm and the logits, whose gradient
 * takes their place. */
#pragma once

#include "common/formulas/memory_types.h"

/* Bytes of one tensor of the residual stream: T d e. */
int64_t memory_residual(const memory_step *p);
/* Bytes that one block leaves for its backward on the device; by the schedule of the first block. */
int64_t memory_saved_per_block(const memory_step *p);
/* What is held from beginning to end. `grad` is 0 with share_grad_memory. */
memory_bytes memory_resident(const memory_step *p);

typedef struct memory_peaks { /* what is held at the worst moment of each phase; zeros where a step lacks one */
    memory_bytes forward, backward, update;
} memory_peaks;
memory_peaks memory_predict(const memory_step *p);
