/* SPDX-License-Identifier: MIT */
/* Stochastic rounding of fp32 to bf16, the same bits on every backend and for every division of the work.
 *
 * Up with the probability of what is cut off, in units of the last place, so that the mean of many roundings is the value
 * (Gupta et al., "Deep learning with limited numerical precision", 2015). The chance is a hash of the step and of the
 * element's index: four neighbouring elements share two words of 32 bits, 16 for each. Mixer: C. Wellons' lowbias32. */
#pragma once

#include <stdint.h>

#include "kernels/shared/anywhere.h"

enum { SB_STOCHASTIC_GROUP = 4 /* elements that share two words */ };

typedef struct sb_chances {
    uint32_t word[2]; /* element i of the group has half i % 2 of word i / 2, the low one first */
} sb_chances;

SB_ANYWHERE uint32_t sb_mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* The key of a step, for sb_chances_of. */
SB_ANYWHERE uint32_t sb_chance_key(int64_t step)
{
    return sb_mix((uint32_t)step + 0x9e3779b9u * (uint32_t)((uint64_t)step >> 32) + 0x632be59bu);
}

/* The chances of elements 4 group to 4 group + 3. */
SB_ANYWHERE sb_chances sb_chances_of(uint64_t group, uint32_t key)
{
    sb_chances c;
    c.word[0] = sb_mix(((uint32_t)group ^ key) + 0x85ebca6bu * (uint32_t)(group >> 32));
    c.word[1] = sb_mix(c.word[0] + 0x9e3779b9u);
    return c;
}

/* The bf16 bits of fp32 bits with 16 random bits; a NaN becomes the quiet one of its sign. */
SB_ANYWHERE uint32_t sb_round_stochastic(uint32_t bits, uint32_t chance)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (bits >> 16 & 0x8000u) | 0x7fc0u;
    return (bits + (chance & 0xffffu)) >> 16;
}
