/* SPDX-License-Identifier: MIT */
/* What to compute again so that a step fits a memory budget, at the least cost of time.
 *
 * Each kind of recomputation saves bytes and costs milliseconds per block. Kinds that another one beats at both, or a
 * mixture of two others beats, are left out (the lower convex hull); along the rest, blocks go from one kind to the next,
 * the one that saves most bytes per millisecond first, until the step fits. This is the greedy solution of the
 * fractional knapsack, exact up to the cost of one block, since all blocks of a transformer are alike. Bytes are not
 * added up but asked for each candidate: the planner of a step knows them exactly.
 *
 * Where blocks may be offloaded, each number of them is tried, at even distances, with the others mixed around them as
 * above; what the step then waits for copies counts as time. */
#pragma once

#include <stdint.h>

#include "common/formulas/offload.h"

typedef struct recompute_costs {      /* milliseconds per block, on top of a step that keeps everything */
    double again_ms[RECOMPUTE_KINDS]; /* of NONE 0; of BLOCK, and of NESTED, a forward that keeps what backward needs */
    double pass_ms;                   /* a forward that only leads to another block */
    offload_costs offload;            /* without kinds: nothing leaves the device */
} recompute_costs;

/* The cost of a schedule. */
double recompute_cost_ms(const recompute_costs *costs, const recompute_schedule *s);

typedef int64_t (*recompute_bytes)(void *user, const recompute_schedule *s); /* of the whole step; below 0: unknown */

typedef struct recompute_plan {
    recompute_schedule schedule;
    int64_t bytes;
    double ms;
    bool fits; /* false: nothing does; the schedule is then the smallest found */
} recompute_plan;
/* For `layers` blocks and a budget in bytes. Asks `bytes` some 20 times; with offloading, up to 2000 times. */
recompute_plan recompute_plan_for(int layers, const recompute_costs *costs, int64_t budget, recompute_bytes bytes,
                                  void *user);
/* The size of groups of blocks, all alike, at which a step takes the fewest bytes; 0 where they are unknown. */
int recompute_best_group(int layers, recompute_bytes bytes, void *user);
