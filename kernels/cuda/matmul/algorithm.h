/* SPDX-License-Identifier: MIT */
/* Algorithms of products: those of our own kernels, which share a type with the library's, and names for all of them. Not part of the API. */
#pragma once

#include "kernels/cuda/matmul/plan.h"

enum { MATMUL_MAX_OWN = 4 }; /* algorithms of our own for one shape */

/* What the first bytes of an algorithm of our own mean; the rest are zero. No algorithm of the library
 * begins with such a word: its first one is a small number. */
typedef struct matmul_own {
    uint64_t kernel;
    int64_t value; /* at least 1 */
} matmul_own;

#define MATMUL_OWN_FP32                                                                                                \
    0x32337066206e776full /* "own fp32": matmul/hopper/matmul_fp32.h; the value is the blocks of a cluster */
#define MATMUL_OWN_16                                                                                                  \
    0x666c6168206e776full /* "own half": matmul/hopper/matmul16.h; the value is the columns of a tile */
#define MATMUL_OWN_8 0x65646f63206e776full /* "own code": matmul/hopper/matmul8.h; the value is the rows of a tile */

/* Algorithms of our own kernels that can run the shape here, best guess first; how many. */
int matmul_own_candidates(sb_context *ctx, const matmul_shape *shape, cublasLtMatmulAlgo_t out[MATMUL_MAX_OWN]);
/* Whether the algorithm is one of them. */
bool matmul_own_accepts(sb_context *ctx, const matmul_shape *shape, const cublasLtMatmulAlgo_t *algorithm);
bool matmul_is_own(const cublasLtMatmulAlgo_t *algorithm);
/* Blocks of a cluster of matmul/hopper/matmul_fp32.h, columns of a tile of matmul/hopper/matmul16.h, rows of a tile of
 * matmul/hopper/matmul8.h; 0 of any other algorithm. */
int matmul_own_cluster(const cublasLtMatmulAlgo_t *algorithm);
int matmul_own_columns(const cublasLtMatmulAlgo_t *algorithm);
int matmul_own_rows(const cublasLtMatmulAlgo_t *algorithm);

/* "#66 128x256 cluster 2x1 stages 64xauto splitk 1": the library's numbers, rows of column-major D (our columns) first,
 * as in the names of its kernels. "own 128x128 cluster 4", "own 200x128 cluster 1x2", "own codes 128x256 cluster 2x1": our kernels
 * for fp32, for 16 bits, for float8. */
void matmul_algorithm_name(const cublasLtMatmulAlgo_t *algorithm, char *out, size_t bytes);
/* An attribute of an algorithm, 0 where it has none. */
int matmul_algorithm_get(const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute);
