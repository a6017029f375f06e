/* SPDX-License-Identifier: MIT */
/* Hops of a pipeline as copies into the receiver's memory, which copy engines do: while a rank waits, no kernel does, and no edge
 * stands in front of another. A tensor's place is its slot in the receiver's plan, the same in every step, so ranks tell each
 * other theirs once. A word at the sender says that the place is open, one at the receiver that it is full. Each is raised
 * and lowered once a step, so that a step may be a graph.
 * Knows a device and addresses; edges.c opens memory to other processes. */
#pragma once

#include "common/device/device.h"
#include "common/pipeline/pipeline.h"
#include "common/step/options.h"

typedef struct copies copies;

/* `ends` as in stages.h, used until copies_free. */
copies *copies_create(device *d, const pipeline_shape *s, const int *ends, int rank);
void copies_free(copies *c);
/* For trainer_set_hops. Before the first step: trainer_rehearse, and copies_connect. */
step_hops copies_hops(copies *c);

int copies_count(const pipeline_shape *s); /* tensors that have a number: more than move */
/* (copies_count) bytes from `base` to where each tensor comes on this rank, -1 for those that do not. */
void copies_places(const copies *c, const void *base, int64_t *out);

/* What this rank reaches of another: the `base` of its places, and 2 copies_count words that are 0. */
typedef struct copies_memory {
    char *base;
    uint32_t *flags;
} copies_memory;
void copies_connect(copies *c, const copies_memory *of, const int64_t *places); /* (ranks), (ranks, copies_count) */

/* From rank 0 to rank 1 and back, on a stream of its own: `at` goes to where tensors of a step come. */
void copies_round(copies *c, const void *at, size_t bytes);
void *copies_round_stream(copies *c);
