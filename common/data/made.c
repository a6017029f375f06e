/* SPDX-License-Identifier: MIT */
/* The Markov source of made.h: its successors, its windows and its entropies. */
#include "common/data/made.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/rng.h"

enum { STREAM_SUCCESSORS = 0x5acc, ITERATIONS = 400 };
static const double chances[MADE_SUCCESSORS] = {0.5, 0.25, 0.15, 0.1};

struct made {
    int symbols;
    uint64_t seed;
    uint16_t (*next)[MADE_SUCCESSORS]; /* (K, K): by the last two symbols, the older one first */
};

static bool taken(const uint16_t *out, int n, int symbol)
{
    for (int i = 0; i < n; i++)
        if (out[i] == symbol)
            return true;
    return false;
}

/* Draws until there are four different ones. */
static void draw_successors(const made *m, int pair, uint16_t out[MADE_SUCCESSORS])
{
    uint64_t draw = (uint64_t)pair << 32;
    for (int n = 0; n < MADE_SUCCESSORS;) {
        const int symbol = (int)(rng_uniform(m->seed, STREAM_SUCCESSORS, draw++) * m->symbols);
        if (!taken(out, n, symbol))
            out[n++] = (uint16_t)symbol;
    }
}

made *made_create(int symbols, uint64_t seed)
{
    made *m = xcalloc(1, sizeof *m);
    m->symbols = symbols;
    m->seed = rng_hash(seed, "made tokens");
    m->next = xcalloc((unsigned long)symbols * (unsigned long)symbols, sizeof *m->next);
    for (int pair = 0; pair < symbols * symbols; pair++)
        draw_successors(m, pair, m->next[pair]);
    return m;
}

void made_free(made *m)
{
    if (!m)
        return;
    free(m->next);
    free(m);
}

static int successor(double u)
{
    int i = 0;
    for (double sum = chances[0]; i < MADE_SUCCESSORS - 1 && u >= sum; sum += chances[i])
        i++;
    return i;
}

void made_window(const made *m, int64_t window, int tokens, int32_t *out)
{
    const uint64_t seed = m->seed ^ (uint64_t)window * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < tokens; i++) {
        const double u = rng_uniform(seed, (uint32_t)(window >> 32), (uint64_t)i);
        out[i] = i < 2 ? (int32_t)(u * m->symbols) : m->next[out[i - 2] * m->symbols + out[i - 1]][successor(u)];
    }
}

double made_surprise(const made *m, const int32_t *window, int tokens)
{
    double sum = log(m->symbols);
    for (int i = 2; i < tokens; i++) {
        const uint16_t *next = m->next[window[i - 2] * m->symbols + window[i - 1]];
        double chance = 0;
        for (int j = 0; j < MADE_SUCCESSORS; j++)
            chance += next[j] == window[i] ? chances[j] : 0;
        sum -= log(chance);
    }
    return sum / (tokens - 1);
}

/* How often each pair follows another in the long run, by iteration from all alike. Caller frees. */
static double *pair_shares(const made *m)
{
    const size_t pairs = (size_t)m->symbols * (size_t)m->symbols;
    double *share = xcalloc(pairs, sizeof *share), *after = xcalloc(pairs, sizeof *after);
    for (size_t i = 0; i < pairs; i++)
        share[i] = 1 / (double)pairs;
    for (int n = 0; n < ITERATIONS; n++) {
        memset(after, 0, pairs * sizeof *after);
        for (size_t i = 0; i < pairs; i++)
            for (int j = 0; j < MADE_SUCCESSORS; j++)
                after[i % (size_t)m->symbols * (size_t)m->symbols + m->next[i][j]] += share[i] * chances[j];
        for (size_t i = 0; i < pairs; i++) /* half of the step before: a cycle dies out, too */
            share[i] = (share[i] + after[i]) / 2;
    }
    free(after);
    return share;
}

double made_entropy(const made *m, int known)
{
    double sum = 0, of_pairs = 0, of_symbols = 0;
    for (int j = 0; j < MADE_SUCCESSORS; j++)
        sum -= chances[j] * log(chances[j]);
    if (known >= 2)
        return sum;
    OWNED double *share = pair_shares(m);
    for (int a = 0; a < m->symbols; a++) {
        double row = 0;
        for (int b = 0; b < m->symbols; b++) {
            const double p = share[a * m->symbols + b];
            row += p;
            of_pairs -= p > 0 ? p * log(p) : 0;
        }
        of_symbols -= row > 0 ? row * log(row) : 0;
    }
    return known == 1 ? of_pairs - of_symbols : of_symbols;
}

double made_window_entropy(const made *m, int tokens)
{
    return (log(m->symbols) + (tokens - 2) * made_entropy(m, 2)) / (tokens - 1);
}
