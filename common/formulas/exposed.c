/* SPDX-License-Identifier: MIT */
/* The exposed time of buckets beside compute; see exposed.h. */
#include "common/formulas/exposed.h"

#include <math.h>

/* The chain was longer than the compute beside it: waits of more than a twentieth of it, and of more than its end. */
static int chain_was_longer(const bucket_load *l, double tail)
{
    return tail > l->alone / 20 && tail > 2 * l->last;
}

bucket_contention bucket_contention_of(const bucket_load *l, double exposed, double tail)
{
    bucket_contention c = {NAN, NAN, l->alone};
    if (l->alone > tail)
        c.slowdown = (exposed - tail) / (l->alone - tail);
    if (chain_was_longer(l, tail))
        c.stretch = (exposed + l->window) / l->alone;
    return c;
}

double bucket_exposed(const bucket_load *l, const bucket_contention *c)
{
    const double hidden = l->last + c->slowdown * (l->alone - l->last);
    if (isnan(c->slowdown))
        return NAN;
    if (isnan(c->stretch))
        return l->alone <= c->alone ? hidden : NAN;
    return fmax(hidden, c->stretch * l->alone - l->window);
}

double bucket_last_exposed(double last, double update, double n)
{
    return fmax(0, last - update * (n - 1) / n);
}

call_cost call_cost_fit(const double *bytes, const double *seconds, int n)
{
    double s = 0, sx = 0, sxx = 0, sy = 0, sxy = 0, worst = 0;
    for (int i = 0; i < n; i++) {
        const double weight = 1 / (seconds[i] * seconds[i]);
        s += weight;
        sx += weight * bytes[i];
        sxx += weight * bytes[i] * bytes[i];
        sy += weight * seconds[i];
        sxy += weight * bytes[i] * seconds[i];
    }
    const double determinant = s * sxx - sx * sx, slope = (s * sxy - sx * sy) / determinant;
    const double overhead = (sy - slope * sx) / s;
    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs(overhead + slope * bytes[i] - seconds[i]) / seconds[i]);
    return (call_cost){.overhead_s = overhead, .rate = 1 / slope, .residual_pct = 100 * worst};
}

double interpolate_log(const double *x, const double *y, int n, double at)
{
    int i = 1;
    if (at <= x[0])
        return y[0];
    if (at >= x[n - 1])
        return y[n - 1] * at / x[n - 1];
    while (x[i] < at)
        i++;
    const double share = log(at / x[i - 1]) / log(x[i] / x[i - 1]);
    return y[i - 1] * pow(y[i] / y[i - 1], share);
}
