/* SPDX-License-Identifier: MIT */
/* Between tensors as stored (any dtype, any strides) and contiguous fp32 rows. */
#include "kernels/cpu/cpu.h"

#include "common/core/numeric.h"

#include <string.h>

void cpu_load(sb_dtype t, float *out, const void *in, size_t n)
{
    const uint16_t *half = in;
    const uint8_t *byte = in;
    switch (t) {
    case SB_BF16:
        for (size_t i = 0; i < n; i++)
            out[i] = bf16_to_float(half[i]);
        return;
    case SB_FP16:
        for (size_t i = 0; i < n; i++)
            out[i] = fp16_to_float(half[i]);
        return;
    case SB_E4M3:
        for (size_t i = 0; i < n; i++)
            out[i] = e4m3_to_float(byte[i]);
        return;
    case SB_E5M2:
        for (size_t i = 0; i < n; i++)
            out[i] = e5m2_to_float(byte[i]);
        return;
    case SB_TF32:
    case SB_BF16X3:
    case SB_FP32: memcpy(out, in, n * sizeof *out); cpu_round_operand(t, out, n);
    }
}

void cpu_store(sb_dtype t, void *out, const float *in, size_t n)
{
    uint16_t *half = out;
    uint8_t *byte = out;
    switch (t) {
    case SB_BF16:
        for (size_t i = 0; i < n; i++)
            half[i] = bf16_from_float(in[i]);
        return;
    case SB_FP16:
        for (size_t i = 0; i < n; i++)
            half[i] = fp16_from_float(in[i]);
        return;
    case SB_E4M3:
        for (size_t i = 0; i < n; i++)
            byte[i] = e4m3_from_float(in[i]);
        return;
    case SB_E5M2:
        for (size_t i = 0; i < n; i++)
            byte[i] = e5m2_from_float(in[i]);
        return;
    case SB_TF32:
    case SB_BF16X3:
    case SB_FP32: memcpy(out, in, n * sizeof *in);
    }
}

void cpu_round_operand(sb_dtype t, float *x, size_t n)
{
    if (t != SB_TF32)
        return;
    for (size_t i = 0; i < n; i++)
        x[i] = tf32_round(x[i]);
}

static char *row_address(const sb_attention *a, const sb_tensor *x, int b, int h, int s)
{
    int64_t element = b * x->stride_b + h * x->stride_h + s * x->stride_s;
    return (char *)x->data + element * sb_dtype_bytes(a->dtype);
}

void cpu_load_rows(const sb_attention *a, const sb_tensor *x, int b, int h, int first, int n, int columns, float *out)
{
    for (int i = 0; i < n; i++)
        cpu_load(a->dtype, out + (size_t)i * columns, row_address(a, x, b, h, first + i), columns);
}

void cpu_store_rows(const sb_attention *a, const sb_tensor *x, int b, int h, int first, int n, int columns,
                    const float *in)
{
    for (int i = 0; i < n; i++)
        cpu_store(a->dtype, row_address(a, x, b, h, first + i), in + (size_t)i * columns, columns);
}
