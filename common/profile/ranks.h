/* SPDX-License-Identifier: MIT */
/* Collectives of several ranks on one clock: how long each rank waited for the others, and how long data moved. The k-th
 * collective of one rank is the k-th of every other: they are enqueued in the same order. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { RANKS_OP_BYTES = 24 };
typedef struct rank_collective {
    char op[RANKS_OP_BYTES]; /* "all_reduce" */
    double bytes;            /* of the message; 0: unknown */
    double start_us, end_us; /* of this rank's kernel, waits included */
} rank_collective;

typedef struct collective_times {
    double wait_us;     /* from its start to that of the last rank */
    double transfer_us; /* from the last start to the first end; the same for all ranks. Not less than 0 */
    int late_rank;      /* the one that started last */
} collective_times;

/* all: (ranks, n) -> out (ranks, n). False with a sentence when they can't be the same collectives: ops differ, or one
 * that needs everybody's data ended by more than clock_err_us before its last rank began, which is an error of a clock. */
bool ranks_times(const rank_collective *all, int ranks, size_t n, double clock_err_us, collective_times *out, char *why,
                 size_t why_bytes);
