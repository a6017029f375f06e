/* SPDX-License-Identifier: MIT */
/* The checker: what is correctly rounded passes, every planted error is caught. */
#include "tests/support/test.h"

#include "common/core/check.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"

enum { ROWS = 64, ROW = 64, N = ROWS * ROW };
static const char *const dtypes[] = {"bf16", "fp16", "tf32", "fp32"};

static double rounded(double x, const char *dtype)
{
    float f = (float)x;
    if (strcmp(dtype, "bf16") == 0)
        return bf16_to_float(bf16_from_float(f));
    if (strcmp(dtype, "fp16") == 0)
        return fp16_to_float(fp16_from_float(f));
    return strcmp(dtype, "tf32") == 0 ? tf32_round(f) : f;
}

/* A random tensor as the reference, and the same rounded to dtype. With `decay` row i shrinks as 1/sqrt(i + 1), as the
 * rows of a causal output do. */
static void fill(double *ref, double *got, const char *dtype, bool decay, uint64_t seed)
{
    static float draws[N];
    rng_normal(draws, N, seed, 0, 0, 1);
    for (int i = 0; i < N; i++) {
        ref[i] = draws[i] * 1.0000001 / (decay ? sqrt(i / ROW + 1.0) : 1);
        got[i] = rounded(ref[i], dtype);
    }
}

static double ref[N], got[N];

TEST(rounded_data_passes)
{
    for (int d = 0; d < 4; d++)
        for (int backward = 0; backward < 2; backward++)
            for (uint64_t seed = 0; seed < 20; seed++) {
                check_bound bound = check_attention_bound(dtypes[d], backward);
                fill(ref, got, dtypes[d], seed % 2, seed);
                check_result r = check_compare(ref, got, N, ROW, bound);
                char text[256];
                check_describe(&r, bound, text, sizeof text);
                if (!r.ok)
                    fail_msg("%s: %s", dtypes[d], text);
                assert_true(r.rel_l2 > 0 && r.rel_l2 < bound.rel_l2 / 3); /* room for a kernel's own roundings */
                assert_true(check_compare(ref, ref, N, ROW, bound).ok);
            }
}

/* A long causal output: the first rows are a hundred times larger than the rest, and are rounded in proportion. */
TEST(uneven_rows_pass)
{
    for (int d = 0; d < 4; d++) {
        fill(ref, got, dtypes[d], false, 3);
        for (int i = ROW; i < N; i++) {
            ref[i] *= 0.01;
            got[i] = rounded(ref[i], dtypes[d]);
        }
        assert_true(check_compare(ref, got, N, ROW, check_attention_bound(dtypes[d], false)).ok);
    }
}

static void expect_caught(check_bound bound, const char *what, size_t worst, size_t nonfinite)
{
    check_result r = check_compare(ref, got, N, ROW, bound);
    if (r.ok)
        fail_msg("%s passed", what);
    if (worst < N)
        assert_int_equal(r.worst, worst);
    assert_int_equal(r.nonfinite, nonfinite);
}

TEST(planted_errors)
{
    for (int d = 0; d < 4; d++)
        for (int backward = 0; backward < 2; backward++)
            for (int decay = 0; decay < 2; decay++) {
                check_bound bound = check_attention_bound(dtypes[d], backward);
                size_t at = 17 * ROW + 5;

                fill(ref, got, dtypes[d], decay, 1);
                got[at] += 1; /* the tensor's rms is 1, or less with decay */
                expect_caught(bound, "one wrong element", at, 0);

                fill(ref, got, dtypes[d], decay, 1);
                got[at] = NAN;
                expect_caught(bound, "one NaN", at, 1);

                fill(ref, got, dtypes[d], decay, 1);
                got[at] = INFINITY;
                got[at + 1] = -INFINITY;
                expect_caught(bound, "infinities", at, 2);

                fill(ref, got, dtypes[d], decay, 1);
                memmove(got + ROW, got, (N - ROW) * sizeof *got);
                expect_caught(bound, "all rows shifted by one", N, 0);

                fill(ref, got, dtypes[d], decay, 1);
                memcpy(got + 63 * ROW, got + 62 * ROW, ROW * sizeof *got);
                expect_caught(bound, "the last row another's", N, 0);

                fill(ref, got, dtypes[d], decay, 1);
                memset(got + 40 * ROW, 0, ROW * sizeof *got);
                expect_caught(bound, "a row never written", N, 0);

                fill(ref, got, dtypes[d], decay, 1);
                for (int i = 0; i < N; i++)
                    got[i] *= 1 + 2 * bound.rel_l2;
                expect_caught(bound, "a wrong scale", N, 0);
            }
}

