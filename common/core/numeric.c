/* Rounding of fp32 to bf16, fp16 and tf32 by integer arithmetic, so that every compiler gives the same bits. */
#include "common/core/numeric.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* bits / 2^shift to the nearest integer, ties to even; 1 <= shift <= 31. */
static uint32_t shift_nearest_even(uint32_t bits, int shift)
{
    uint32_t half = 1u << (shift - 1), rest = bits & ((1u << shift) - 1), result = bits >> shift;
    return result + (rest > half || (rest == half && (result & 1)));
}

uint16_t bf16_from_float(float x)
{
    uint32_t bits = bits_of(x);
    if (isnan(x))
        return (uint16_t)(bits >> 16 | 0x40); /* quiet, or a payload in the low half alone would turn into inf */
    return (uint16_t)shift_nearest_even(bits, 16);
}

float bf16_to_float(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

uint16_t fp16_from_float(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
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

float fp16_to_float(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, mantissa = x & 0x3ff;
    if (exponent == 31)
        return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) {
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

float tf32_round(float x)
{
    if (!isfinite(x))
        return x;
    return float_of((bits_of(x) + 0x1000u) & ~0x1fffu);
}
