/* SPDX-License-Identifier: MIT */
/* Statistics: nearest-rank quantiles, even counts, ties, one and no sample; the interval of a
 * difference. */
#include "tests/support/test.h"

#include "common/core/rng.h"
#include "common/core/stats.h"

static stats of(const double *x, size_t n)
{
    samples s = {0};
    for (size_t i = 0; i < n; i++)
        samples_add(&s, x[i]);
    stats r = stats_of(&s);
    samples_free(&s);
    return r;
}

TEST(nothing)
{
    stats r = of(NULL, 0);
    assert_int_equal(r.n, 0);
    assert_true(isnan(r.min) && isnan(r.p10) && isnan(r.median) && isnan(r.p90) && isnan(r.max) && isnan(r.mean) &&
                isnan(r.stdev));
    assert_true(isnan(quantile_nearest(NULL, 0, 0.5)));
}

TEST(few)
{
    stats r = of((double[]){4}, 1);
    assert_true(r.min == 4 && r.p10 == 4 && r.median == 4 && r.p90 == 4 && r.max == 4 && r.mean == 4 && r.stdev == 0);
    r = of((double[]){3, 1}, 2);
    assert_true(r.min == 1 && r.p10 == 1 && r.median == 2 && r.p90 == 3 && r.max == 3 && r.mean == 2);
    assert_true(r.stdev == sqrt(2));
    r = of((double[]){5, 1, 2}, 3);
    assert_true(r.median == 2);
    r = of((double[]){7, 7, 7, 7}, 4);
    assert_true(r.min == 7 && r.median == 7 && r.p90 == 7 && r.stdev == 0);
    r = of((double[]){10, 2, 4, 3}, 4);
    assert_true(r.median == 3.5);
}

TEST(many)
{
    samples s = {0};
    for (int i = 0; i < 99; i++)
        samples_add(&s, (i * 37) % 99 + 1); /* 1..99 out of order */
    stats r = stats_of(&s);
    assert_true(r.p10 == 10 && r.median == 50 && r.p90 == 90 && r.max == 99);
    samples_add(&s, 100);
    r = stats_of(&s);
    assert_true(r.p10 == 10 && r.median == 50.5 && r.p90 == 90 && r.mean == 50.5);
    assert_true(fabs(r.stdev - sqrt(100.0 * 101 / 12)) < 1e-12);
    assert_true(s.x[0] == 1 && s.x[99] == 100); /* the samples stay in order */
    samples_clear(&s);
    assert_int_equal(stats_of(&s).n, 0);
    samples_free(&s);
}

TEST(quantiles)
{
    double x[200];
    for (int i = 0; i < 200; i++)
        x[i] = i + 1;
    assert_true(quantile_nearest(x, 200, 0) == 1);
    assert_true(quantile_nearest(x, 200, 1) == 200);
    /* Against the definition, with p as a fraction so that no rounding is involved. */
    for (size_t n = 1; n <= 200; n++)
        for (size_t percent = 1; percent <= 100; percent++)
            assert_true(quantile_nearest(x, n, (double)percent / 100) == (double)((percent * n + 99) / 100));
}

TEST(not_a_number)
{
    stats r = of((double[]){1, NAN, 2}, 3);
    assert_int_equal(r.n, 3);
    assert_true(isnan(r.median) && isnan(r.min) && isnan(r.max));
}

/* Two sets of 61 normal numbers whose medians differ by 3: the interval is as wide as theory has it for 95 % (a median
 * has sqrt(pi / 2) the standard deviation of a mean), and holds 3 nearly always. */
TEST(interval_of_a_difference)
{
    enum { N = 61, SETS = 40 };
    double width = 0;
    int held = 0;
    for (int set = 0; set < SETS; set++) {
        samples a = {0}, b = {0};
        float x[2 * N];
        double low, high;
        rng_normal(x, 2 * N, 7, (uint32_t)set, 0, 1);
        for (int i = 0; i < N; i++) {
            samples_add(&a, 3 + (double)x[i]);
            samples_add(&b, x[N + i]);
        }
        median_difference_interval(&a, &b, &low, &high);
        width += (high - low) / SETS;
        held += low <= 3 && 3 <= high;
        samples_free(&a);
        samples_free(&b);
    }
    const double theory = 2 * 1.96 * sqrt(acos(-1) / 2 * 2 / N);
    if (!(fabs(width / theory - 1) < 0.2 && held >= SETS * 85 / 100))
        fail_msg("the interval is %g wide, not %g, and holds the difference in %d of %d sets", width, theory, held,
                 SETS);
}
