/* SPDX-License-Identifier: MIT */
/* The checker; definitions of the measures in check.h. A measure that is NaN stays NaN and fails: every test asks for
 * measured <= bound, never for the opposite. */
#include "common/core/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool same_nonfinite(double ref, double got)
{
    return isnan(ref) ? isnan(got) : ref == got;
}

/* Sum of squares of a row's finite reference elements; *count of them. */
static double row_squares(const double *ref, size_t n, size_t *count)
{
    double squares = 0;
    *count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(ref[i]))
            continue;
        squares += ref[i] * ref[i];
        ++*count;
    }
    return squares;
}

/* error / scale, where no error is 0 on any scale. */
static double ratio(double error, double scale)
{
    return error == 0 ? 0 : error / scale;
}

double check_worse(double a, double b)
{
    return isnan(a) || b <= a ? a : b;
}

static double rms_of(double squares, size_t count)
{
    return count ? sqrt(squares / (double)count) : 0;
}

check_result check_compare(const double *ref, const double *got, size_t n, size_t row, check_bound bound)
{
    check_result r = {0};
    if (n == 0 || row == 0)
        return r;
    const double zero_rms = 1e-9 * bound.zero_scale;

    size_t count, all_count = 0;
    double ref_squares = 0, error_squares = 0;
    for (size_t first = 0; first < n; first += row) {
        double squares = row_squares(ref + first, n - first < row ? n - first : row, &count);
        if (rms_of(squares, count) >= zero_rms) {
            ref_squares += squares;
            all_count += count;
        }
    }
    const double rms = rms_of(ref_squares, all_count);

    double worst = -1; /* relative error of the worst element; nothing beats a non-finite one */
    for (size_t first = 0; first < n; first += row) {
        size_t length = n - first < row ? n - first : row;
        double squares = row_squares(ref + first, length, &count);
        double row_rms = rms_of(squares, count), row_error_squares = 0;
        const bool zero_row = row_rms < zero_rms, no_scale = zero_row && !bound.terms;
        const double root_length = sqrt((double)count);
        const double size = bound.terms ? fmax(row_rms, bound.terms[first / row] / root_length) : row_rms;
        double scale = no_scale ? bound.zero_scale : fmax(size, rms);
        for (size_t i = first; i < first + length; i++) {
            double error = fabs(got[i] - ref[i]), relative;
            if (isfinite(ref[i]) && isfinite(got[i])) {
                row_error_squares += error * error;
                relative = ratio(error, scale);
                r.max_abs = check_worse(r.max_abs, relative);
            } else {
                if (same_nonfinite(ref[i], got[i]))
                    continue;
                r.nonfinite++;
                relative = INFINITY;
            }
            if (relative > worst) {
                worst = relative;
                r.worst = i;
            }
        }
        double row_scale = root_length * (no_scale ? bound.zero_scale : size + 0.05 * rms);
        r.rel_row = check_worse(r.rel_row, ratio(sqrt(row_error_squares), row_scale));
        const double left = size > row_rms ? row_rms / size : 1; /* of its terms, after they cancelled */
        if (!zero_row)
            error_squares += row_error_squares * left * left;
    }
    r.rel_l2 = ratio(sqrt(error_squares), sqrt(ref_squares));
    r.got = got[r.worst];
    r.ref = ref[r.worst];
    r.ok = r.nonfinite == 0 && r.rel_l2 <= bound.rel_l2 && r.rel_row <= bound.rel_row && r.max_abs <= bound.max_abs;
    return r;
}

check_result check_logarithms(const double *ref, const double *got, size_t n, check_bound bound)
{
    check_result r = {0};
    double squares = 0, worst = -1;
    for (size_t i = 0; i < n; i++) {
        const bool finite = isfinite(ref[i]) && isfinite(got[i]), same = !finite && same_nonfinite(ref[i], got[i]);
        const double error = same ? 0 : finite ? fabs(got[i] - ref[i]) / fmax(1, fabs(ref[i])) : INFINITY;
        r.nonfinite += !finite && !same;
        squares += error * error;
        if (error > worst) {
            worst = error;
            r.worst = i;
        }
    }
    if (n == 0)
        return r;
    r.rel_l2 = sqrt(squares / (double)n);
    r.rel_row = r.max_abs = worst;
    r.got = got[r.worst];
    r.ref = ref[r.worst];
    r.ok = r.nonfinite == 0 && worst <= bound.rel_l2;
    return r;
}

void check_describe(const check_result *r, check_bound bound, char *out, size_t out_bytes)
{
    char nonfinite[40] = "";
    if (r->nonfinite)
        snprintf(nonfinite, sizeof nonfinite, "%zu not finite, ", r->nonfinite);
    snprintf(out, out_bytes,
             "rel_l2 %.1e (bound %.1e), rel_row %.1e (%.1e), max_abs %.1e (%.1e), %sworst element [%zu] got %.6g want "
             "%.6g",
             r->rel_l2, bound.rel_l2, r->rel_row, bound.rel_row, r->max_abs, bound.max_abs, nonfinite, r->worst, r->got,
             r->ref);
}

/* Correctly rounded data has a relative L2 error of about 0.4 unit roundoffs: 1.7e-3 in bf16, 2.1e-4 in fp16 and tf32.
 * Rounded probabilities, scores and gradients on the way add a few of those; the bounds leave about five in all. fp32 may err
 * four times as much as PyTorch's memory-efficient attention, whose worst on N(0,1) inputs is 7e-7 forward and 1e-6 backward on an
 * H200. An element may be thirty times worse than the whole, a row eight times, and a
 * row of a gradient thirty-two times: dS = P (dP - delta) cancels where a query sees few keys, and what is left keeps
 * the absolute error of its terms, unless these are known. A row that belongs elsewhere is off by 1.4, whatever the precision. */
check_bound check_attention_bound(const char *dtype, bool backward)
{
    double rel_l2 = backward ? 4e-6 : 2.8e-6;
    if (strcmp(dtype, "bf16x3") == 0)
        rel_l2 = 2e-5;
    else if (strcmp(dtype, "bf16") == 0)
        rel_l2 = backward ? 1.5e-2 : 1e-2;
    else if (strcmp(dtype, "fp16") == 0 || strcmp(dtype, "tf32") == 0)
        rel_l2 = backward ? 3e-3 : 2e-3;
    return (check_bound){
        .rel_l2 = rel_l2,
        .rel_row = (backward ? 32 : 8) * rel_l2,
        .max_abs = 30 * rel_l2,
        .zero_scale = backward ? 1 : 0,
    };
}

check_bound check_terms_bound(const char *dtype, const double *terms)
{
    check_bound b = check_attention_bound(dtype, true);
    b.rel_row = 8 * b.rel_l2;
    b.terms = terms;
    return b;
}
