/* SPDX-License-Identifier: MIT */
/* Schedules of a pipeline: in which order each rank runs forward (F), backward (B) and weight gradients (W) of its chunks of
 * layers. A schedule is a row of a table; a pipeline_table is its expansion for p ranks, v chunks and m micro-batches.
 *
 * Stages 0 .. p v - 1 follow each other as the layers do; each is a chunk of one rank. Where a row is split, B makes dx alone
 * and W follows; elsewhere B makes both, and there is no W.
 * 1F1B: Narayanan et al., 2019; interleaved: Narayanan et al., 2021 (arXiv 2104.04473); ZB-H1 and the V: Qi et al., 2023 and
 * 2024 (arXiv 2401.10241, 2405.15362). Pure host code. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* ---- a row: schedule.c ---- */

typedef struct pipeline_schedule {
    const char *name;
    int warm_micros, warm_ranks,
        warm_chunks;     /* rank r begins with warm_micros m + warm_ranks (p - 1 - r) + warm_chunks (v - 1) p F */
    bool split;          /* B and W are two actions */
    int late;            /* W comes late * r micro-batches behind its B */
    bool there_and_back; /* stages p .. 2 p - 1 go back: rank r has r and 2 p - 1 - r; else stage s is rank s % p's */
    int chunks_least, chunks_most; /* v */
    const char *summary;
} pipeline_schedule; /* pipeline_schedules ends with {0} */
extern const pipeline_schedule pipeline_schedules[];
#define PIPELINE_SCHEDULE_NAMES "gpipe|1f1b|interleaved|zb-h1|zb-v"
const pipeline_schedule *pipeline_schedule_find(const char *name); /* NULL: there is none */

typedef struct pipeline_shape {
    const pipeline_schedule *schedule;
    int ranks, chunks, micros; /* p, v, m */
} pipeline_shape;

enum { PIPELINE_CHUNKS_MOST = 64 };
int pipeline_chunks(const pipeline_schedule *row, int asked); /* or the nearest number that it has */

/* Why there is no such schedule, in one sentence; NULL: there is one. */
const char *pipeline_problem(const pipeline_shape *s, char *out, size_t out_bytes);

int pipeline_stages(const pipeline_shape *s); /* p v */
int pipeline_stage(const pipeline_shape *s, int rank, int chunk);
int pipeline_rank(const pipeline_shape *s, int stage);
int pipeline_chunk(const pipeline_shape *s, int stage);
/* The most chunks of micro-batches whose activations rank r holds between their F and the end of their backward (v of them are
 * a micro-batch of all its layers). */
int pipeline_bound(const pipeline_shape *s, int rank);
/* The rank that has the last stage, and with it the loss. */
int pipeline_loss_rank(const pipeline_shape *s);

/* ---- its expansion: generate.c, generate_v.c ---- */

typedef enum pipeline_kind { PIPELINE_F, PIPELINE_B, PIPELINE_W, PIPELINE_KINDS } pipeline_kind;

typedef struct pipeline_action {
    pipeline_kind kind;
    int micro, chunk; /* chunk of the rank, 0 .. v - 1 */
} pipeline_action;

typedef struct pipeline_table {
    pipeline_shape shape;
    int count;                /* actions of a rank: 2 m v, or 3 m v where B and W are two */
    pipeline_action *actions; /* (ranks, count), in the order in which each rank runs them */
} pipeline_table;

/* Times by stage, in any unit. f, b and w have one value for each stage; where a row is not split, its B takes b + w. */
typedef struct pipeline_costs {
    const double *f, *b, *w;
    double hop;         /* between a stage's end and the next stage's start on another rank */
    bool early;         /* where a row is not split, too, what B gives is there before its w has passed */
    const double *last; /* by which the action that ends a stage's weight gradients takes longer; NULL: by nothing */
} pipeline_costs;

/* The shape must have no problem. A V places its W by `costs`, at moments when a rank would wait; NULL: F = B = 1, W = 0.92,
 * hop 0.02. */
pipeline_table *pipeline_table_create(const pipeline_shape *s, const pipeline_costs *costs);
void pipeline_table_free(pipeline_table *t);
const pipeline_action *pipeline_actions(const pipeline_table *t, int rank); /* (count) */
double pipeline_duration(const pipeline_shape *s, const pipeline_costs *c, int rank, pipeline_action a);

/* ---- checks: validate.c ---- */

/* What is wrong with a table, in one sentence; NULL: nothing. Every action comes once; none waits for ever; no rank holds more than its
 * bound; what a rank sends to another as activations, or as gradients, is received in the order in which it is sent; weight
 * gradients of a chunk are added in the order of micro-batches; a later chunk's are complete before an earlier chunk's; and the
 * same holds where what an action receives has its place from the action before it on, and what a chunk has sent must have
 * one when it sends the next. */
const char *pipeline_invalid(const pipeline_table *t, char *out, size_t out_bytes);
