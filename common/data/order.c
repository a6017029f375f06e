/* SPDX-License-Identifier: MIT */
/* A keyed permutation of 0..n-1; see order.h. */
#include "common/data/order.h"

#include <stdlib.h>

#include "common/core/error.h"

enum { ROUNDS = 6 };

/* splitmix64's finalizer. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t order_of(uint64_t i, uint64_t n, uint64_t key)
{
    int half = 1;
    while (2 * half < 64 && 1ull << 2 * half < n)
        half++;
    const uint64_t mask = (1ull << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (int round = 0; round < ROUNDS; round++) {
            const uint64_t was = right;
            right = left ^ (mix(right + key + (uint64_t)(round + 1) * 0x9e3779b97f4a7c15u) & mask);
            left = was;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

bool order_is_whole(uint64_t (*of)(uint64_t i, uint64_t n, uint64_t key), uint64_t n, uint64_t key)
{
    const uint64_t most = 1ull << 24;
    if (n > most)
        return true;
    unsigned char *seen = xcalloc(n, 1);
    bool whole = true;
    for (uint64_t i = 0; i < n && whole; i++) {
        const uint64_t at = of(i, n, key);
        whole = at < n && !seen[at];
        if (whole)
            seen[at] = 1;
    }
    free(seen);
    return whole;
}