/* One row out of many: too little to show in rel_l2, and no element stands out. */
TEST(wrong_row_among_many)
{
    fill(ref, got, "bf16", false, 1);
    check_bound bound = check_attention_bound("bf16", false);
    for (int i = 0; i < ROW; i++)
        got[ROW + i] += i % 2 ? 0.09 : -0.09;
    bound.rel_l2 = 1;
    check_result r = check_compare(ref, got, N, ROW, bound);
    assert_false(r.ok);
    assert_true(r.max_abs <= bound.max_abs && r.rel_row > bound.rel_row);
}

TEST(not_finite_references)
{
    check_bound bound = check_attention_bound("fp32", false);
    double a[4] = {1, -INFINITY, 2, NAN}, b[4] = {1, -INFINITY, 2, NAN};
    assert_true(check_compare(a, b, 4, 4, bound).ok);
    static const double wrong[] = {INFINITY, NAN, -1e30, 0};
    for (int i = 0; i < 4; i++) {
        b[1] = wrong[i];
        check_result r = check_compare(a, b, 4, 4, bound);
        assert_false(r.ok);
        assert_int_equal(r.worst, 1);
        assert_int_equal(r.nonfinite, 1);
    }
    b[1] = -INFINITY;
    b[3] = 0;
    assert_false(check_compare(a, b, 4, 2, bound).ok);
    double none[2] = {-INFINITY, -INFINITY};
    assert_true(check_compare(none, none, 2, 1, bound).ok);
}

TEST(zero_references)
{
    double zero[8] = {0}, noise[8] = {1e-3, -1e-3, 2e-3, 0, 0, 0, 0, 0};
    assert_true(check_compare(zero, zero, 8, 4, check_attention_bound("bf16", false)).ok);
    assert_false(check_compare(zero, noise, 8, 4, check_attention_bound("bf16", false)).ok);
    /* A gradient that vanishes by cancellation is noise on the scale of its terms. */
    assert_true(check_compare(zero, noise, 8, 4, check_attention_bound("bf16", true)).ok);
    assert_false(check_compare(zero, noise, 8, 4, check_attention_bound("fp32", true)).ok);
    noise[6] = 0.5;
    assert_false(check_compare(zero, noise, 8, 4, check_attention_bound("bf16", true)).ok);
    /* ... and does not hide an error elsewhere. */
    fill(ref, got, "bf16", true, 1);
    for (int i = 0; i < ROW; i++) {
        ref[i] = 1e-17;
        got[i] = 1e-3;
    }
    assert_true(check_compare(ref, got, N, ROW, check_attention_bound("bf16", true)).ok);
    got[N - 1] += 1;
    assert_false(check_compare(ref, got, N, ROW, check_attention_bound("bf16", true)).ok);
}

/* Row 3 is a hundredth of its terms, and row 5 nothing at all: each may be as wrong as the terms are. */
TEST(terms_that_cancel)
{
    for (int d = 0; d < 4; d++) {
        double terms[ROWS];
        const check_bound bound = check_terms_bound(dtypes[d], terms), without = check_attention_bound(dtypes[d], true);
        const double error = 2 * bound.rel_l2;
        for (int row = 0; row < ROWS; row++)
            terms[row] = sqrt(ROW);
        for (int all = 0; all < 2; all++) { /* the whole tensor, or two rows of many */
            fill(ref, got, dtypes[d], false, 1);
            for (int i = 0; i < N; i++)
                if (all || i / ROW == 3)
                    got[i] = (ref[i] *= 0.01) + (i % 2 ? error : -error) / 4;
                else if (i / ROW == 5)
                    got[i] = ref[i] = 0;
            assert_true(check_compare(ref, got, N, ROW, bound).ok);
            assert_int_equal(check_compare(ref, got, N, ROW, without).ok, !all);

            got[3 * ROW + 7] += 30 * error; /* 30 bounds are allowed, where the terms are 1 */
            expect_caught(bound, "one wrong element of a row that cancels", 3 * ROW + 7, 0);
            for (int i = 3 * ROW; i < 4 * ROW; i++)
                got[i] = ref[i] + (i % 2 ? 4.3 : -4.3) * error; /* 8 bounds, and an allowance of 0.05 */
            expect_caught(bound, "a wrong row that cancels", N, 0);
            memcpy(got + 3 * ROW, ref + 3 * ROW, ROW * sizeof *got);
            assert_true(check_compare(ref, got, N, ROW, bound).ok);
        }
        /* A row without terms is one that nothing was added to. */
        memset(ref, 0, sizeof ref);
        memset(got, 0, sizeof got);
        terms[5] = 0;
        got[5 * ROW] = 1e-30;
        expect_caught(bound, "a row that should be 0", 5 * ROW, 0);
    }
}

