/* SPDX-License-Identifier: MIT */
/* The protocol of collectives between peers on the host, with the arithmetic of the kernels (kernels/shared/direct_layout.h): a
 * GPU is a rank, and two blocks of it are threads. Calls of all algorithms and many sizes, in place and not, follow one
 * another without a barrier between ranks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { PEER_MACHINE_RANKS = 5 }; /* at most */

typedef struct peer_outcome {
    int overwritten; /* packets that nobody had read; the first one ends the run */
    int wrong;       /* elements of results without the right bits */
    bool states_right;
} peer_outcome;

/* The rank `slow` takes its time; -1: each in turn. one_half plants a mistake: the halves of a mailbox are one. Epochs
 * begin behind `epoch`, and all places hold `stale` ones. */
peer_outcome peer_machine_run(int ranks, int calls, int slow, bool one_half, uint32_t epoch, uint32_t stale);
