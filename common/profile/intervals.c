/* SPDX-License-Identifier: MIT */
/* Arithmetic of intervals; see intervals.h. */
#include "common/profile/intervals.h"

#include <stdlib.h>

#include "common/core/error.h"

static int by_start(const void *a, const void *b)
{
    const interval *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

intervals intervals_of(const timed_span *s, size_t n, unsigned lanes, int stream, double close_us)
{
    intervals u = {xmalloc((n + 1) * sizeof *u.v), 0};
    size_t all = 0;
    for (size_t i = 0; i < n; i++)
        if ((lanes >> s[i].lane & 1) && (stream == ANY_STREAM || stream == s[i].stream) && s[i].start_us < s[i].end_us)
            u.v[all++] = (interval){s[i].start_us, s[i].end_us};
    if (all)
        qsort(u.v, all, sizeof *u.v, by_start);
    for (size_t i = 0; i < all; i++) {
        interval *last = u.n ? &u.v[u.n - 1] : NULL;
        if (!last || u.v[i].start > last->end + close_us)
            u.v[u.n++] = u.v[i];
        else if (u.v[i].end > last->end)
            last->end = u.v[i].end;
    }
    return u;
}

intervals intervals_minus(const intervals *a, const intervals *b)
{
    intervals rest = {xmalloc((a->n + b->n + 1) * sizeof *rest.v), 0}; /* each of b splits at most one piece in two */
    size_t k = 0;
    for (size_t i = 0; i < a->n; i++) {
        double start = a->v[i].start;
        const double end = a->v[i].end;
        while (k < b->n && b->v[k].end <= start)
            k++;
        for (size_t j = k; j < b->n && b->v[j].start < end; j++) {
            if (b->v[j].start > start)
                rest.v[rest.n++] = (interval){start, b->v[j].start};
            start = b->v[j].end;
        }
        if (start < end)
            rest.v[rest.n++] = (interval){start, end};
    }
    return rest;
}

double intervals_length(const intervals *a)
{
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += a->v[i].end - a->v[i].start;
    return sum;
}
