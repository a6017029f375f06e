/* SPDX-License-Identifier: MIT */
/* What the files of the CUDA matmul share. Not part of the API. */
#pragma once

#include "kernels/cuda/matmul/algorithm.h"

/* The cuBLASLt products that a call is made of: one, or several if it is split. They share one algorithm once tuned. */
enum { MATMUL_MAX_PLANS = 3 };
typedef struct matmul_plan_list {
    matmul_plan *plan[MATMUL_MAX_PLANS];
    int count;
} matmul_plan_list;

/* Shapes, pointers and their alignment; SB_OK or what is wrong. */
sb_status matmul_check(const sb_matmul *p);
sb_status matmul_plans_of(sb_context *ctx, const sb_matmul *p, matmul_plan_list *out);
/* Gives the algorithm to every plan of the list; false, and nothing is changed, where one cannot run it. */
bool matmul_install(sb_context *ctx, const matmul_plan_list *list, const cublasLtMatmulAlgo_t *algorithm);

/* Products of float8: whether these are, and whether the device and the library take them. */
bool matmul_is_float8(const sb_matmul *p);
sb_status matmul_float8_check(const sb_context *ctx, const sb_matmul *p);

/* Workspace of a product in split fp32; `p` has been checked. */
size_t matmul_split_workspace(sb_context *ctx, const sb_matmul *p);
sb_status matmul_split_plans_of(sb_context *ctx, const sb_matmul *p, matmul_plan_list *out);
sb_status matmul_split_run(sb_context *ctx, const sb_matmul *p, void *stream);

/* Split fp32 by the library on any GPU, whatever matmul_split_run would use. */
size_t matmul_library_split_workspace(const sb_context *ctx, const sb_matmul *p);
sb_status matmul_library_split_run(sb_context *ctx, const sb_matmul *p, void *stream);
