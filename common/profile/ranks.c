/* SPDX-License-Identifier: MIT */
/* Waits and transfers of collectives; see ranks.h. */
#include "common/profile/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Every rank's result depends on every rank's data. A broadcast may end at the root before others begin. */
static bool needs_all(const char *op)
{
    return strcmp(op, "all_reduce") == 0 || strcmp(op, "reduce_scatter") == 0 || strcmp(op, "all_gather") == 0 ||
           strcmp(op, "barrier") == 0;
}

static bool times_of_one(const rank_collective *all, int ranks, size_t n, size_t k, double clock_err_us,
                         collective_times *out, char *why, size_t why_bytes)
{
    const rank_collective *first = &all[k];
    double latest = -INFINITY, earliest_end = INFINITY;
    int late = 0, early = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const rank_collective *c = &all[(size_t)rank * n + k];
        if (strcmp(c->op, first->op) != 0) {
            snprintf(why, why_bytes, "collective %zu is %s on rank 0 and %s on rank %d", k, first->op, c->op, rank);
            return false;
        }
        if (c->start_us > latest)
            latest = c->start_us, late = rank;
        if (c->end_us < earliest_end)
            earliest_end = c->end_us, early = rank;
    }
    if (needs_all(first->op) && earliest_end < latest - clock_err_us) {
        snprintf(
            why, why_bytes,
            "the clocks of ranks %d and %d are off: %s number %zu ended on rank %d %.1f us before rank %d began it",
            early, late, first->op, k, early, latest - earliest_end, late);
        return false;
    }
    for (int rank = 0; rank < ranks; rank++)
        out[(size_t)rank * n + k] = (collective_times){.wait_us = latest - all[(size_t)rank * n + k].start_us,
                                                       .transfer_us = fmax(0, earliest_end - latest),
                                                       .late_rank = late};
    return true;
}

bool ranks_times(const rank_collective *all, int ranks, size_t n, double clock_err_us, collective_times *out, char *why,
                 size_t why_bytes)
{
    for (size_t k = 0; k < n; k++)
        if (!times_of_one(all, ranks, n, k, clock_err_us, out, why, why_bytes))
            return false;
    return true;
}
