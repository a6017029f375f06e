/* SPDX-License-Identifier: MIT */
/* Loops over large host arrays on several threads: what a check does with every parameter of a model. An array is cut
 * into pieces of a fixed size, so that neither results nor the order of a sum depend on the number of threads. */
#pragma once

#include <stddef.h>

enum { SPREAD_PIECE = 1 << 18 /* elements of an array, unless said otherwise */ };

/* Calls fn for pieces of [0, n), each of `piece` elements but the last, in any order and at the same time. */
void spread_pieces(size_t n, size_t piece, void (*fn)(void *arg, size_t first, size_t count), void *arg);

typedef struct spread_sums {
    double x[3];
} spread_sums;
/* The sums over all pieces of SPREAD_PIECE elements, added up in the order of pieces. */
spread_sums spread_sum(size_t n, spread_sums (*of)(const void *arg, size_t first, size_t count), const void *arg);

/* Squares of got - want, of got and of want, in SPREAD_LANES sums side by side: a single one would wait for each addition. */
enum { SPREAD_LANES = 8 };
spread_sums spread_squares(size_t n, const float *got, const float *want);
double spread_total(const double sums[SPREAD_LANES]);

void spread_copy(void *to, const void *from, size_t bytes); /* memcpy */
/* Fresh memory in large pages that the system has found already; NULL: it has none. munmap gives it back. */
void *spread_map(size_t bytes);
/* Writes a zero at the start and into each page behind it, so that the system has found memory for all of them. */
void spread_touch(void *p, size_t bytes);
