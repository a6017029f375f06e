/* SPDX-License-Identifier: MIT */
/* Tokens of known entropy: a Markov source of order two over K symbols, in which each pair of symbols has four
 * successors, of chances 0.5, 0.25, 0.15 and 0.1. The next token has then 1.208 nats for who knows the two before it, whatever
 * these are, and many more for who knows one or none. So a loss says what a model has learned, and one below the entropy
 * says that it sees what it should predict.
 *
 * Every window is a function of only the seed and its number (Philox), so that any rank can make any step's again. Its
 * first two symbols are drawn alike: its first target is the one that costs ln K. */
#pragma once

#include <stdint.h>

enum { MADE_SUCCESSORS = 4, MADE_SYMBOLS_MIN = 4, MADE_SYMBOLS_MAX = 1024 };

typedef struct made made;
made *made_create(int symbols, uint64_t seed); /* MADE_SYMBOLS_MIN to MADE_SYMBOLS_MAX of them */
void made_free(made *m);                       /* NULL is fine */
/* The `tokens` symbols of window number `window`, 2 or more. */
void made_window(const made *m, int64_t window, int tokens, int32_t *out);
/* -ln of the chance that the source gave each token but the first of a window, mean, in nats. */
double made_surprise(const made *m, const int32_t *window, int tokens);
/* What a token has left for who knows the `known` tokens before it (0, 1 or 2), in nats, computed from the source. */
double made_entropy(const made *m, int known);
/* The mean of made_surprise over all windows: made_entropy(m, 2), but for the first target. */
double made_window_entropy(const made *m, int tokens);
