/* SPDX-License-Identifier: MIT */
/* One product, by cuBLASLt or by a kernel of our own for Hopper: its descriptors and its algorithm, made once for a shape
 * and kept in the context. Not part of the API. */
#pragma once

#include <cublasLt.h>

#include "kernels/cuda/runtime/context.h"

SB_C_BEGIN

enum {
    MATMUL_MAX_ALIGNMENT = 16, /* bytes: no kernel asks for more, and more classes would part equal shapes */
    MATMUL_MAX_CANDIDATES = 24
};

/* All that an algorithm depends on, as in sb_matmul. Ints only, so that equal shapes are equal bytes. */
typedef struct matmul_shape {
    int dtype, dtype_b, dtype_out;       /* sb_dtype; dtype_b is `dtype`, but for float8 */
    int scaling_a, scaling_b, fast_sums; /* sb_scaling: of float8, else SB_SCALE_NONE */
    int transpose_a, transpose_b;
    int m, n, k;
    int lda, ldb, ldc, ldd;
    int adds;           /* beta is 1, not 0 */
    int in_place;       /* c is d */
    int device_scalars; /* alpha and beta are in device memory */
    int align_a, align_b, align_c, align_d;
    int workspace_kib;
    int own; /* runs only matmul/hopper/matmul_fp32.h: there are no descriptors */
} matmul_shape;

typedef struct matmul_plan {
    matmul_shape shape;
    cublasLtMatmulDescOpaque_t operation;
    /* cuBLASLt is column-major, where our row-major D is D^T = op(B)^T op(A)^T: its A is our B and the other way. */
    cublasLtMatrixLayoutOpaque_t b, a, c, d;
    cublasLtMatmulAlgo_t algorithm;
} matmul_plan;

typedef struct matmul_operands {
    const void *a, *b, *c; /* c is d where nothing is added */
    void *d;
    const float *alpha, *beta;
    const float *scale_a, *scale_b; /* of float8 */
    void *workspace;
} matmul_operands;

/* Bytes to which a pointer is aligned, as far as matters. */
int matmul_alignment(const void *p);
/* Workspace of the library's algorithms: as much as it asks for on this device. */
size_t matmul_library_bytes(const sb_context *ctx);
/* matmul_shape's class of a workspace. */
int matmul_workspace_kib(const sb_context *ctx, size_t bytes);

/* The plan of a shape: the one that is kept, or a new one with the library's first proposal that is acceptable. */
sb_status matmul_plan_find(sb_context *ctx, const matmul_shape *shape, matmul_plan **out);
/* The library's proposals, best guess first, as far as acceptable; at most MATMUL_MAX_CANDIDATES. None where the shape
 * is not the library's. */
int matmul_plan_candidates(sb_context *ctx, matmul_plan *plan, cublasLtMatmulAlgo_t *out);
/* Whether the algorithm is for this kind of plan, runs here, fits the workspace and gives the same bits every time with
 * fp32 sums. */
bool matmul_plan_accepts(sb_context *ctx, matmul_plan *plan, const cublasLtMatmulAlgo_t *algorithm);
/* Whether an algorithm may split k; see plan.c. */
bool matmul_plan_may_split(const matmul_plan *plan);
sb_status matmul_plan_run(sb_context *ctx, matmul_plan *plan, const matmul_operands *o, void *stream);

SB_C_END
