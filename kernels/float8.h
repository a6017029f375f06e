/* SPDX-License-Identifier: MIT */
/* Casts to 8-bit floats, and the scales that products of them read. Part of the API: train.h includes it.
 *
 * A matrix is stored as codes of one byte and scales: a value is its code times its scale. A scale is a power of two, of 16
 * for e5m2, the smallest with which the largest magnitude of its elements does not pass the format's largest value, so that
 * multiplying by it is exact and every backend makes the same bits. Zeros alone have scale 1, magnitudes below 2^-110 a scale of 2^-118 or more. An
 * element that is not finite is NaN (0x7f), and the scale that counts it is NaN, so that products with it are. */
#ifndef STEPBENCH_KERNELS_FLOAT8_H
#define STEPBENCH_KERNELS_FLOAT8_H

#include "kernels/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which elements of an operand (rows, k) of a product share a scale, and how its scales lie, all fp32. */
typedef enum sb_scaling {
    SB_SCALE_NONE = 0, /* no float8 operand */
    SB_SCALE_TENSOR,   /* all: (1) */
    SB_SCALE_ROW,      /* a row: (rows) */
    SB_SCALE_1X128,    /* 128 neighbours of a row: (ceil(k/128), rows) */
    SB_SCALE_128X128,  /* a square: (ceil(rows/128), ceil(k/128) rounded up to 4), what is beyond k holds 0 */
    SB_SCALE_1X32 /* 32 neighbours of a row, as MX formats have them: (ceil(k/32), rows); only the CPU's ops take it */
} sb_scaling;
const char *sb_scaling_name(sb_scaling s); /* "none", "tensor", "row", "1x128", "128x128", "1x32" */
/* Floats of the scales of an operand of (rows, columns). */
size_t sb_scale_count(sb_scaling s, int rows, int columns);
/* The place among them of the scale of an element. */
size_t sb_scale_place(sb_scaling s, int rows, int columns, int row, int column);

/* The matrix that the ops below take magnitudes and codes of: x, or what an op of train.h makes of it, rounded to dtype as that
 * op does and never stored. Products along the matrix's rows are of its `columns`. */
typedef enum sb_float8_source {
    SB_FROM_X = 0,
    SB_FROM_SWIGLU,          /* x is gate_up, (rows, 2 columns), and the matrix h */
    SB_FROM_SWIGLU_GRADIENT, /* x is gate_up, (rows, columns), with dh, and the matrix d_gate_up */
    SB_FROM_RMSNORM,         /* x is that of sb_rmsnorm, whose forward has left rstd, and the matrix y */
    SB_FROM_ROPE_GRADIENT /* a row of x has heads that sb_rope has turned, then others; the matrix has them turned back */
} sb_float8_source;

/* What that op reads beside x. */
typedef struct sb_float8_from {
    sb_float8_source source;
    const void *dh;     /* SB_FROM_SWIGLU_GRADIENT: (rows, columns / 2) */
    const float *rstd;  /* SB_FROM_RMSNORM: (rows), */
    const void *gain;   /* and its weight, (columns), of dtype */
    const float *table; /* SB_FROM_ROPE_GRADIENT: of sb_rope, (seq, head_dim / 2, 2); row r is at position r % seq */
    int seq, head_dim, turned; /* head_dim is a multiple of 8, and the first `turned` columns are whole heads */
} sb_float8_from;

/* The largest magnitude, as the bits of an fp32 without its sign: a maximum of unsigned integers, which NaN and infinity win;
 * every NaN is 0x7fffffff. What is NULL is not wanted. */
typedef struct sb_amax {
    sb_dtype dtype; /* SB_BF16, SB_FP16 or SB_FP32; on CUDA SwiGLU makes 16 bits, RMSNorm and RoPE bf16 */
    sb_float8_from from;
    int rows, columns, ld; /* ld: of x; as wide as x where that is gate_up */
    const void *x;
    uint32_t *of_all;     /* (1) */
    uint32_t *of_rows;    /* (rows) */
    uint32_t *of_columns; /* (columns) */
} sb_amax;

/* The matrix as codes, in its own order and transposed, in one pass over it: a product takes k as the columns of both operands, and
 * two products of a linear layer need the same matrix with another k. Each copy is made from x, and is scaled along its own rows.
 * What is NULL is not wanted; one of y and y_t is. */
typedef struct sb_quantize {
    sb_dtype dtype;       /* from, dtype, ld, x: as in sb_amax */
    sb_dtype format;      /* SB_E4M3 or SB_E5M2 */
    sb_scaling scaling;   /* gradients of SwiGLU: a block ends where gate does, so columns / 2 is a multiple of 128 */
    sb_scaling scaling_t; /* of y_t, where that of y is 1x128 and this one 128x128; SB_SCALE_NONE: the same */
    sb_float8_from from;
    int rows, columns, ld;
    const void *x;
    /* Words of sb_amax, of this x or of others before it: one for SB_SCALE_TENSOR, which serves both copies; for SB_SCALE_ROW those
     * of the rows of y, and of y_t. Blocks find their own. What is larger than the word says becomes the format's largest value. */
    const uint32_t *amax, *amax_t;
    void *y; /* (rows, columns) codes, ld_y from one row to the next */
    int ld_y;
    float *scales; /* sb_scale_count(scaling, rows, columns) */
    void *y_t;     /* (columns, rows), ld_t from one row to the next */
    int ld_t;
    float *scales_t; /* sb_scale_count of y_t's scaling, columns, rows */
    /* (2) or NULL: added to are the finite elements whose magnitude was cut to the largest value, and those other than zero whose
     * code is zero; y counts, or y_t where that is alone. */
    uint32_t *counts;
    uint32_t *largest; /* (1) or NULL: raised to the largest magnitude of the matrix where that is more */
    /* For SB_SCALE_TENSOR without counts, and with a word of 0 in `largest`: amax is a guess. Where the largest magnitude asks for
     * another scale, the matrix is cast once more, with that one; so a good guess saves the pass that would look for it. */
    bool again;
} sb_quantize;

/* The codes of a matrix (rows, columns), transposed: where one scale, or those of squares of 128x128, serve both orders, these are
 * the bits that a cast of the matrix has. Rows and columns are multiples of 16, and nothing lies between rows. */
typedef struct sb_codes {
    sb_scaling scaling; /* SB_SCALE_TENSOR or SB_SCALE_128X128 */
    int rows, columns;
    const void *x;
    const float *scales; /* sb_scale_count(scaling, rows, columns) */
    void *y_t;           /* (columns, rows) */
    float *scales_t;     /* sb_scale_count(scaling, columns, rows) */
} sb_codes;

/* Scales made of earlier steps: each word of `largest` that is finite and not zero enters its history ahead of the older ones, and
 * begins anew at zero; `used` is the largest of its history. Words of 0 are what has never been entered. */
typedef struct sb_float8_history {
    int n, window;
    uint32_t *largest; /* (n) */
    uint32_t *history; /* (window, n) */
    uint32_t *used;    /* (n) */
} sb_float8_history;

/* How tensor cores sum products of float8: Hopper adds 32 at a time and keeps 13 bits of the fraction, cutting the rest off. */
typedef enum sb_float8_sums {
    SB_SUMS_EXACT = 0, /* each 128 of k begin anew, and are added in fp32 */
    SB_SUMS_FAST = 1   /* all of k in one chain; too small by 7 % at k 4096 where no product is negative */
} sb_float8_sums;

#ifdef __cplusplus
}
#endif
#endif
