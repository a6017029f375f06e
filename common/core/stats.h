/* SPDX-License-Identifier: MIT */
/* Statistics of samples. Quantiles are nearest rank: the smallest x with at least p*n samples <= x. */
#pragma once

#include <stddef.h>

typedef struct samples {
    double *x;
    size_t n, capacity;
} samples;

typedef struct stats { /* unit of the samples; every field NAN when n == 0 */
    size_t n;
    double min, p10, median, p90, max, mean, stdev; /* stdev: n-1; 0 for n == 1 */
} stats;

int ascending(const void *a, const void *b); /* of doubles, or of records that begin with one; for qsort */
void samples_add(samples *s, double x);
void samples_clear(samples *s);
void samples_free(samples *s);
stats stats_of(const samples *s); /* median of an even n: mean of the two middle samples */
double quantile_nearest(const double *sorted, size_t n, double p);
/* 95 % interval of median(a) - median(b) by bootstrap: percentiles of the differences of resampled medians. */
void median_difference_interval(const samples *a, const samples *b, double *low, double *high);
