/* SPDX-License-Identifier: MIT */
/* Philox4x32-10 and what is drawn from it; the mapping of draws to counters is in rng.h. */
#include "common/core/rng.h"

#include <math.h>

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t rng_hash(uint64_t seed, const char *text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    /* splitmix64's finalizer: neighbouring seeds must not give neighbouring keys. */
    h += seed * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

static void draw(uint64_t seed, uint32_t stream, uint32_t kind, uint64_t j, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)j, (uint32_t)(j >> 32), stream, kind};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    philox4x32(counter, key, out);
}

static void box_muller(uint32_t x0, uint32_t x1, float *z0, float *z1)
{
    float u0 = ((float)x0 + 0.5f) * 0x1p-32f; /* never 0; rounds to 1 for the largest x0, whose log is 0 */
    float angle = 6.2831853f * (((float)x1 + 0.5f) * 0x1p-32f);
    float radius = sqrtf(-2.0f * logf(u0));
    *z0 = radius * cosf(angle);
    *z1 = radius * sinf(angle);
}

void rng_normal(float *out, size_t n, uint64_t seed, uint32_t stream, uint64_t first, float scale)
{
    size_t i = 0;
    while (i < n) {
        uint32_t x[4];
        float z[4];
        draw(seed, stream, 0, (first + i) / 4, x);
        box_muller(x[0], x[1], &z[0], &z[1]);
        box_muller(x[2], x[3], &z[2], &z[3]);
        for (size_t lane = (first + i) % 4; lane < 4 && i < n; lane++, i++)
            out[i] = z[lane] * scale;
    }
}

double rng_uniform(uint64_t seed, uint32_t stream, uint64_t i)
{
    uint32_t x[4];
    draw(seed, stream, 1, i, x);
    uint64_t bits = (uint64_t)x[0] << 32 | x[1];
    return (double)(bits >> 11) * 0x1p-53;
}
