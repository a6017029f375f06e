/* SPDX-License-Identifier: MIT */
/* The clock of a case: forward and backward of the ranks together, the same without moves, the moves alone, and the whole
 * sequence on one rank. */
#pragma once

#include "bench/cp/case.h"
#include "common/core/stats.h"

enum { CP_ALL, CP_COMPUTE, CP_MOVES, CP_KINDS }; /* what a sample runs */

typedef struct cp_times {
    samples fwd[CP_KINDS], bwd[CP_KINDS]; /* ms of the slowest rank */
    double one_fwd, one_bwd;              /* ms of the whole sequence on one rank */
    double moved_bytes;                   /* that the rank which receives most receives in a forward and backward */
} cp_times;

/* False, the same on all ranks, after setting the row's status, or where a profile was made instead. */
bool cp_time(cp_case *k, cp_times *t);
void cp_times_free(cp_times *t);
