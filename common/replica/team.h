/* SPDX-License-Identifier: MIT */
/* A trainer on each rank of a mesh, the same algorithms on all of them: with its part of each layer, by a way of the table
 * (tensor parallelism); with the layers of its stage, where options have a table (the caller sets the hops of a pipeline);
 * with its tokens of each sequence, which gather keys and values (context parallelism); and with a strategy among the ranks that hold the same, whose tokens differ (data parallelism). Gradients are clipped by
 * the norm of the whole model, which each of its elements enters once.
 *
 * All ranks of the job call these functions together, unless a comment says otherwise; a rank that is no member joins in
 * exchanges alone. Limits: no loss scale where layers or stages are shared. */
#pragma once

#include "common/comm/windows.h"
#include "common/replica/replica.h"

typedef struct team_way {
    const char *name;
    bool rows_apart; /* of the residual stream and the norms each rank has its own rows */
    bool windows;    /* which come and go piece by piece, by copy engines */
    bool push;       /* but for parts of sums, which products write to where they are added */
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
    TEAM_FLAG,    /* rows come behind their flag */
    TEAM_NUMBER,  /* one number of a sum is that of its neighbour */
    TEAM_NORM,    /* gains and shared heads enter the norm once for each rank that has them */
    TEAM_GROUPS,  /* gradients are added up with ranks that hold other parts */
    TEAM_ORDER,   /* parts of layers go to ranks as if tp were outside of data parallelism */
    TEAM_OWN,     /* its tokens see each other alone */
} team_fault;
#define TEAM_FAULTS "none|chunk|partial|gain|key|vocab|padding|flag|number|norm|groups|order|own"

typedef struct team_options {
    mesh m;               /* of the first ranks of the job */
    const team_way *way;  /* of ranks that share layers; NULL: each member has the whole model, and is alone */
    const char *strategy; /* of parallel_strategies; NULL: "bucketed" */
    int max_ctas;         /* of NCCL; 0: NCCL decides */
    bool join;            /* the step will be captured as a graph */
    team_fault fault;
} team_options;

typedef struct team_op team_op;
typedef struct team {
    replica_place at;
    bool member, alone; /* alone: each member has the whole model, and no other to give it anything */
    mesh m;
    int ranks, rank; /* of the mesh */
    int data;        /* the place among ranks whose tokens differ; 0 alone */
    step_options o;
    trainer *t; /* NULL if not a member */
    replica *r; /* whose trainer it is; without a strategy where nothing is added up and no norm is shared */
    comm *all, *keys;
    windows *w; /* of the way `copy`; with the rows of a rank, what each sends, and the ranks' gradients */
    size_t row_bytes;
    const void *spread[WINDOWS_GATHERS];
    void *scratch;
    int64_t extra_bytes;                           /* of both */
    team_op *ops;                                  /* of a step, noted in the first one */
    int op_count, op_room, steps, sums, step_sums; /* sums: of this step so far; step_sums: of a step */
    double wire_bytes; /* that a rank sends for shared layers in a step, by the count of a ring */
    team_fault fault;
    size_t free_before; /* the device's, before anything was made */
} team;

/* The whole model `o` on a mesh, with whole sequences; its batch is that of the ranks that share them. NULL and a problem on failure. */
team *team_create(const replica_place *at, const step_options *o, const team_options *how, replica_problem *problem);
void team_free(team *x);
void team_set_tokens(team *x, uint64_t seed); /* this rank's part of the global batch; replica_set_tokens */

/* These exchange nothing on the host: */
void team_step(team *x); /* enqueues one, or ends the job */
void team_settle(team *x);
void team_communicate(team *x, bool on); /* the next steps do, or are the compute alone */
void team_alone(team *x);                /* enqueues what a step sends, with nothing beside it */

bool team_capture(team *x, replica_problem *problem); /* steps with and without communication, behind the first */
const char *team_backend(const team *x);              /* "" alone */
/* What the way `copy` holds on a rank beside its trainer: windows of rows, and the ranks' gradients of a tensor that are added up
 * there, of all gains or of a layer's keys and values. p: a rank's parameters, gains apart; NULL: no scratch. */
typedef struct team_copy_bytes {
    size_t rows, windows, scratch; /* rows: this rank's, of the residual stream */
} team_copy_bytes;
team_copy_bytes team_copy_bytes_of(const step_options *o, const params *p, int tp);
double team_data_bytes(const team *x); /* that the strategy of a member sends in a step, beside wire_bytes */
