/* SPDX-License-Identifier: MIT */
/* A state without a trainer, for tests of checkpoints: bytes that are a function of step, file and place, divided among
 * any number of ranks, each with a saver of its own in this process. */
#pragma once

#include "common/checkpoint/folder.h"
#include "common/checkpoint/load.h"
#include "common/checkpoint/save.h"

typedef struct saved_rank { /* its part of the state, in memory of its own */
    checkpoint_pieces pieces;
    char *memory;
} saved_rank;

extern const checkpoint_model saved_model; /* 2 layers, bf16 with low halves and fp32 moments */

/* Rank's share of every tensor: neighbouring elements, in pieces that start anywhere. */
saved_rank saved_rank_create(const checkpoint_layout *l, int rank, int ranks);
void saved_rank_free(saved_rank *r);
void saved_fill(const saved_rank *r, int64_t step);
/* Fails the test when a byte is not that of `step`. */
void saved_expect(const saved_rank *r, int64_t step);

checkpoint_state saved_note(int64_t step, int ranks);
/* Saves `step` by so many ranks, all in this process, with `o` but for rank and ranks. Returns what rank 0 says. */
checkpoint_saved saved_by(const checkpoint_model *m, const checkpoint_save_options *o, int ranks, int64_t step);
/* The same step after step by the same savers; `after` each, if any. Returns what rank 0 says of the last. */
checkpoint_saved saved_steps(const checkpoint_model *m, const checkpoint_save_options *o, int ranks,
                             const int64_t *steps, int n, void (*after)(int64_t step));
