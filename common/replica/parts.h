/* SPDX-License-Identifier: MIT */
/* One rank that computes what several ranks of a team (team.h) compute: a trainer for each rank's part of the layers, all on this
 * device. They walk in turns, and meet where ranks would exchange something; what is summed is added in the order of ranks, in
 * fp32, and rounded once. Each product has the shape that it has on a rank. So a team whose sums come in that order has the same
 * bits: of the way `copy` any, of the others two ranks, whose sums commute.
 *
 * All ranks of the job create and free it together, for the sake of agreement; steps exchange nothing. */
#pragma once

#include "common/replica/team.h"

typedef struct parts parts;

/* On the first `ranks` of the job. NULL and a problem on failure. */
parts *parts_create(const replica_place *at, const step_options *o, int ranks, const team_way *way,
                    replica_problem *problem);
void parts_free(parts *p);
bool parts_hold(const team_way *way, int ranks); /* whether a team has these bits */
trainer *parts_of(const parts *p, int rank);     /* a rank's; NULL where the job's rank is no member */
void parts_step(parts *p);                       /* of all of them, and waits; or ends the job */
