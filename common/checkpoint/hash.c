/* SPDX-License-Identifier: MIT */
/* XXH64: four lanes of 8 bytes, joined and mixed; see hash.h. */
#include "common/checkpoint/hash.h"

#include <stdbool.h>
#include <string.h>

enum { AHEAD = 2048 /* bytes that are fetched before they are copied */ };
#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static uint64_t lane(uint64_t sum, uint64_t word)
{
    return rotate(sum + word * P2, 31) * P1;
}

static uint64_t word64(const unsigned char *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static uint64_t word32(const unsigned char *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

/* Inlined, so that no loop asks whether there is a copy. */
static inline __attribute__((always_inline)) uint64_t go_on(checkpoint_hash_state *s, unsigned char *to,
                                                            const void *data, size_t bytes)
{
    const unsigned char *at = data, *end = at + bytes;
    const bool begun = s->bytes;
    uint64_t h = P5, a = begun ? s->lane[0] : P1 + P2, b = begun ? s->lane[1] : P2, c = s->lane[2],
             d = begun ? s->lane[3] : -P1;
    for (; end - at >= 32; at += 32, to = to ? to + 32 : NULL) {
        if (to) {
            __builtin_prefetch(at + AHEAD);
            memcpy(to, at, 32);
        }
        a = lane(a, word64(at));
        b = lane(b, word64(at + 8));
        c = lane(c, word64(at + 16));
        d = lane(d, word64(at + 24));
    }
    if (to)
        memcpy(to, at, (size_t)(end - at));
    *s = (checkpoint_hash_state){{a, b, c, d}, s->bytes + bytes};
    if (s->bytes >= 32) {
        h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
        for (int i = 0; i < 4; i++)
            h = (h ^ lane(0, s->lane[i])) * P1 + P4;
    }
    h += s->bytes;
    for (; end - at >= 8; at += 8)
        h = rotate(h ^ lane(0, word64(at)), 27) * P1 + P4;
    for (; end - at >= 4; at += 4)
        h = rotate(h ^ word32(at) * P1, 23) * P2 + P3;
    for (; at < end; at++)
        h = rotate(h ^ *at * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint64_t checkpoint_hash_more(checkpoint_hash_state *s, const void *data, size_t bytes)
{
    return go_on(s, NULL, data, bytes);
}

uint64_t checkpoint_hash_copy(checkpoint_hash_state *s, void *to, const void *data, size_t bytes)
{
    return go_on(s, to, data, bytes);
}

uint64_t checkpoint_hash(const void *data, size_t bytes)
{
    return checkpoint_hash_more(&(checkpoint_hash_state){.bytes = 0}, data, bytes);
}
