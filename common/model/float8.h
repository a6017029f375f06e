/* SPDX-License-Identifier: MIT */
/* Products of float8, and recipes: which product each of the three of a linear layer is. A scale belongs to an operand of a
 * product, not to a tensor of the model, and each operand is cast from 16 bits along the k of its product. */
#pragma once

#include "common/model/precision.h"

typedef struct float8_operand {
    sb_dtype format;
    sb_scaling scaling;
} float8_operand;

/* D = A B^T. */
typedef struct float8_product {
    const char *name, *summary;
    float8_operand a, b;
    sb_float8_sums sums;
} float8_product;
extern const float8_product float8_products[]; /* ends with name == NULL */
#define FLOAT8_PRODUCTS "tensor-fast|tensor|tensor-e5m2|row-fast|row|block|block-dw|mx"
const float8_product *float8_product_find(const char *name); /* NULL: there is none */

/* y = x w^T, dx = dy w, dw = dy^T x: the first factor is A. */
typedef struct float8_recipe {
    const char *name, *summary;
    const char *y, *dx, *dw; /* names of products; NULL: in bf16 */
    bool delayed;            /* scales are made of the largest magnitudes of earlier steps */
} float8_recipe;
extern const float8_recipe float8_recipes[]; /* ends with name == NULL */
const float8_recipe *float8_recipe_find(const char *name);
/* Whether the backend has all products of a policy, those of 16 bits included; else sb_last_message says why not. */
bool float8_supported(const sb_kernels *k, sb_context *ctx, const precision *p);
/* The scaling of a product that fewer GPUs have. */
sb_scaling float8_rarest(const float8_product *p);
