/* SPDX-License-Identifier: MIT */
/* The state of a replica as a checkpoint has it: which part of which tensor lies where on this rank, and which of them this
 * rank saves. Ranges that several ranks hold are divided among them, so that every byte is written once; loading fills all
 * that a rank holds. So a checkpoint of any strategy and number of ranks is loaded by any other. */
#pragma once

#include "common/checkpoint/hasher.h"
#include "common/checkpoint/load.h"
#include "common/replica/replica.h"

typedef struct replica_state {
    replica *r;
    checkpoint_layout *layout;
    checkpoint_pieces save, load; /* what this rank writes, and all that it holds */
    checkpoint_hasher *hasher;    /* from the first look on */
    checkpoint_room room;         /* for loads, by whoever has it; {NULL, 0}: each takes its own */
} replica_state;

checkpoint_model replica_model(const replica *r); /* of a member */
replica_state *replica_state_create(replica *r);  /* of a member; it lives no longer than r */
void replica_state_free(replica_state *x);        /* NULL is fine */

/* Step, optimizer, seed, strategy and ranks; what a run knows of data and schedule is left to it. Waits for the device. */
void replica_state_note(const replica_state *x, checkpoint_state *out);
/* Between steps. All that this rank holds becomes the checkpoint's: arrays and the optimizer's state. False with a
 * sentence; what the rank has is then undefined. No exchange: each rank loads by itself. */
bool replica_state_load(replica_state *x, const checkpoint *c, int readers, checkpoint_loaded *out, char *why,
                        size_t why_bytes);
/* Whether this rank has what a checkpoint has, which is read once more, and compared byte by byte; else a sentence that names
 * the first tensor. */
bool replica_state_is(const replica_state *x, const checkpoint *c, int readers, char *why, size_t why_bytes);
/* The way that updates of this replica can honour: lazy needs a hook before updates, which neither a process alone nor a
 * step that is, or will be, captured has, and is async there. */
checkpoint_way replica_state_way(const replica *r, checkpoint_way wanted, bool captured);
/* A hash of each block of x->load, so of all that this rank holds, by `threads` threads, a number that the first call fixes. */
void replica_state_hashes(replica_state *x, int threads, uint64_t *out);
