/* SPDX-License-Identifier: MIT */
/* D = A op(B) + C in bf16 or fp16 by a kernel of our own for Hopper: see matmul16.cuh. Not part of the API. */
#pragma once

#include "kernels/cuda/runtime/context.h"

SB_C_BEGIN

enum { MATMUL16_MAX_PROPOSALS = 3 };

/* Columns of the tiles that there are, widest first, and how many; none where the device is no Hopper. With `adds` those
 * that add C before the only rounding. */
int matmul16_propose(sb_context *ctx, bool adds, int columns[MATMUL16_MAX_PROPOSALS]);
/* `columns` is one of the proposals. SB_UNSUPPORTED unless operands and result have one 16-bit dtype, A is not
 * transposed, and pointers and rows are whole units of 16 bytes. C may be D. The same call gives the same bits. */
sb_status matmul16_run(sb_context *ctx, const sb_matmul *p, int columns, void *stream);

SB_C_END
