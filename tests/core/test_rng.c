/* SPDX-License-Identifier: MIT */
/* Random numbers and 16-bit floats: published vectors, independence of order, moments, exhaustive rounding. */
#include "tests/support/test.h"

#include "common/core/numeric.h"
#include "common/core/rng.h"

TEST(philox_vectors)
{
    /* Known answers of the Random123 library for philox4x32 with 10 rounds. */
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } table[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        philox4x32(table[i].counter, table[i].key, out);
        assert_memory_equal(out, table[i].expected, sizeof out);
    }
}

TEST(normal_moments)
{
    enum { N = 1 << 18 };
    static float x[N];
    rng_normal(x, N, 42, 7, 0, 2.0f);
    double sum[5] = {0};
    for (int i = 0; i < N; i++)
        for (int p = 1; p < 5; p++)
            sum[p] += pow(x[i] / 2.0, p);
    assert_true(fabs(sum[1] / N) < 0.01);
    assert_true(fabs(sum[2] / N - 1) < 0.02);
    assert_true(fabs(sum[3] / N) < 0.05);
    assert_true(fabs(sum[4] / N - 3) < 0.1);
}

TEST(any_order)
{
    enum { N = 1003 };
    float all[N], part[N], other[N];
    rng_normal(all, N, 5, 1, 0, 1);
    for (size_t first = 0; first < N; first += 37) {
        size_t n = N - first < 37 ? N - first : 37;
        rng_normal(part, n, 5, 1, first, 1);
        assert_memory_equal(part, all + first, n * sizeof *part);
    }
    rng_normal(part, 8, 5, 1, ((uint64_t)1 << 34) + 3, 1); /* more draws than 32 bits count */
    rng_normal(other, 7, 5, 1, ((uint64_t)1 << 34) + 4, 1);
    assert_memory_equal(part + 1, other, 7 * sizeof *part);
    rng_normal(other, N, 6, 1, 0, 1);
    assert_memory_not_equal(all, other, sizeof all);
    rng_normal(other, N, 5, 2, 0, 1);
    assert_memory_not_equal(all, other, sizeof all);
}

TEST(uniform)
{
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = rng_uniform(3, 0, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.005);
    assert_true(rng_uniform(3, 0, 9) == rng_uniform(3, 0, 9));
}

TEST(hashes)
{
    assert_true(rng_hash(1, "seq=128") == rng_hash(1, "seq=128"));
    assert_true(rng_hash(1, "seq=128") != rng_hash(2, "seq=128"));
    assert_true(rng_hash(1, "seq=128") != rng_hash(1, "seq=129"));
    assert_true(rng_hash(0, "") != rng_hash(1, ""));
}

TEST(bf16)
{
    for (uint32_t i = 0; i < 65536; i++) {
        float x = bf16_to_float((uint16_t)i);
        if (isnan(x))
            assert_true(isnan(bf16_to_float(bf16_from_float(x))));
        else
            assert_int_equal(bf16_from_float(x), i);
    }
    assert_int_equal(bf16_from_float(1.00390625f), 0x3f80);   /* a tie, down to even */
    assert_int_equal(bf16_from_float(1.01171875f), 0x3f82);   /* a tie, up to even */
    assert_int_equal(bf16_from_float(1.0039063692f), 0x3f81); /* just above a tie */
    assert_int_equal(bf16_from_float(3.4e38f), 0x7f80);       /* rounds to inf */
    uint32_t low_nan = 0x7f800001;
    float x;
    memcpy(&x, &low_nan, sizeof x);
    assert_true(isnan(bf16_to_float(bf16_from_float(x))));
}

/* Every fp16 value, every midpoint between neighbours, and just beside the midpoints. */
TEST(fp16)
{
    for (uint32_t i = 0; i < 65536; i++) {
        float x = fp16_to_float((uint16_t)i);
        if (isnan(x)) {
            assert_true(isnan(fp16_to_float(fp16_from_float(x))));
            continue;
        }
        assert_int_equal(fp16_from_float(x), i);
        if ((i & 0x7fff) >= 0x7bff)
            continue;
        float middle = (x + fp16_to_float((uint16_t)(i + 1))) / 2, away = x < 0 || i == 0x8000 ? -INFINITY : INFINITY;
        assert_int_equal(fp16_from_float(middle), i + (i & 1));
        assert_int_equal(fp16_from_float(nextafterf(middle, -away)), i);
        assert_int_equal(fp16_from_float(nextafterf(middle, away)), i + 1);
    }
    assert_true(fp16_to_float(0x3c00) == 1 && fp16_to_float(0x7bff) == 65504 && fp16_to_float(1) == 0x1p-24f);
    assert_int_equal(fp16_from_float(65519.996f), 0x7bff);
    assert_int_equal(fp16_from_float(65520), 0x7c00);
    assert_int_equal(fp16_from_float(-1e9f), 0xfc00);
    assert_int_equal(fp16_from_float(1e-30f), 0);
    assert_int_equal(fp16_from_float(-1e-30f), 0x8000);
}

TEST(tf32)
{
    assert_true(tf32_round(1) == 1);
    assert_true(tf32_round(1 + 0x1p-10f) == 1 + 0x1p-10f);
    assert_true(tf32_round(1 + 0x1p-11f) == 1 + 0x1p-10f); /* a tie goes away from zero */
    assert_true(tf32_round(-1 - 0x1p-11f) == -1 - 0x1p-10f);
    assert_true(tf32_round(1 + 0x1p-12f) == 1);
    assert_true(isnan(tf32_round(NAN)) && tf32_round(-INFINITY) == -INFINITY);
}
