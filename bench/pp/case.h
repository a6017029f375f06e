/* SPDX-License-Identifier: MIT */
/* A case of a pipeline: its options, its table, the stages of its ranks. All ranks of the job call the functions of this folder
 * together, unless a comment says otherwise; ranks that are not members of the case only join in exchanges. */
#ifndef STEPBENCH_BENCH_PP_CASE_H
#define STEPBENCH_BENCH_PP_CASE_H

#include "bench/model/case.h"
#include "common/launch/launch.h"
#include "common/replica/replica.h"
#include "common/replica/stages.h"

/* clang-format off */
#define PP_PLANTS "none|swap|early|no-w|w-twice|scale|loss|boundary"
/* clang-format on */
typedef enum pp_plant {
    PLANT_NONE,
    PLANT_SWAP,    /* two micro-batches in each other's slots, where the loss is made */
    PLANT_EARLY,   /* on the last rank a tensor comes to where the one before it still lies */
    PLANT_NO_W,    /* the last W of the last rank is missing */
    PLANT_W_TWICE, /* its first one comes twice */
    PLANT_SCALE,   /* the loss is not divided by the micro-batches alone */
    PLANT_LOSS,    /* it is taken from the other end */
    PLANT_BOUNDARY /* the last stage begins a layer too late */
} pp_plant;

/* What is wrong first, in the order of a step. */
enum { WRONG_PLAN, WRONG_PARTS, WRONG_LOSS, WRONG_GRAD, WRONG_NORM, WRONG_PARAM };

typedef struct pp_case {
    session *s;
    launch *l;
    const bench_case *c;
    row *w;
    replica_place at;
    pipeline_shape shape;
    step_options o; /* of the whole model; no table */
    int rank;       /* of the job */
    bool member;
    int loss_rank;
    edges *edges;
    pipeline_table *table;
    int *ends; /* [p v] of the model that is timed */
    pp_plant plant;
    int wrong;
} pp_case;

/* Fills in the case and checks its table. False after setting the row to `skip` or `fail`. */
bool pp_case_of(session *s, const bench_case *c, row *w, pp_case *out);
void pp_case_free(pp_case *k);
/* True on every rank if it is on every member that its row is ok; else the row gets the status and sentence of the one where
 * `wrong` is least. */
bool pp_agree(pp_case *k, const char *name);
void pp_gather(const pp_case *k, const char *name, const void *mine, size_t bytes,
               void *all); /* (ranks of the job, bytes) */

/* ---- a rank's stages: stage.c ---- */

typedef struct pp_stage {
    pp_case *k;
    trainer *t; /* NULL: no member */
    step_table *table;
    const int *ends;
    int *own_ends; /* of the planted error */
    step_hops wire;
    void *last; /* likewise */
    int actions, sends, sent;
    bool *marked; /* [actions] it has begun and ended in a step: no W of a whole B */
    device_event **begun, **ended, **wait_from, **wait_to; /* [actions], [sends] */
    device_graph *graph;                                   /* NULL: launched op by op */
    float *norms;                                          /* (p), on the device; NULL: no clipping */
} pp_stage;

/* Makes the trainer of this rank's part of `o`, cut at `ends`; false after setting the row's status. */
bool pp_stage_open(pp_case *k, const step_options *o, const int *ends, pp_stage *out);
void pp_stage_close(pp_stage *s);
void pp_stage_step(pp_stage *s); /* a member's; ends the job on failure */
/* A graph of the step, after the first one; where there are none, or it can't be captured, the host goes on launching. */
void pp_stage_capture(pp_stage *s);
/* The table of the most that the row's bound allows: so many micro-batches begin before the first backward. */
step_table *pp_bound_table(const pp_case *k, const int *ends, int rank);

/* ---- verify.c, costs.c, time.c, timeline.c ---- */

/* Compares 3 updates of p v layers with one rank; false after making the row `fail`. */
bool pp_verify(pp_case *k);
/* What a block, the embedding and the head cost on rank 0; false after setting the row's status. */
bool pp_costs(pp_case *k, stage_costs *out);
/* The whole model's step on rank 0, with the same micro-batches; NAN: it does not fit. */
double pp_one_rank_ms(pp_case *k);
/* Cuts the model, times it, and fills the row. */
void pp_time(pp_case *k);

/* Spans of a step, in milliseconds from the barrier in front of it: (ranks, 2, actions); NAN: an action has none. */
typedef struct pp_spans {
    const pipeline_table *table;
    const double *begun_ended;
} pp_spans;
double pp_span(const pp_spans *s, int rank, int action, bool end);
/* Writes pipeline/pp_....csv beside the rows, on rank 0, and its name to the row: the predicted strip and the recorded one. */
void pp_timeline(pp_case *k, const pp_spans *recorded, const pipeline_costs *costs);

#endif
