/* SPDX-License-Identifier: MIT */
/* The part of making a replica that is in a file of its own. */
#ifndef STEPBENCH_REPLICA_INTERNAL_H
#define STEPBENCH_REPLICA_INTERNAL_H

#include "common/replica/replica.h"

/* Rank 0 chooses an algorithm for each product of the step, and every rank takes it. t: NULL on ranks without one. */
bool replica_tune_alike(const replica_place *at, const step_options *o, trainer *t, replica_problem *problem);

#endif
