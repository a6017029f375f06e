/* SPDX-License-Identifier: MIT */
/* Names and host arrays of the dtypes; see dtypes.h. */
#include "common/model/dtypes.h"

#include <string.h>

#include "common/core/error.h"
#include "common/core/numeric.h"

sb_dtype dtype_named(const char *name)
{
    for (int t = SB_BF16; t <= SB_E5M2; t++)
        if (strcmp(sb_dtype_name((sb_dtype)t), name) == 0)
            return (sb_dtype)t;
    die(EXIT_CODE_FAILURE, "bug: there is no dtype %s", name);
}

float dtype_round(sb_dtype t, float x)
{
    switch (t) {
    case SB_BF16: return bf16_to_float(bf16_from_float(x));
    case SB_FP16: return fp16_to_float(fp16_from_float(x));
    case SB_E4M3: return e4m3_to_float(e4m3_from_float(x));
    case SB_E5M2: return e5m2_to_float(e5m2_from_float(x));
    case SB_TF32:
    case SB_BF16X3:
    case SB_FP32: break;
    }
    return x;
}

void dtype_store(sb_dtype t, void *out, const float *in, size_t n)
{
    uint16_t *half = out;
    uint8_t *byte = out;
    if (sb_dtype_bytes(t) == sizeof *in)
        memcpy(out, in, n * sizeof *in);
    else if (sb_dtype_bytes(t) == 1)
        for (size_t i = 0; i < n; i++)
            byte[i] = t == SB_E4M3 ? e4m3_from_float(in[i]) : e5m2_from_float(in[i]);
    else
        for (size_t i = 0; i < n; i++)
            half[i] = t == SB_BF16 ? bf16_from_float(in[i]) : fp16_from_float(in[i]);
}

void dtype_load(sb_dtype t, float *out, const void *in, size_t n)
{
    const uint16_t *half = in;
    const uint8_t *byte = in;
    if (sb_dtype_bytes(t) == sizeof *out)
        memcpy(out, in, n * sizeof *out);
    else if (sb_dtype_bytes(t) == 1)
        for (size_t i = 0; i < n; i++)
            out[i] = t == SB_E4M3 ? e4m3_to_float(byte[i]) : e5m2_to_float(byte[i]);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = t == SB_BF16 ? bf16_to_float(half[i]) : fp16_to_float(half[i]);
}
