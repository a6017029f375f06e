/* SPDX-License-Identifier: MIT */
/* What the main kernels of the Hopper backward share on the host: the layout of the workspace. */
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/shared/internal.h"

/* Offsets are 256-byte aligned; all but `parts` are the same whichever kernel runs. */
struct flash_backward_layout {
    int rows, blocks, padded_dim; /* rows of lse2 and delta of a head; query blocks; columns of dQ's sums */
    size_t lse2, delta, dq_sum;
    size_t next_job, order, order_end; /* one number; two for each query block of each sum. Zeros before */
    size_t parts[4];                   /* q, k, v, d_o; fp32 only */
    size_t bytes;
};

/* Whether the adders of a query block of dQ add in a fixed order in the narrow kernel. That saves the zeros before and the pass
 * after, three trips of the fp32 sums through memory; but along many key tiles, those that a window spans, one that is late makes
 * all others late. Of documents the average length is known; in order the last adder writes rows of dQ one by one, so that it gains
 * less. */
static inline bool flash_backward_narrow_in_order(const sb_attention *a)
{
    const int window = a->windowed ? sb_window_left(a) + sb_window_right(a) : a->seq_k;
    return a->deterministic || window <= 2048 || a->seq_k <= 2048 || (a->packed && a->seq_k / a->documents <= 1024);
}

/* The main kernel of narrow.cuh, after the pass before it: bf16 or fp16, head_dim <= 64. */
sb_status flash_backward_narrow_launch(sb_context *ctx, const sb_attention *a, const flash_backward_layout &l,
                                       cudaStream_t stream);