/* The terms of few rows may not hide errors of the others: this is how dq of a long causal sequence looks. */
TEST(large_terms_elsewhere)
{
    double terms[ROWS];
    for (int d = 0; d < 4; d++) {
        const check_bound bound = check_terms_bound(dtypes[d], terms);
        for (int row = 0; row < ROWS; row++)
            terms[row] = (row < 2 ? 1000 : 0.5) * sqrt(ROW);
        fill(ref, got, dtypes[d], false, 1);
        memset(ref, 0, ROW * sizeof *ref);
        memset(got, 0, ROW * sizeof *got);
        assert_true(check_compare(ref, got, N, ROW, bound).ok);
        for (int i = 2 * ROW; i < N; i++)
            got[i] *= 1 + 2 * bound.rel_l2;
        expect_caught(bound, "a wrong scale of all rows but two", N, 0);
        fill(ref, got, dtypes[d], false, 1);
        got[17 * ROW + 5] += 1;
        expect_caught(bound, "one wrong element", 17 * ROW + 5, 0);
    }
}

TEST(logarithms)
{
    for (int d = 0; d < 4; d++) {
        const check_bound bound = check_attention_bound(dtypes[d], false);
        const double e = bound.rel_l2, want[] = {1e-9, -0.5, 12, -INFINITY};
        double is[] = {1e-9 + 0.9 * e, -0.5 - 0.9 * e, 12 + 11 * e, -INFINITY};
        assert_true(check_logarithms(want, is, 4, bound).ok);
        static const struct {
            int at;
            double off;
        } wrong[] = {{0, 1.1}, {1, -1.1}, {2, 13}};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            double other[4];
            memcpy(other, is, sizeof is);
            other[wrong[i].at] = want[wrong[i].at] + wrong[i].off * e;
            const check_result r = check_logarithms(want, other, 4, bound);
            assert_false(r.ok);
            assert_int_equal(r.worst, wrong[i].at);
        }
        is[3] = -1e30;
        assert_int_equal(check_logarithms(want, is, 4, bound).nonfinite, 1);
        is[3] = -INFINITY, is[0] = NAN;
        assert_false(check_logarithms(want, is, 4, bound).ok);
        assert_int_equal(check_logarithms(want, is, 4, bound).worst, 0);
        assert_false(check_logarithms(want, is, 0, bound).ok);
    }
}

TEST(nan_bounds_and_nothing)
{
    double x[2] = {1, 2};
    assert_false(check_compare(x, x, 2, 2, (check_bound){.rel_l2 = NAN, .rel_row = 1, .max_abs = 1}).ok);
    assert_false(check_compare(x, x, 0, 1, check_attention_bound("bf16", false)).ok);
    double big[2] = {1e200, 1e200}, other[2] = {-1e200, 1e200}; /* squares overflow */
    assert_false(check_compare(big, other, 2, 2, check_attention_bound("bf16", false)).ok);
}

TEST(short_last_row)
{
    double a[7] = {1, 2, 3, 4, 5, 6, 7}, b[7] = {1, 2, 3, 4, 5, 6, 7};
    assert_true(check_compare(a, b, 7, 3, check_attention_bound("fp32", false)).ok);
    b[6] = 6;
    check_result r = check_compare(a, b, 7, 3, check_attention_bound("bf16", false));
    assert_false(r.ok);
    assert_int_equal(r.worst, 6);
}

TEST(description)
{
    double a[2] = {1, 1.25}, b[2] = {1, NAN};
    check_bound bound = check_attention_bound("bf16", false);
    check_result r = check_compare(a, b, 2, 2, bound);
    char text[256], small[8];
    check_describe(&r, bound, text, sizeof text);
    assert_non_null(strstr(text, "worst element [1] got nan want 1.25"));
    assert_non_null(strstr(text, "1 not finite"));
    check_describe(&r, bound, small, sizeof small);
    assert_string_equal(small, "rel_l2 ");
}
