/* SPDX-License-Identifier: MIT */
/* fp32 in two halves: nothing is lost, and the upper half is the nearest bf16. */
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

static void test_edges(void **state)
{
    (void)state;
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

static void test_nan(void **state)
{
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0x7f808000, 0xff800001, 0xffffffff, 0xffff8000};
    (void)state;
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        uint16_t bf16;
        int16_t remainder;
        float_split(float_of_bits(nans[i]), &bf16, &remainder);
        assert_int_equal(bf16, nans[i] >> 31 ? 0xffc0 : 0x7fc0);
        assert_int_equal(remainder, 0);
    }
}

/* A 251st of all bit patterns, every low half among them: exact, and no bf16 is nearer. */
static void test_every_low_half(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_every_low_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
