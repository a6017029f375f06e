/* SPDX-License-Identifier: MIT */
/* Hashes of a state where it lies, by many threads: each fetches blocks to pinned memory of its own, which is kept between
 * calls, and hashes them there. So a look at 20 GB takes what their copy to the host takes. It shares no code with saves
 * but the hash, so that it can check them. */
#pragma once

#include "common/checkpoint/layout.h"
#include "common/device/device.h"

typedef struct checkpoint_hasher checkpoint_hasher;
checkpoint_hasher *checkpoint_hasher_create(device *d, int threads); /* ends the program without pinned memory */
void checkpoint_hasher_free(checkpoint_hasher *h);                   /* NULL is fine */

/* How many blocks pieces have: each piece begins one of CHECKPOINT_BLOCK. */
int64_t checkpoint_pieces_blocks(const checkpoint_pieces *p);
/* What block `block` has first, for messages. */
const char *checkpoint_pieces_at(const checkpoint_pieces *p, const checkpoint_layout *l, int64_t block, char *out,
                                 size_t out_bytes);
/* A hash of each block, to `out`. What the state is written by must be done. `beat` is called by the caller's thread; NULL:
 * nothing is. */
void checkpoint_hasher_run(checkpoint_hasher *h, const checkpoint_pieces *p, uint64_t *out, void (*beat)(void));
