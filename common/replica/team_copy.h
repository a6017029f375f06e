/* SPDX-License-Identifier: MIT */
/* What the files of a team share: ops of a step, which its first one notes, and the way `copy`. No other file includes it. */
#pragma once

#include "common/replica/team.h"

typedef enum op_kind { OP_GATHER, OP_SCATTER, OP_SUM, OP_SPREAD, OP_PARTS } op_kind;
struct team_op {
    op_kind kind;
    comm *c; /* NULL: of copy engines */
    const void *send;
    void *recv;
    size_t count;
    comm_dtype t;
    int at; /* window of a spread */
};

void team_note(team *x, team_op op);
void team_give(team *x, team_op op, void *stream); /* notes and enqueues */
void team_enqueue(const team_op *op, void *stream);
void team_break_number(team *x, void *sum, sb_dtype t); /* if it is the second sum of the step */
bool team_breaks(const team *x, team_fault f);

/* Every rank of the job, behind the trainer's creation. */
bool team_copy_open(team *x, char *why, size_t why_bytes);
void team_copy_close(team *x);
void team_copy_begin(team *x); /* a step */
void team_copy_hooks(step_share *share);
void team_copy_alone(team *x, const team_op *op); /* with nothing beside it */
/* The sum over the communicator in the order of its ranks, which keeps its bits whatever their number. */
void team_copy_sum(team *x, comm *c, void *values, size_t count, sb_dtype t, void *stream);
