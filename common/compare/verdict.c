/* SPDX-License-Identifier: MIT */
/* The verdict on two times; see verdict.h. */
#include "common/compare/verdict.h"

#include <math.h>

static const double two_sided_95 = 1.96, one_sided_999 = 3.09;

double median_error(double median, double distance, double normal_distance, double n, double lag1)
{
    enum { FEWEST = 6 };
    if (!(n >= FEWEST) || !(median > 0) || !(distance >= 0))
        return NAN;
    const double a = isfinite(lag1) ? fmin(fmax(lag1, 0), 0.9) : 0, effective = n * (1 - a) / (1 + a);
    return 1.253 * distance / (normal_distance * median * sqrt(effective)); /* 1.253: sqrt(pi / 2), median for mean */
}

/* Variance of the ratio of runs_a runs and runs_b runs. */
static double variance(const timed *a, const timed *b, double noise, double runs_a, double runs_b)
{
    const double error_a = isfinite(a->standard_error) ? a->standard_error : 0;
    const double error_b = isfinite(b->standard_error) ? b->standard_error : 0;
    return (error_a * error_a + noise * noise) / runs_a + (error_b * error_b + noise * noise) / runs_b;
}

static size_t runs_to_settle(const timed *a, const timed *b, double noise, double ratio, double margin)
{
    enum { MOST = 99 };
    const double one = sqrt(variance(a, b, noise, 1, 1)), inside = margin - fabs(ratio);
    double runs = ratio ? pow(one_sided_999 * one / ratio, 2) : INFINITY;
    if (inside > 0)
        runs = fmin(runs, pow(two_sided_95 * one / inside, 2));
    return runs < MOST ? (size_t)floor(runs) + 1 : MOST;
}

judgement judge_times(const timed *a, const timed *b, double noise, double margin)
{
    enum { ENOUGH_RUNS = 3 };
    judgement j = {.verdict = VERDICT_UNCLEAR, .ratio = log(b->median / a->median), .lo = NAN, .hi = NAN, .reason = ""};
    if (isfinite(a->runs_deviation))
        noise = fmax(noise, a->runs_deviation);
    if (isfinite(b->runs_deviation))
        noise = fmax(noise, b->runs_deviation);
    const bool known = (isfinite(a->standard_error) || a->runs >= ENOUGH_RUNS) &&
                       (isfinite(b->standard_error) || b->runs >= ENOUGH_RUNS);
    if (!isfinite(j.ratio)) {
        j.reason = "a time that is not above 0";
        return j;
    }
    if (!known) {
        j.reason = "too few samples for an interval, and fewer than 3 runs";
        j.runs_needed = ENOUGH_RUNS;
        return j;
    }
    const double s = sqrt(variance(a, b, noise, (double)a->runs, (double)b->runs));
    j.lo = j.ratio - two_sided_95 * s;
    j.hi = j.ratio + two_sided_95 * s;
    const double per_cycle = j.ratio + log(b->sm_mhz / a->sm_mhz);
    if (a->throttled != b->throttled)
        j.reason = a->throttled ? "clocks held back only in A" : "clocks held back only in B";
    else if (j.lo > -margin && j.hi < margin)
        j.verdict = VERDICT_SAME;
    else if (fabs(j.ratio) <= one_sided_999 * s) {
        j.reason = "the interval is too wide";
        j.runs_needed = runs_to_settle(a, b, noise, j.ratio, margin);
    } else if (isfinite(per_cycle) && a->sm_mhz != b->sm_mhz && fabs(per_cycle) <= two_sided_95 * s)
        j.reason = "the difference of the GPU's clocks can explain it";
    else
        j.verdict = j.ratio > 0 ? VERDICT_SLOWER : VERDICT_FASTER;
    return j;
}
