/* SPDX-License-Identifier: MIT */
/* The part of making a replica that is in a file of its own. */
#ifndef STEPBENCH_REPLICA_INTERNAL_H
#define STEPBENCH_REPLICA_INTERNAL_H

#include "common/replica/replica.h"

/* Rank 0 chooses an algorithm for each product of the step, and every rank takes it. */
bool replica_tune(replica *r, replica_problem *problem);

#endif
