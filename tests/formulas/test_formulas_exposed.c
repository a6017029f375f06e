/* SPDX-License-Identifier: MIT */
/* The exposed time of buckets: limits that need no model, and the committed measurements. */
#include "tests/support/test.h"

#include "common/formulas/exposed.h"

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-12 * fabs(wanted)))
        fail_msg("%.17g is not %.17g", value, wanted);
}

TEST(a_measured_size_predicts_itself)
{
    const bucket_load shorter = {.alone = 20, .last = 1, .window = 40}, longer = {.alone = 60, .last = 0, .window = 40};
    const bucket_contention a = bucket_contention_of(&shorter, 5.75, 1), b = bucket_contention_of(&longer, 50, 30);
    near(a.slowdown, 0.25);
    assert_true(isnan(a.stretch));
    near(bucket_exposed(&shorter, &a), 5.75);
    near(b.slowdown, 2. / 3);
    near(b.stretch, 1.5);
    near(bucket_exposed(&longer, &b), 50);
}

TEST(limits)
{
    const bucket_contention none = {0, 1, 60}, unknown = {0.25, NAN, 20};
    /* Without contention, collectives cost what compute does not cover, and their end. */
    near(bucket_exposed(&(bucket_load){30, 2, 40}, &none), 2);
    near(bucket_exposed(&(bucket_load){50, 2, 40}, &none), 10);
    /* One bucket after everything costs its own time. */
    near(bucket_exposed(&(bucket_load){20, 20, 40}, &unknown), 20);
    /* A longer chain than the measured one may be longer than compute: nothing is known of that. */
    assert_true(isnan(bucket_exposed(&(bucket_load){21, 0, 40}, &unknown)));
    assert_true(isnan(bucket_contention_of(&(bucket_load){20, 0, 40}, 25, 25).slowdown));
    near(bucket_last_exposed(5, 8, 4), 0);
    near(bucket_last_exposed(5, 4, 4), 2);
    near(bucket_last_exposed(5, 4, 1), 5);
}

/* Latency, then bandwidth: exact at the points and where a line of logarithms is. */
TEST(sizes_between)
{
    const double bytes[] = {1e4, 1e6, 1e8}, ms[] = {0.01, 0.04, 0.36};
    near(interpolate_log(bytes, ms, 3, 10), 0.01);
    near(interpolate_log(bytes, ms, 3, 1e6), 0.04);
    near(interpolate_log(bytes, ms, 3, 1e5), 0.02);
    near(interpolate_log(bytes, ms, 3, 1e7), 0.12);
    near(interpolate_log(bytes, ms, 3, 2e8), 0.72);
}

static double squares(const double *bytes, const double *t, int n, double overhead, double rate)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += pow((overhead + bytes[i] / rate) / t[i] - 1, 2);
    return sum;
}

/* Points of a line give that line. Of others no line near the fit has smaller squares of relative errors, and the residual is
 * the largest of those. */
TEST(cost_of_calls)
{
    const double bytes[] = {1e5, 1e6, 1e7, 1e8}, line[] = {1.1e-5, 2e-5, 1.1e-4, 1.01e-3},
                 t[] = {1.3e-5, 1.8e-5, 1.2e-4, 1e-3};
    const call_cost exact = call_cost_fit(bytes, line, 4), c = call_cost_fit(bytes, t, 4);
    near(exact.overhead_s * 1e6, 10);
    near(exact.rate * 1e-9, 100);
    assert_true(exact.residual_pct < 1e-9);
    const double least = squares(bytes, t, 4, c.overhead_s, c.rate);
    for (int o = -1; o <= 1; o++)
        for (int w = -1; w <= 1; w++)
            assert_true(squares(bytes, t, 4, c.overhead_s * (1 + 0.01 * o), c.rate * (1 + 0.01 * w)) >= least);
    double worst = 0;
    for (int i = 0; i < 4; i++)
        worst = fmax(worst, fabs((c.overhead_s + bytes[i] / c.rate) / t[i] - 1));
    near(c.residual_pct, 100 * worst);
}

/* ---- the committed rows ---- */

typedef struct tally {
    int predictions, off; /* off: by more than 15 % */
    double worst;
} tally;

static bool same(const csv *c, size_t a, size_t b)
{
    static const char *const columns[] = {"ranks",     "size",       "batch",  "seq",
                                          "precision", "grad_dtype", "update", "fusion"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strcmp(csv_cell(c, a, columns[i]), csv_cell(c, b, columns[i])) != 0)
            return false;
    return a != b && csv_is(c, b, "status", "ok");
}

static bucket_load load_of(const csv *c, size_t i)
{
    const double n = csv_real(c, i, "buckets"), alone = csv_real(c, i, "comm_alone_ms");
    const bool whole = csv_column(c, "compute_ms") < 0; /* of files from before 0.3.0 */
    const double last = csv_is(c, i, "update", "buckets")
                            ? bucket_last_exposed(alone / n, csv_real(c, i, "opt_alone_ms"), n)
                            : alone / n;
    return (bucket_load){alone, last, csv_real(c, i, whole ? "twin_ms" : "compute_ms") - csv_real(c, i, "fwd_ms")};
}

/* The first size of each sweep predicts its others. */
static void predict(const char *path, tally *t)
{
    OWNED_CSV csv *c = csv_read(path);
    assert_non_null(c);
    for (size_t i = 0; i < c->rows; i++) {
        size_t first = 0;
        while (first < c->rows && !same(c, i, first))
            first++;
        if (first >= i || !csv_is(c, i, "status", "ok"))
            continue;
        const bucket_load from = load_of(c, first), to = load_of(c, i);
        const bucket_contention k =
            bucket_contention_of(&from, csv_real(c, first, "exposed_ms"), csv_real(c, first, "tail_ms"));
        const double off = bucket_exposed(&to, &k) / csv_real(c, i, "exposed_ms") - 1;
        print_message("%s %s S %s %s: %s MB from %s MB: %+.1f %%\n", csv_cell(c, i, "precision"),
                      csv_cell(c, i, "grad_dtype"), csv_cell(c, i, "seq"), csv_cell(c, i, "update"),
                      csv_cell(c, i, "bucket_mb"), csv_cell(c, first, "bucket_mb"), 100 * off);
        t->predictions++;
        t->off += !(fabs(off) <= 0.15);
        t->worst = fmax(t->worst, isnan(off) ? INFINITY : fabs(off));
    }
}

TEST(the_committed_rows_are_predicted)
{
    tally t = {0, 0, 0};
    predict("results/h200-x2/bench_ddp_bucketed.csv", &t);
    predict("results/archive/h200-x4/bench_ddp_bucketed.csv", &t);
    assert_true(t.predictions >= 6); /* what the default list of two GPUs and the older rows of four give */
    assert_true(t.off <= t.predictions / 8);
    assert_true(t.worst <= 0.25);
}
