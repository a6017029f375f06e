/* SPDX-License-Identifier: MIT */
/* The table of precision policies. */
#include "common/model/precision.h"

#include <string.h>

const precision precisions[] = {
    {"fp32", "fp32 in memory and in products", SB_FP32, SB_FP32, SB_FP32, SB_FP32, SB_FP32, SB_MASTER_NONE, false},
    {"tf32", "fp32 in memory, products with 10 mantissa bits", SB_TF32, SB_FP32, SB_FP32, SB_FP32, SB_FP32,
     SB_MASTER_NONE, false},
    {"bf16", "bf16, with fp32 master weights (bf16 and a 16-bit remainder) and fp32 moments", SB_BF16, SB_BF16, SB_BF16,
     SB_BF16, SB_FP32, SB_MASTER_SPLIT, false},
    {"bf16-pure", "bf16 everywhere, moments too; no master weights", SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_BF16,
     SB_MASTER_NONE, false},
    {"fp16", "fp16, with fp32 master weights and moments and a dynamic loss scale", SB_FP16, SB_FP16, SB_FP16, SB_FP16,
     SB_FP32, SB_MASTER_FP32, true},
    {0},
};

const precision *precision_find(const char *name)
{
    for (const precision *p = precisions; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
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
