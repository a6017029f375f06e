/* SPDX-License-Identifier: MIT */
/* 16- and 8-bit floats on the host, round to nearest even, NaN kept; tf32 rounding; fp32 in two 16-bit halves. By integer
 * arithmetic, so that every compiler gives the same bits; inline, so that loops over them become vector code. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* bits / 2^shift to the nearest integer, ties to even; 1 <= shift <= 31, and the sum does not pass 2^32. */
static inline uint32_t shift_nearest_even(uint32_t bits, int shift)
{
    return (bits + (1u << (shift - 1)) - 1 + (bits >> shift & 1)) >> shift;
}

static inline uint16_t bf16_from_float(float x)
{
    uint32_t bits = float_bits(x);
    /* NaN: quiet, or a payload only in the low half would turn into inf. */
    return (uint16_t)(isnan(x) ? bits >> 16 | 0x40 : shift_nearest_even(bits, 16));
}

static inline float bf16_to_float(uint16_t x)
{
    return float_of_bits((uint32_t)x << 16);
}

static inline uint16_t fp16_from_float(float x)
{
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x47800000) /* 2^16 and more, inf */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x38800000) /* 2^-14 and more: normal; a carry into the exponent is right, up to inf */
        return (uint16_t)(sign | shift_nearest_even(magnitude - (112u << 23), 13));
    int exponent = (int)(magnitude >> 23);
    if (exponent < 102) /* below 2^-25, half of the smallest subnormal */
        return (uint16_t)sign;
    uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shift_nearest_even(mantissa, 126 - exponent));
}

static inline float fp16_to_float(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, mantissa = x & 0x3ff;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) {
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* 8-bit floats of the OCP specification ("OCP 8-bit Floating Point Specification", revision 1.0, 2023), to the nearest, ties to
 * even. e4m3 has 4 bits of exponent and 3 of mantissa, values up to 448, and no infinity; e5m2 is the upper half of an fp16,
 * with values up to 57344. Finite numbers beyond the largest become the largest; infinity stays where there is one, and is NaN
 * in e4m3. NaN is 0x7f, without its sign, as Hopper converts it. */
static inline uint8_t float8_from_float(float x, int mantissa_bits, int bias, uint8_t largest, uint8_t infinity)
{
    const uint32_t bits = float_bits(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x7f800000)
        return magnitude > 0x7f800000 || infinity == 0x7f ? 0x7f : (uint8_t)(sign | infinity);
    uint32_t code = 0;
    const int exponent = (int)(magnitude >> 23), shift = 151 - bias - mantissa_bits - exponent;
    if (exponent >= 128 - bias) /* normal; a carry into the exponent is right */
        code = shift_nearest_even(magnitude - ((uint32_t)(127 - bias) << 23), 23 - mantissa_bits);
    else if (shift <= 24) /* subnormal, and not below half of the smallest */
        code = shift_nearest_even((magnitude & 0x7fffff) | 0x800000, shift);
    return (uint8_t)(sign | (code > largest ? largest : code));
}

static inline uint8_t e4m3_from_float(float x)
{
    return float8_from_float(x, 3, 7, 0x7e, 0x7f);
}

static inline uint8_t e5m2_from_float(float x)
{
    return float8_from_float(x, 2, 15, 0x7b, 0x7c);
}

static inline float e4m3_to_float(uint8_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x80) << 24, magnitude = x & 0x7f;
    if (magnitude == 0x7f)
        return float_of_bits(sign | 0x7fc00000);
    if (magnitude >= 8)
        return float_of_bits(sign | ((magnitude << 20) + (120u << 23)));
    return sign ? -(float)magnitude * 0x1p-9f : (float)magnitude * 0x1p-9f;
}

static inline float e5m2_to_float(uint8_t x)
{
    return fp16_to_float((uint16_t)(x << 8));
}

/* 10 explicit mantissa bits, nearest, ties away (cvt.rna). */
static inline float tf32_round(float x)
{
    return isfinite(x) ? float_of_bits((float_bits(x) + 0x1000u) & ~0x1fffu) : x;
}

/* An fp32 as its nearest bf16 and an int16 remainder r: fp32 bits = (bf16 bits << 16) + r, modulo 2^32. Joining gives
 * back every bit of every number and infinity; a NaN comes back as the quiet NaN of its sign, with r = 0.
 * A value halfway between two bf16 goes to the one farther from zero. To the even one it could not: an even bf16 would
 * stand for 2^16 + 1 values, the ties on both its sides among them, and r has 2^16. */
static inline void float_split(float x, uint16_t *bf16, int16_t *remainder)
{
    /* Rounding up could carry another NaN into zero or inf. */
    uint32_t bits = isnan(x) ? (float_bits(x) & 0x80000000) | 0x7fc00000 : float_bits(x);
    *bf16 = (uint16_t)((bits + 0x8000) >> 16);
    *remainder = (int16_t)(((int32_t)(bits & 0xffff) ^ 0x8000) - 0x8000); /* the low half, its top bit as a sign */
}

static inline float float_join(uint16_t bf16, int16_t remainder)
{
    return float_of_bits(((uint32_t)bf16 << 16) + (uint32_t)(int32_t)remainder);
}
