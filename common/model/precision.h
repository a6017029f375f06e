/* SPDX-License-Identifier: MIT */
/* Precision policies: in which dtype each part of a step lies in memory and is multiplied. */
#pragma once

#include "kernels/kernels.h"

typedef struct precision {
    const char *name; /* "fp32", "tf32", "bf16", "bf16-pure", "fp16", "fp8-..." */
    const char *summary;
    sb_dtype compute;     /* of matrix products and attention */
    sb_dtype activations; /* in memory: also the residual stream and its gradient */
    sb_dtype param;       /* what the products read */
    sb_dtype grad;        /* default; --grad-dtype can make it fp32 */
    sb_dtype moments;     /* Adam's m and v */
    sb_master master;     /* where the fp32 value of a 16-bit parameter is kept */
    bool loss_scaling;    /* dynamic */
    bool float8;          /* products of the blocks' linear layers: by the recipe of this name (float8.h) */
} precision;

/* fp32: no tensor cores, or with split (see kernels/train.h) several 16-bit products for one of fp32. tf32: fp32 in
 * memory, products with 10 mantissa bits. bf16: mixed, fp32 master weights (bf16 + remainder), bf16 elsewhere.
 * bf16-pure: everything is bf16. fp16: mixed, fp32 master weights, dynamic loss scale. fp8-...: as bf16, but for products in float8. */
extern const precision precisions[]; /* ends with name == NULL */
#define PRECISION_CHOICES                                                                                              \
    "fp32|tf32|bf16|bf16-pure|fp16|fp8-tensorwise|fp8-rowwise|fp8-rowwise-dw16|fp8-block|fp8-block-dw2d|fp8-mx|fp8-"   \
    "delayed"

const precision *precision_find(const char *name);
bool precision_same_state(const precision *p, const precision *q); /* one's numbers between two steps are the other's */

/* Adam's m and v: as the policy says, in fp32, or in bf16, where v is rounded stochastically (kernels/shared/stochastic.h). The
 * bf16 of bf16-pure is rounded to the nearest, as PyTorch does. */
typedef enum moments_kind { MOMENTS_POLICY, MOMENTS_FP32, MOMENTS_BF16 } moments_kind;
#define MOMENTS_CHOICES "policy|fp32|bf16"
moments_kind moments_parse(const char *name); /* one of MOMENTS_CHOICES */
sb_dtype moments_dtype(const precision *p, moments_kind kind);

int precision_master_bytes(const precision *p); /* of one parameter: 0, 2 or 4 */
