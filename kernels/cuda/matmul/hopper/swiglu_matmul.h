/* SPDX-License-Identifier: MIT */
/* The matmul with SwiGLU at its end: how its columns are cut into tiles. Not part of the API. */
#pragma once

#include "kernels/cuda/runtime/context.h"

SB_C_BEGIN

/* Columns of h [0, columns) by tiles of n accumulator columns, the rest, if any, by tiles of rest_n in a second launch.
 * A forward tile has n/2 columns of h, a backward tile n. n is 256, 192, 128 or 64. */
typedef struct swiglu_matmul_plan {
    int n, columns, rest_n;
} swiglu_matmul_plan;

/* The plan whose rounds of tiles should be done first where `at_once` clusters run together. */
swiglu_matmul_plan swiglu_matmul_plan_of(const sb_swiglu_matmul *p, bool backward, int at_once);
/* The op with a plan of the caller's, for measurements; `columns` is whole tiles of n, or all of them. */
sb_status swiglu_matmul_run(sb_context *ctx, const sb_swiglu_matmul *p, bool backward, const swiglu_matmul_plan *plan,
                            void *stream);

SB_C_END
