/* SPDX-License-Identifier: MIT */
/* Statistics of samples; definitions in stats.h. */
#include "common/core/stats.h"

#include "common/core/error.h"
#include "common/core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void samples_add(samples *s, double x)
{
    LIST_ADD(s->x, s->n, s->capacity, x);
}

void samples_clear(samples *s)
{
    s->n = 0;
}

void samples_free(samples *s)
{
    free(s->x);
    *s = (samples){0};
}

double quantile_nearest(const double *sorted, size_t n, double p)
{
    if (n == 0)
        return NAN;
    /* p * n may come out a hair above a whole rank (0.07 * 100 does), which must not ask for the next sample. */
    double rank = ceil(p * (double)n - 1e-9 * (double)n);
    if (rank < 1)
        rank = 1;
    if (rank > (double)n)
        rank = (double)n;
    return sorted[(size_t)rank - 1];
}

int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

stats stats_of(const samples *s)
{
    stats r = {s->n, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    size_t n = s->n;
    if (n == 0)
        return r;
    for (size_t i = 0; i < n; i++)
        if (isnan(s->x[i]))
            return r; /* one bad sample spoils all: a NaN can't be sorted */

    OWNED double *sorted = xmalloc(n * sizeof *sorted);
    memcpy(sorted, s->x, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    r.min = sorted[0];
    r.max = sorted[n - 1];
    r.p10 = quantile_nearest(sorted, n, 0.10);
    r.p90 = quantile_nearest(sorted, n, 0.90);
    r.median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;

    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += sorted[i];
    r.mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (sorted[i] - r.mean) * (sorted[i] - r.mean);
    r.stdev = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    return r;
}

/* ---- bootstrap ---- */

enum { RESAMPLES = 2000 };

/* The median of as many samples drawn with replacement. */
static double resampled_median(const samples *x, double *draw, uint32_t stream, uint64_t *counter)
{
    for (size_t i = 0; i < x->n; i++)
        draw[i] = x->x[(size_t)(rng_uniform(1, stream, (*counter)++) * (double)x->n)];
    qsort(draw, x->n, sizeof *draw, ascending);
    return (draw[(x->n - 1) / 2] + draw[x->n / 2]) / 2;
}

void median_difference_interval(const samples *a, const samples *b, double *low, double *high)
{
    OWNED double *differences = xmalloc(RESAMPLES * sizeof *differences);
    OWNED double *draw = xmalloc((a->n > b->n ? a->n : b->n) * sizeof *draw);
    uint64_t counter = 0;
    for (int i = 0; i < RESAMPLES; i++)
        differences[i] = resampled_median(a, draw, 1, &counter) - resampled_median(b, draw, 2, &counter);
    qsort(differences, RESAMPLES, sizeof *differences, ascending);
    *low = quantile_nearest(differences, RESAMPLES, 0.025);
    *high = quantile_nearest(differences, RESAMPLES, 0.975);
}
