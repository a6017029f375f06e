/* SPDX-License-Identifier: MIT */
/* Arithmetic of intervals: unions, differences and lengths, exact but for the rounding of sums. */
#ifndef STEPBENCH_PROFILE_INTERVALS_H
#define STEPBENCH_PROFILE_INTERVALS_H

#include "common/profile/spans.h"

/* Sorted, apart from one another, none empty. */
typedef struct interval {
    double start, end;
} interval;
typedef struct intervals {
    interval *v;
    size_t n;
} intervals;
enum { ANY_STREAM = -1 };
/* The union of the spans of some lanes (bits 1 << lane) and of one stream; gaps of at most close_us are closed. */
intervals intervals_of(const timed_span *s, size_t n, unsigned lanes, int stream, double close_us);
intervals intervals_minus(const intervals *a, const intervals *b);
double intervals_length(const intervals *a);

#endif
