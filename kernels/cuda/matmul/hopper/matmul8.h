/* SPDX-License-Identifier: MIT */
/* D = A B^T + C of float8 codes by a kernel of our own for Hopper, with exact sums: see matmul8.cuh. Not part of the API. */
#pragma once

#include "kernels/cuda/runtime/context.h"

SB_C_BEGIN

enum { MATMUL8_MAX_PROPOSALS = 2 };

/* Rows of the tiles that there are, and how many; none where the device is no Hopper. */
int matmul8_propose(sb_context *ctx, int rows[MATMUL8_MAX_PROPOSALS]);
/* `rows` is one of the proposals; `p` has been checked (matmul_float8_check). SB_UNSUPPORTED unless sums are exact, B is in e4m3,
 * and rows of C and D are whole units of 16 bytes. C may be D. Scales are powers of two: then the bits are those of the CPU. */
sb_status matmul8_run(sb_context *ctx, const sb_matmul *p, int rows, void *stream);

SB_C_END
