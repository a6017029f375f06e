/* SPDX-License-Identifier: MIT */
/* Context parallelism on paper; see context.h. */
#include "common/formulas/ranks/context.h"

#include <math.h>

int context_chunk(const context_shape *s, int rank, int which)
{
    if (s->contiguous)
        return 2 * rank + which;
    return which == 0 ? rank : 2 * s->ranks - 1 - rank;
}

int context_owner(const context_shape *s, int chunk, int *which)
{
    if (s->contiguous) {
        *which = chunk % 2;
        return chunk / 2;
    }
    *which = chunk >= s->ranks;
    return *which ? 2 * s->ranks - 1 - chunk : chunk;
}

int context_seen(const context_shape *s, int rank)
{
    return s->causal ? context_chunk(s, rank, 1) + 1 : 2 * s->ranks;
}

int context_first_chunks(const context_shape *s)
{
    int most = 0;
    for (int r = 0; r < s->ranks; r++)
        most = context_chunk(s, r, 0) + 1 > most ? context_chunk(s, r, 0) + 1 : most;
    return s->causal ? most : 2 * s->ranks;
}

double context_pairs(const context_shape *s, int rank)
{
    const double rows = (double)(s->seq / (2 * s->ranks));
    double pairs = 0;
    for (int i = 0; i < 2; i++) /* whole chunks before its own, and the triangle of its own */
        pairs += s->causal ? rows * rows * context_chunk(s, rank, i) + rows * (rows + 1) / 2 : rows * (double)s->seq;
    return pairs;
}

double context_balance_pct(const context_shape *s, context_way way)
{
    double sum = 0, most = 0;
    if (way == CONTEXT_ALL_TO_ALL)
        return 100;
    for (int r = 0; r < s->ranks; r++) {
        sum += context_pairs(s, r);
        most = fmax(most, context_pairs(s, r));
    }
    return 100 * sum / s->ranks / most;
}

/* Chunks of others whose keys the rank sees. */
static int foreign(const context_shape *s, int rank)
{
    const int seen = context_seen(s, rank);
    return seen - (context_chunk(s, rank, 0) < seen) - (context_chunk(s, rank, 1) < seen);
}

double context_first_share(const context_shape *s)
{
    const int first = context_first_chunks(s);
    int before = 0, all = 0;
    for (int r = 0; r < s->ranks; r++) {
        int own = 0;
        for (int i = 0; i < 2; i++)
            own += context_chunk(s, r, i) < first;
        const int seen = context_seen(s, r) < first ? context_seen(s, r) : first;
        before = seen - own > before ? seen - own : before;
        all = foreign(s, r) > all ? foreign(s, r) : all;
    }
    return all ? (double)before / all : 1;
}

/* Shares of the rank's chunks' dk and dv that other ranks make. */
static int shares(const context_shape *s, int rank)
{
    int n = 0;
    for (int i = 0; i < 2; i++)
        for (int other = 0; other < s->ranks; other++)
            n += other != rank && context_seen(s, other) > context_chunk(s, rank, i);
    return n;
}

double context_moved_bytes(const context_shape *s, context_way way, const context_widths *w)
{
    const double chunk = (double)(s->seq / (2 * s->ranks)), n = s->ranks;
    const double kv = chunk * (double)w->kv * w->bytes, qo = chunk * (double)w->qo * w->bytes;
    double most = 0;
    if (way ==
        CONTEXT_ALL_TO_ALL) /* q, k, v, o; then do, dq, dk, dv: 2 chunks of each other rank, an n-th of the heads */
        return 2 * (n - 1) * 2 * (qo + kv) / n;
    if (way == CONTEXT_RING) /* k and v of two chunks, n-1 hops, twice; and their fp32 sums, n hops */
        return n == 1 ? 0 : 2 * (n - 1) * 2 * kv + n * 2 * kv / w->bytes * 4;
    for (int r = 0; r < s->ranks; r++)
        most = fmax(most, (2 * foreign(s, r) + shares(s, r)) * kv);
    return most;
}

double context_predicted_ms(const context_load *l)
{
    const double fwd = l->one_fwd / l->ranks / l->balance, bwd = l->one_bwd / l->ranks / l->balance;
    if (l->ranks == 1)
        return fwd + bwd;
    /* A ring's blocks are its groups; the first has nothing to wait for. */
    const bool ring = l->way == CONTEXT_RING;
    const double n = ring ? l->ranks : l->groups, hops = ring ? n - 1 : n;
    const double share = (l->moves_bwd - l->moves_fwd) / n; /* of a gather's backward: dk and dv of the last group */
    const double first = ring                           ? 0
                         : l->way == CONTEXT_ALL_TO_ALL ? (l->moves_fwd + l->moves_bwd) / n /* there, and back */
                                                        : l->first * 2 * l->moves_fwd / n + fmax(0, share);
    const double last = ring ? l->moves_bwd / n : 0; /* the sums come home behind the last block */
    return fwd + bwd + first + last + (n - 1) * fmax(0, l->moves_fwd / hops - fwd / n) +
           (n - 1) * fmax(0, l->moves_bwd / n - bwd / n);
}
