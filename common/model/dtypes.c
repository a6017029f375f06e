/* SPDX-License-Identifier: MIT */
/* Names and host arrays of the dtypes; see dtypes.h. */
#include "common/model/dtypes.h"

#include <string.h>

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/spread.h"
#include "common/device/pieces.h"

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

static void store(sb_dtype t, void *out, const float *in, size_t n)
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

static void load(sb_dtype t, float *out, const void *in, size_t n)
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

/* ---- large arrays: by several threads, and from and to a device ---- */

typedef struct array {
    sb_dtype dtype;
    size_t element;
    float *floats;
    const float *in; /* those of the other direction */
    char *memory;
    const char *from;
} array;

static void store_piece(void *arg, size_t first, size_t count)
{
    const array *a = arg;
    store(a->dtype, a->memory + first * a->element, a->in + first, count);
}

void dtype_store(sb_dtype t, void *out, const float *in, size_t n)
{
    array a = {.dtype = t, .element = (size_t)sb_dtype_bytes(t), .in = in, .memory = out};
    spread_pieces(n, SPREAD_PIECE, store_piece, &a);
}

static void load_piece(void *arg, size_t first, size_t count)
{
    const array *a = arg;
    load(a->dtype, a->floats + first, a->from + first * a->element, count);
}

void dtype_load(sb_dtype t, float *out, const void *in, size_t n)
{
    array a = {.dtype = t, .element = (size_t)sb_dtype_bytes(t), .floats = out, .from = in};
    spread_pieces(n, SPREAD_PIECE, load_piece, &a);
}

static void give(void *arg, void *piece, size_t at, size_t bytes)
{
    const array *a = arg;
    dtype_store(a->dtype, piece, a->in + at / a->element, bytes / a->element);
}

void dtype_upload(device *d, sb_dtype t, void *to, const float *in, size_t n)
{
    array a = {.dtype = t, .element = (size_t)sb_dtype_bytes(t), .in = in};
    pieces_write(d, to, n * a.element, give, &a);
}

static void take(void *arg, const void *piece, size_t at, size_t bytes)
{
    const array *a = arg;
    dtype_load(a->dtype, a->floats + at / a->element, piece, bytes / a->element);
}

void dtype_download(device *d, sb_dtype t, float *out, const void *from, size_t n)
{
    array a = {.dtype = t, .element = (size_t)sb_dtype_bytes(t), .floats = out};
    pieces_read(d, from, n * a.element, take, &a);
}
