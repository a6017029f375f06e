/* SPDX-License-Identifier: MIT */
/* Ranks that share each layer of one model (tensor parallelism): a trainer with its part of the model on each, the same
 * algorithms on all of them, and what they give each other, by a way of the table.
 *
 * All ranks of the job call these functions together, unless a comment says otherwise; a rank that is no member joins in
 * exchanges alone. Limits: one batch, no data parallelism beside it, neither clipping nor a loss scale. */
#ifndef STEPBENCH_REPLICA_TEAM_H
#define STEPBENCH_REPLICA_TEAM_H

#include "common/replica/replica.h"

typedef struct team_way {
    const char *name;
    bool rows_apart; /* of the residual stream and the norms each rank has its own rows */
    const char *summary;
} team_way;
extern const team_way team_ways[]; /* ends with name == NULL */
const team_way *team_way_find(const char *name);

/* What a check breaks, on the last rank or on all. */
typedef enum team_fault {
    TEAM_SOUND,
    TEAM_CHUNK,   /* rows of the wrong rank */
    TEAM_PARTIAL, /* a part left out of one sum */
    TEAM_GAIN,    /* gains' gradients not summed */
    TEAM_KEY,     /* nor those of key and value heads that ranks share */
    TEAM_VOCAB,   /* ids of the logits off by one */
    TEAM_PADDING, /* columns that pad the logits count */
} team_fault;
#define TEAM_FAULTS "none|chunk|partial|gain|key|vocab|padding"

typedef struct team_op team_op;
typedef struct team {
    replica_place at;
    bool member, alone; /* alone: each member has the whole model, and no other to give it anything */
    int ranks, rank;
    step_options o;
    trainer *t; /* NULL if not a member */
    comm *all, *keys;
    team_op *ops; /* of a step, noted in the first one */
    int op_count, op_room, steps, sums;
    double wire_bytes; /* that a rank sends in a step, by the count of a ring */
    bool communicating;
    team_fault fault;
    device_graph *graphs[2]; /* of a step without communication, and with */
    size_t free_before;      /* the device's, before anything was made */
} team;

/* The first `ranks` of the job, with the whole model `o` among them, or on each of them (way NULL). NULL and a problem on
 * failure. */
team *team_create(const replica_place *at, const step_options *o, int ranks, const team_way *way, int max_ctas,
                  replica_problem *problem);
void team_free(team *x);

/* These exchange nothing on the host: */
void team_step(team *x); /* enqueues one, or ends the job */
void team_settle(team *x);
void team_communicate(team *x, bool on); /* the next steps do, or are the compute alone */
void team_alone(team *x);                /* enqueues what a step sends, with nothing beside it */

bool team_capture(team *x, replica_problem *problem); /* steps with and without communication, behind the first */
const char *team_backend(const team *x);              /* "" alone */

#endif
