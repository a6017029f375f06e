/* SPDX-License-Identifier: MIT */
/* XXH64 of Yann Collet (xxHash specification 0.1.1), seed 0: guards files against decay, not against an enemy. Every
 * xxHash library and `xxhsum -H1` give the same number. Written here because hashing is part of what bench_checkpoint
 * times, and little-endian hosts alone are meant, as everywhere in this suite. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t checkpoint_hash(const void *data, size_t bytes);

typedef struct checkpoint_hash_state { /* begins as zeros */
    uint64_t lane[4], bytes;
} checkpoint_hash_state;
/* The hash of all that has come so far, part by part; each but the last has a multiple of 32 bytes. */
uint64_t checkpoint_hash_more(checkpoint_hash_state *s, const void *data, size_t bytes);
/* The same, and a copy of the part to `to` in one pass, which takes as long as the copy alone: a multiplier is free meanwhile. */
uint64_t checkpoint_hash_copy(checkpoint_hash_state *s, void *to, const void *data, size_t bytes);
