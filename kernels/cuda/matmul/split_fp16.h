/* SPDX-License-Identifier: MIT */
/* fp32 matrices as two fp16 parts, x scale = hi + lo / 2^11, with one power of two as the scale of a matrix. The scale
 * takes the largest finite magnitude to [2^14, 2^15), as near below fp16's end as rounding allows; 2^11 keeps lo, the
 * rounding error of hi, in the same range. hi and lo hold x to 2^-23 of itself, down to 2^-28 of the largest; below
 * that to 2^-50 of the largest. An infinity or NaN makes lo a NaN. Ootomo and Yokota, "Recovering single precision
 * accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance" (2022). */
#pragma once

#include "kernels/kernels.h"

SB_C_BEGIN

/* Rows and columns as they are stored. A part may have more of both, up to a multiple of four columns; what the
 * matrix does not have is zero there. Parts are 8-byte aligned, and so are their rows. */
typedef struct split_operand {
    const float *x;
    int rows, columns, ld;
    int part_rows, part_columns, part_ld;
    void *hi, *lo;
} split_operand;

/* What the products of the parts are multiplied by, in device memory; see split_products.c. Where both scales together
 * are too large for a normal alpha_small, each gives up half of the excess. */
typedef struct split_scalars {
    float alpha_small; /* 2^-11 / (scale of A x scale of B): hi lo + lo hi */
    float alpha;       /* 1 / (scale of A x scale of B): hi hi. Infinity when largest A x largest B is above 2^155 */
    float one, zero;
} split_scalars;

enum { SPLIT_PARTIALS = 1024 }; /* words of `partials` */

/* Both operands of a product to parts: two launches. `partials` is scratch. */
sb_status split_fp16_parts(const split_operand *a, const split_operand *b, split_scalars *scalars, unsigned *partials,
                           int sm_count, void *stream);

SB_C_END
