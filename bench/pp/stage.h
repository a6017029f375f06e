/* SPDX-License-Identifier: MIT */
/* A rank's stages: the trainer of its parts, with a mark around each action. */
#pragma once

#include "bench/pp/case.h"
#include "common/replica/team.h"

typedef struct pp_stage {
    pp_case *k;
    team *x;
    trainer *t; /* its; NULL: no member */
    step_table *table;
    const int *ends;
    int *own_ends; /* of the planted error */
    step_hops wire;
    void *last; /* likewise */
    int actions, sent;
    bool *marked, *shared; /* [actions] it begins and ends: no W of a whole B; another stream has a part of it */
    device_event **begun, **ended, **beside, **wait_from, **wait_to; /* [actions] */
    device_graph *graph;                                             /* NULL: launched op by op */
} pp_stage;

bool pp_updates_beside(const pp_case *k, int place); /* of units, on the rank at this place of a pipeline */
/* Makes the trainer of this rank's part of `o`, cut at `ends`; false after setting the row's status. */
bool pp_stage_open(pp_case *k, const step_options *o, const int *ends, pp_stage *out);
void pp_stage_close(pp_stage *s);
void pp_stage_step(pp_stage *s); /* a member's; ends the job on failure */
/* With --fusion graph, after the first step; if it can't be captured, the host goes on launching. */
void pp_stage_capture(pp_stage *s);
/* The table of the most that the bound allows: so many micro-batches begin before the first backward, and another behind each. */
step_table *pp_bound_table(const pp_case *k, const int *ends, int rank);
