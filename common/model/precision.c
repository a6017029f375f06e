/* SPDX-License-Identifier: MIT */
/* The table of precision policies. */
#include "common/model/precision.h"

#include <string.h>

const precision precisions[] = {
    {"fp32", "fp32 in memory and in products", SB_FP32, SB_FP32, SB_FP32, SB_FP32, SB_FP32, SB_MASTER_NONE, false,
     false},
    {"tf32", "fp32 in memory, products with 10 mantissa bits", SB_TF32, SB_FP32, SB_FP32, SB_FP32, SB_FP32,
     SB_MASTER_NONE, false, false},
    {"bf16", "bf16, with fp32 master weights (bf16 and a 16-bit remainder) and fp32 moments", SB_BF16, SB_BF16, SB_BF16,
     SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, false},
    {"bf16-pure", "bf16 everywhere, moments too; no master weights", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_BF16,
     SB_MASTER_NONE, false, false},
    {"fp16", "fp16, with fp32 master weights and moments and a dynamic loss scale", SB_FP16, SB_FP16, SB_FP16, SB_FP16,
     SB_FP32, SB_MASTER_FP32, true, false},
    {"fp8-tensorwise", "as bf16, products of the blocks in float8 with a scale for each matrix", SB_BF16, SB_BF16,
     SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true},
    {"fp8-rowwise", "as bf16, products of the blocks in float8 with a scale for each row", SB_BF16, SB_BF16, SB_BF16,
     SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true},
    {"fp8-rowwise-dw16", "as fp8-rowwise, gradients of weights in bf16", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32,
     SB_MASTER_SPLIT, false, true},
    {"fp8-block", "as bf16, products of the blocks in float8 with scales for 1x128 and 128x128", SB_BF16, SB_BF16,
     SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true},
    {"fp8-block-dw2d", "as fp8-block, gradients of weights with 128x128 of inputs in place of 1x128", SB_BF16, SB_BF16,
     SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true},
    {"fp8-mx", "as bf16, products of the blocks in float8 with scales for 1x32, as MX formats have them; only the CPU",
     SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true},
    {"fp8-delayed", "as fp8-tensorwise, with scales made of the largest magnitudes of earlier steps", SB_BF16, SB_BF16,
     SB_BF16, SB_BF16, SB_FP32, SB_MASTER_SPLIT, false, true},
    {0},
};

const precision *precision_find(const char *name)
{
    for (const precision *p = precisions; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

bool precision_same_state(const precision *p, const precision *q)
{
    return p->compute == q->compute && p->activations == q->activations && p->param == q->param && p->grad == q->grad &&
           p->moments == q->moments && p->master == q->master && p->loss_scaling == q->loss_scaling;
}

moments_kind moments_parse(const char *name)
{
    return strcmp(name, "fp32") == 0 ? MOMENTS_FP32 : strcmp(name, "bf16") == 0 ? MOMENTS_BF16 : MOMENTS_POLICY;
}

sb_dtype moments_dtype(const precision *p, moments_kind kind)
{
    switch (kind) {
    case MOMENTS_POLICY: break;
    case MOMENTS_FP32: return SB_FP32;
    case MOMENTS_BF16: return SB_BF16;
    }
    return p->moments;
}

int precision_master_bytes(const precision *p)
{
    switch (p->master) {
    case SB_MASTER_NONE: return 0;
    case SB_MASTER_SPLIT: return 2;
    case SB_MASTER_FP32: return 4;
    }
    return 0;
}
