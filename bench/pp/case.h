/* SPDX-License-Identifier: MIT */
/* A case of a pipeline: its options, its table, the stages of its ranks. All ranks of the job call the functions of this folder
 * together, unless a comment says otherwise; ranks that are not members of the case only join in exchanges. */
#pragma once

#include "bench/model/case.h"
#include "bench/model/mesh.h"
#include "common/launch/launch.h"
#include "common/replica/replica.h"
#include "common/replica/stages.h"

/* clang-format off */
#define PP_PLANTS "none|swap|early|no-w|w-twice|scale|loss|boundary|norm|groups|order"
/* clang-format on */
typedef enum pp_plant {
    PLANT_NONE,
    PLANT_SWAP,     /* two micro-batches in each other's slots, where the loss is made */
    PLANT_EARLY,    /* on the last rank a tensor comes to where the one before it still lies */
    PLANT_NO_W,     /* the last W of the last rank is missing */
    PLANT_W_TWICE,  /* its first one comes twice */
    PLANT_SCALE,    /* the loss is divided by the micro-batches twice */
    PLANT_LOSS,     /* it is taken from the other end */
    PLANT_BOUNDARY, /* the last stage begins a layer too late */
    PLANT_NORM,     /* gains count once for each rank that shares layers in the norm */
    PLANT_GROUPS,   /* data parallelism is between ranks of other stages */
    PLANT_ORDER     /* parts of layers go to ranks as if tp were outside of data parallelism */
} pp_plant;

/* What is wrong first, in the order of a step. */
enum { WRONG_SETUP, WRONG_PLAN, WRONG_PARTS, WRONG_LOSS, WRONG_GRAD, WRONG_NORM, WRONG_PARAM };

typedef struct pp_case {
    session *s;
    launch *l;
    const bench_case *c;
    row *w;
    replica_place at;
    pipeline_shape shape;
    model_mesh on;
    step_options o;  /* of the whole model; no table */
    int ranks, rank; /* of the mesh, of the job */
    int stage;       /* the rank's place in its pipeline */
    bool member, graph;
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
bool pp_shares(const pp_case *k); /* ranks share layers or batches, too: results have other bits than one rank's */
int pp_rank_at(const pp_case *k, int stage); /* the first rank of the job at this place of a pipeline */
/* True on every rank if it is on every member that its row is ok; else the row gets the status and sentence of the one where
 * `wrong` is least. */
bool pp_agree(pp_case *k, const char *name);
