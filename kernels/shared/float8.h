/* SPDX-License-Identifier: MIT */
/* What both backends share of float8: the scale of a largest magnitude, and the places of scales. Not part of the API. */
#pragma once

#include "kernels/float8.h"
#include "kernels/shared/anywhere.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SB_FLOAT8_BLOCK = 128, SB_FLOAT8_MX_BLOCK = 32, SB_FLOAT8_SCALE_UNIT = 4 };

/* SB_OK, or why a GPU of this compute capability (90 for 9.0) with this version of cuBLAS (120900 for 12.9.0) multiplies no float8
 * with the scaling. */
sb_status sb_float8_gate(sb_scaling scaling, int capability, int library);

/* The magnitude of an fp32, both as bits. Every NaN is the same word: some conversions to fp32 keep a NaN's other bits, and some
 * do not. */
SB_ANYWHERE uint32_t sb_float8_magnitude(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7fffffffu;
    return magnitude > 0x7f800000u ? 0x7fffffffu : magnitude;
}

/* The bits of the scale of a group whose largest magnitude has the bits `amax`. Both formats end with 1.75 times a power of two,
 * 2^8 and 2^15, so magnitudes above 1.75 times a power of two need the next one. e5m2 has range to spare: its scales are powers of
 * 16, so that those of gradients, which are never twice the same, stay from one step to the next. */
SB_ANYWHERE uint32_t sb_float8_scale_bits(uint32_t amax, sb_dtype format)
{
    if (amax == 0)
        return 0x3f800000u;
    if (amax >= 0x7f800000u)
        return 0x7fffffffu;
    int power = (format == SB_E4M3 ? 8 : 15) + 127 - (int)(amax >> 23) - ((amax & 0x7fffffu) > 0x600000u);
    power = power > 118 ? 118 : power;
    if (format == SB_E5M2)
        power &= ~3;
    return (uint32_t)(127 - power) << 23;
}

/* The bits of 1 / scale. */
SB_ANYWHERE uint32_t sb_float8_inverse_bits(uint32_t scale)
{
    return scale >= 0x7f800000u ? scale : (254u << 23) - scale;
}

/* Rows of scales of squares are padded to this many. */
SB_ANYWHERE int sb_float8_square_ld(int columns)
{
    const int blocks = (columns + SB_FLOAT8_BLOCK - 1) / SB_FLOAT8_BLOCK;
    return (blocks + SB_FLOAT8_SCALE_UNIT - 1) / SB_FLOAT8_SCALE_UNIT * SB_FLOAT8_SCALE_UNIT;
}

#ifdef __cplusplus
}
#endif
