/* SPDX-License-Identifier: MIT */
/* The tables of products of float8, and of recipes. */
#include "common/model/float8.h"

#include <string.h>

const float8_product float8_products[] = {
    {"tensor-fast",
     "e4m3, a scale for each matrix, fast sums",
     {SB_E4M3, SB_SCALE_TENSOR},
     {SB_E4M3, SB_SCALE_TENSOR},
     SB_SUMS_FAST},
    {"tensor", "e4m3, a scale for each matrix", {SB_E4M3, SB_SCALE_TENSOR}, {SB_E4M3, SB_SCALE_TENSOR}, SB_SUMS_EXACT},
    {"tensor-e5m2",
     "e5m2 by e4m3, a scale for each matrix",
     {SB_E5M2, SB_SCALE_TENSOR},
     {SB_E4M3, SB_SCALE_TENSOR},
     SB_SUMS_EXACT},
    {"row-fast",
     "e4m3, a scale for each row, fast sums",
     {SB_E4M3, SB_SCALE_ROW},
     {SB_E4M3, SB_SCALE_ROW},
     SB_SUMS_FAST},
    {"row", "e4m3, a scale for each row", {SB_E4M3, SB_SCALE_ROW}, {SB_E4M3, SB_SCALE_ROW}, SB_SUMS_EXACT},
    {"block",
     "e4m3, scales for 1x128 by 128x128",
     {SB_E4M3, SB_SCALE_1X128},
     {SB_E4M3, SB_SCALE_128X128},
     SB_SUMS_EXACT},
    {"block-dw",
     "e4m3, scales for 1x128 by 1x128",
     {SB_E4M3, SB_SCALE_1X128},
     {SB_E4M3, SB_SCALE_1X128},
     SB_SUMS_EXACT},
    {"mx",
     "e4m3, scales for 1x32 by 1x32; only the CPU",
     {SB_E4M3, SB_SCALE_1X32},
     {SB_E4M3, SB_SCALE_1X32},
     SB_SUMS_EXACT},
    {0}};

/* The recipes of torchao (tensorwise, rowwise, rowwise_with_gw_hp), DeepSeek-V3 (block), TransformerEngine (delayed) and OCP's MX. */
const float8_recipe float8_recipes[] = {
    {"fp8-tensorwise", "a scale for each matrix; gradients in e5m2", "tensor-fast", "tensor-e5m2", "tensor-e5m2",
     false},
    {"fp8-rowwise", "a scale for each row of an operand", "row-fast", "row", "row", false},
    {"fp8-rowwise-dw16", "by row; gradients of weights in bf16", "row-fast", "row", NULL, false},
    {"fp8-block", "1x128 of activations and gradients, 128x128 of weights", "block", "block", "block-dw", false},
    {"fp8-block-dw2d", "as fp8-block, inputs in 128x128 for gradients of weights", "block", "block", "block", false},
    {"fp8-delayed", "as fp8-tensorwise, with scales made of earlier steps", "tensor-fast", "tensor-e5m2", "tensor-e5m2",
     true},
    {"fp8-mx", "1x32, as MX formats", "mx", "mx", "mx", false},
    {0}};

const float8_product *float8_product_find(const char *name)
{
    for (const float8_product *p = float8_products; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

const float8_recipe *float8_recipe_find(const char *name)
{
    for (const float8_recipe *r = float8_recipes; r->name; r++)
        if (strcmp(r->name, name) == 0)
            return r;
    return NULL;
}

sb_scaling float8_rarest(const float8_product *p)
{
    return p->a.scaling == SB_SCALE_TENSOR ? p->b.scaling : p->a.scaling;
}

bool float8_supported(const sb_kernels *k, sb_context *ctx, const precision *p)
{
    const float8_recipe *r = p->float8 ? float8_recipe_find(p->name) : NULL;
    const char *const products[] = {r ? r->y : NULL, r ? r->dx : NULL, r ? r->dw : NULL};
    for (int i = 0; i < 3; i++)
        if (products[i] && k->train->float8_supported(ctx, float8_rarest(float8_product_find(products[i]))) != SB_OK)
            return false;
    return true;
}
