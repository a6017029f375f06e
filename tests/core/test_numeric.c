/* SPDX-License-Identifier: MIT */
/* fp32 in two halves: nothing is lost, and the upper half is the nearest bf16. 8-bit floats: every code has its value, and every
 * 16-bit number times powers of two goes to the nearest code. */
#include "tests/support/test.h"

#include "common/core/numeric.h"

static void expect_split(uint32_t bits, uint16_t bf16, int remainder)
{
    uint16_t upper;
    int16_t lower;
    float_split(float_of_bits(bits), &upper, &lower);
    if (upper != bf16 || lower != remainder || float_bits(float_join(upper, lower)) != bits)
        fail_msg("%08x splits into %04x and %d, joined %08x; %04x and %d were expected", bits, upper, lower,
                 float_bits(float_join(upper, lower)), bf16, remainder);
}

TEST(test_edges)
{
    expect_split(0x00000000, 0x0000, 0); /* zeros */
    expect_split(0x80000000, 0x8000, 0);
    expect_split(0x3f800000, 0x3f80, 0);
    expect_split(0x3f807fff, 0x3f80, 32767);  /* just below a tie */
    expect_split(0x3f808000, 0x3f81, -32768); /* a tie, from an even bf16 */
    expect_split(0x3f818000, 0x3f82, -32768); /* a tie, from an odd one */
    expect_split(0xbf808000, 0xbf81, -32768); /* ties of negative numbers go away from zero, too */
    expect_split(0x3f808001, 0x3f81, -32767); /* just above a tie */
    expect_split(0x3fffffff, 0x4000, -1);     /* rounds into the next exponent */
    expect_split(0x00000001, 0x0000, 1);      /* the smallest subnormal */
    expect_split(0x80000001, 0x8000, 1);      /* remainders are of the bits, whatever the sign */
    expect_split(0x00007fff, 0x0000, 32767);  /* subnormals around their first tie */
    expect_split(0x00008000, 0x0001, -32768);
    expect_split(0x007fffff, 0x0080, -1);     /* the largest subnormal rounds to a normal number */
    expect_split(0x7f7f7fff, 0x7f7f, 32767);  /* the largest that bf16 holds, as nearest */
    expect_split(0x7f7f8000, 0x7f80, -32768); /* from here the bf16 is infinite, and the fp32 still whole */
    expect_split(0x7f7fffff, 0x7f80, -1);
    expect_split(0xff7fffff, 0xff80, -1);
    expect_split(0x7f800000, 0x7f80, 0); /* infinities */
    expect_split(0xff800000, 0xff80, 0);
}

TEST(test_nan)
{
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0x7f808000, 0xff800001, 0xffffffff, 0xffff8000};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        uint16_t bf16;
        int16_t remainder;
        float_split(float_of_bits(nans[i]), &bf16, &remainder);
        assert_int_equal(bf16, nans[i] >> 31 ? 0xffc0 : 0x7fc0);
        assert_int_equal(remainder, 0);
    }
}

/* A 251st of all bit patterns, every low half among them: exact, and no bf16 is nearer. */
TEST(test_every_low_half)
{
    for (uint64_t i = 0; i <= 0xffffffff; i += 251) {
        const uint32_t bits = (uint32_t)i;
        const float x = float_of_bits(bits);
        uint16_t bf16;
        int16_t remainder;
        if (isnan(x))
            continue;
        float_split(x, &bf16, &remainder);
        if (float_bits(float_join(bf16, remainder)) != bits)
            fail_msg("%08x is joined to %08x", bits, float_bits(float_join(bf16, remainder)));
        if ((bits & 0xffff) != 0x8000 && bf16 != bf16_from_float(x))
            fail_msg("%08x: %04x is not the nearest bf16", bits, bf16);
    }
}

/* ---- 8-bit floats ---- */

typedef struct format {
    int mantissa, bias, largest; /* largest: the code of the largest finite value */
    bool has_infinity;
    uint8_t (*from)(float x);
    float (*to)(uint8_t x);
} format;
static const format formats[] = {{3, 7, 0x7e, false, e4m3_from_float, e4m3_to_float},
                                 {2, 15, 0x7b, true, e5m2_from_float, e5m2_to_float}};

/* By the definition of a float, in double. */
static double value_of(const format *f, int code)
{
    const int exponent = code >> f->mantissa & ((1 << (7 - f->mantissa)) - 1),
              fraction = code & ((1 << f->mantissa) - 1);
    const double magnitude = exponent == 0 ? ldexp(fraction, 1 - f->bias - f->mantissa)
                                           : ldexp((1 << f->mantissa) + fraction, exponent - f->bias - f->mantissa);
    return code & 0x80 ? -magnitude : magnitude;
}

TEST(test_every_code)
{
    assert_true(e4m3_to_float(0x7e) == 448 && e5m2_to_float(0x7b) == 57344);
    for (size_t i = 0; i < 2; i++)
        for (int code = 0; code < 256; code++) {
            const format *f = &formats[i];
            const float x = f->to((uint8_t)code);
            if ((code & 0x7f) <= f->largest) {
                if (x != value_of(f, code) || (signbit(x) != 0) != (code >> 7) || f->from(x) != code)
                    fail_msg("format %zu: code %02x is %.9g and back %02x, not %.9g", i, code, x, f->from(x),
                             value_of(f, code));
            } else if (f->has_infinity && (code & 0x7f) == f->largest + 1) {
                assert_true(isinf(x) && (signbit(x) != 0) == (code >> 7) && f->from(x) == code);
            } else {
                assert_true(isnan(x) && f->from(x) == 0x7f);
            }
        }
    assert_int_equal(e4m3_from_float(INFINITY), 0x7f);
    assert_int_equal(e4m3_from_float(-INFINITY), 0x7f);
    assert_int_equal(e4m3_from_float(-NAN), 0x7f);
}

/* The nearest finite code by trying them all; of two equally near ones that with an even code. */
static int nearest(const format *f, double x)
{
    static double values[2][128];
    double *v = values[f - formats];
    if (v[1] == 0)
        for (int code = 0; code < 128; code++)
            v[code] = value_of(f, code);
    if (fabs(x) >= v[f->largest]) /* far away, all are equally near in double */
        return f->largest | (signbit(x) ? 0x80 : 0);
    int best = 0;
    for (int code = 1; code <= f->largest; code++) {
        const double here = fabs(v[code] - fabs(x)), there = fabs(v[best] - fabs(x));
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return best | (signbit(x) ? 0x80 : 0);
}

TEST(test_every_16_bit_number)
{
    static const int powers[] = {-20, -9, -1, 0, 3, 11, 20};
    for (size_t i = 0; i < 2; i++)
        for (size_t p = 0; p < sizeof powers / sizeof *powers; p++)
            for (int bits = 0; bits < 2 * 65536; bits++) {
                const float x16 = bits < 65536 ? bf16_to_float((uint16_t)bits) : fp16_to_float((uint16_t)bits);
                const float x = x16 * ldexpf(1, powers[p]);
                if (isfinite(x) && formats[i].from(x) != nearest(&formats[i], x))
                    fail_msg("format %zu: %.9g becomes %02x, the nearest is %02x", i, x, formats[i].from(x),
                             nearest(&formats[i], x));
            }
}
