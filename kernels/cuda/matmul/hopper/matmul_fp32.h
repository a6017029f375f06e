/* SPDX-License-Identifier: MIT */
/* D = op(A) op(B) + C at fp32 level on Hopper's tensor cores, one launch, no workspace: see matmul_fp32.cuh.
 * Not part of the API. */
#pragma once

#include "kernels/cuda/runtime/context.h"

SB_C_BEGIN

enum { MATMUL_FP32_MAX_PROPOSALS = 4 };

/* Whether the kernel can run this: Hopper, and each row of A and of B is whole units of 16 bytes. Pointers that are
 * NULL pass; C and D may have any alignment. */
bool matmul_fp32_supports(const sb_context *ctx, const sb_matmul *p);
/* Blocks that may share tiles as a cluster, best guess first; returns how many guesses there are, at least one. */
int matmul_fp32_propose(sb_context *ctx, int m, int n, int k, int cluster[MATMUL_FP32_MAX_PROPOSALS]);
/* `cluster` is one of the proposals. Arguments have been checked. */
sb_status matmul_fp32_run(sb_context *ctx, const sb_matmul *p, int cluster, void *stream);

SB_C_END
