/* SPDX-License-Identifier: MIT */
/* Counter-based random numbers: element i of stream (seed, tensor) does not depend on order, so that host and device
 * and any subset of cases draw the same data. Philox4x32-10 (Salmon et al., SC 2011, "Parallel random numbers: as easy
 * as 1, 2, 3").
 *
 * Draws 4j..4j+3 of (seed, stream) come from counter {j low, j high, stream, 0} and key {seed low, seed high}: words
 * (x0, x1) give two normals, (x2, x3) the next two. With u = (x + 0.5) * 2^-32 in fp32,
 * normal 0 = sqrt(-2 ln u0) cos(2 pi u1), normal 1 = sqrt(-2 ln u0) sin(2 pi u1), in fp32; |normal| < 6.8. */
#pragma once

#include <stddef.h>
#include <stdint.h>

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
uint64_t rng_hash(uint64_t seed, const char *text); /* FNV-1a mixed with the seed: seed of a case from its key */
/* Fills out[0..n) with N(0,1) * scale by Box-Muller; element i is draw (first + i) of (seed, stream). */
void rng_normal(float *out, size_t n, uint64_t seed, uint32_t stream, uint64_t first, float scale);
/* [0, 1) with 53 bits, of counter {i low, i high, stream, 1}. */
double rng_uniform(uint64_t seed, uint32_t stream, uint64_t i);
