/* SPDX-License-Identifier: MIT */
/* How long a training step takes on a mesh of GPUs, and what a GPU then holds: formulas over a table of rates.
 *
 * Of a micro-batch of T tokens a rank has T / cp rows; t = tp, n = cp; d, F, L, V, S as ever, kv = heads_kv head_dim, e = 2
 * bytes of an activation. Products take the time that their own shape takes (mesh_product_s), pipelines that of their
 * simulated schedule, collectives o + bytes / W with W = min(link, members on a host x network). docs/formulas.md has all of it.
 * Limits: tensors are cut evenly; a host's GPUs reach each other alike; network without congestion; no experts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/formulas/mesh/points.h"
#include "common/mesh/mesh.h"
#include "common/pipeline/pipeline.h"

/* ---- what a GPU and its links reach: rates.c ---- */

/* What the members of a group do together: each gets all parts, or a part of the sum, or all of the sum. */
typedef enum mesh_call { MESH_GATHER, MESH_SCATTER, MESH_SUM, MESH_CALLS } mesh_call;

/* What one machine was measured to do, by shape. What has no points is as the table of rates has it. */
typedef struct mesh_measured {
    mesh_points products;          /* at the larger, the smaller of m and n, and k: times the model of tiles says */
    mesh_points attention[2];      /* forward, backward, at head_dim, sequence, sequences x heads: FLOP/s */
    mesh_points calls[MESH_CALLS]; /* at bytes through each link, members^8 (others count little), 1: bytes/s */
    mesh_points compute[2]; /* forward, backward, at a rank's rows, the sequence, 1: times what the rates above say */
} mesh_measured;

typedef struct mesh_rates {
    const char *name;
    double peak;          /* FLOP/s of 16-bit products by the data sheet; of 8-bit ones twice that */
    double share, share8; /* that large products of 16 and of 8 bits reach of their peak */
    double attention_forward, attention_backward; /* FLOP/s */
    double memory;                                /* bytes/s of passes and of the update */
    double passes;                                /* of the bytes that passes move unfused, how many they do move */
    double link, network; /* bytes/s: bus bandwidth within a host; of a GPU's own network card */
    double call_s;        /* o of a collective */
    double chunk_s;       /* that a product loses for each chunk that comes or goes beside it */
    double op_s;          /* of an empty op of a graph */
    double launch_s;      /* of an op that the host launches, beyond one of a graph; 0: nobody measured it */
    double contention;    /* seconds that compute loses for each second of a collective beside it */
    double update;        /* bytes/s of the update; 0: as memory */
    int multiprocessors;
    double bytes;                  /* of memory */
    double communicator;           /* bytes that a communicator of the library takes of it */
    const mesh_measured *measured; /* NULL: nothing was */
} mesh_rates;
extern const mesh_rates mesh_machines[]; /* ends with {0} */
#define MESH_MACHINE_NAMES "h200|h100|h100-500w|a100"
const mesh_rates *mesh_machine_find(const char *name); /* NULL: not in the table */

/* Seconds of a product of (m, k) and (k, n): 2 m n k over the rate, stretched by what its last wave of tiles leaves idle. */
double mesh_product_s(const mesh_rates *r, bool eight_bits, double m, double n, double k);
/* Seconds of a collective of a group that passes `bytes` through each of its links. Its `members` are `inner` ranks apart. */
double mesh_collective_s(const mesh_rates *r, int host, int inner, int members, double bytes);
/* The same in so many calls, as they were measured, where they were. */
double mesh_calls_s(const mesh_rates *r, mesh_call call, int host, int inner, int members, double bytes, double calls);

/* ---- the job, and a way to do it ---- */

typedef struct mesh_job {
    int64_t vocab, d_model, d_ff, layers, heads, heads_kv, seq;
    int matrices;              /* of a feed-forward: 3 with SwiGLU, 2 without */
    int64_t global_batch;      /* sequences of a step */
    int host;                  /* GPUs of a host */
    bool plain_attention;      /* scores in memory, as before FlashAttention */
    bool eight_bits;           /* products of blocks in 8 bits */
    double param, grad, state; /* bytes of a parameter */
} mesh_job;

typedef enum mesh_strategy {
    MESH_DDP,
    MESH_ZERO1,
    MESH_ZERO2,
    MESH_FSDP_KEEP,
    MESH_FSDP_FREE,
    MESH_STRATEGIES
} mesh_strategy;
#define MESH_STRATEGY_NAMES "ddp|zero1|zero2|fsdp-keep|fsdp"
const char *mesh_strategy_name(mesh_strategy s);

/* Nothing; norms and SwiGLU's product; every second product; all but attention, whose output is kept; the whole block. */
typedef enum mesh_recompute {
    MESH_KEEP,
    MESH_SELECTIVE,
    MESH_HALF,
    MESH_BUT_ATTENTION,
    MESH_BLOCK,
    MESH_RECOMPUTES
} mesh_recompute;
#define MESH_RECOMPUTE_NAMES "none|selective|half|but-attention|block"
const char *mesh_recompute_name(mesh_recompute r);

typedef struct mesh_plan {
    mesh axes;
    mesh_strategy strategy;
    const pipeline_schedule *schedule; /* NULL without a pipeline */
    int chunks, micro_batch;
    mesh_recompute recompute;
    bool overlap;        /* tensor and context parallelism send chunk by chunk behind the products and heads before */
    bool regather_waits; /* of tensor parallelism: what weights gather once more is not beside a product */
    bool each_micro;     /* fsdp-keep gathers and reduces in each micro-batch, and not once a step */
    bool launched;       /* the host launches the ops of a step, and no graph does */
    bool beside;         /* gradients of weights are made beside the rest, which takes memory */
    bool even;           /* stages have as many blocks, whatever the last one's head takes */
    bool
        rows_whole; /* of tensor parallelism: all rows of norms and residuals on each rank, whose partial products are summed */
} mesh_plan;

/* ---- what comes out: step.c, memory.c ---- */

typedef enum mesh_part {
    MESH_PRODUCTS,
    MESH_ATTENTION,
    MESH_PASSES,
    MESH_TENSOR,    /* exposed communication of tensor parallelism */
    MESH_CONTEXT,   /* the same for context parallelism */
    MESH_BUBBLE,    /* a rank waits for others of its pipeline */
    MESH_GRADIENTS, /* exposed communication of data parallelism */
    MESH_UPDATE,
    MESH_PARTS
} mesh_part;

typedef struct mesh_bytes {
    double params, grads, state, activations, gathered, logits, total;
} mesh_bytes;

typedef struct mesh_prediction {
    double step_s, parts[MESH_PARTS]; /* which add up to the step; means of the ranks of a pipeline */
    int micro_batches;                /* of a step, on a rank */
    mesh_bytes bytes;                 /* of the rank that holds most */
} mesh_prediction;

/* Why this job cannot be done so, in one sentence, or NULL. */
const char *mesh_plan_problem(const mesh_job *j, const mesh_plan *p, char *out, size_t out_bytes);
/* The plan must have no problem. `simulate`: its pipeline is simulated; else by the schedule's closed form. */
mesh_prediction mesh_predict(const mesh_job *j, const mesh_plan *p, const mesh_rates *r, bool simulate);
mesh_bytes mesh_memory(const mesh_job *j, const mesh_plan *p);

double mesh_block_parameters(const mesh_job *j); /* those that multiply */
/* Operations of a step, forward and backward, by the convention that counts all pairs of tokens, or the causal half. */
double mesh_step_flops(const mesh_job *j, bool causal);
/* How the blocks lie on the stages: as even as possible, where the last stage's head counts as `head` blocks. */
void mesh_stages(int64_t layers, int stages, double head, int *blocks);

/* ---- which mesh?: search.c ---- */

typedef struct mesh_question {
    mesh_job job;
    int gpus;
    double bytes;     /* that a rank may hold */
    double error_pct; /* of predictions: what is closer to the best is as good */
    bool overlap;
    mesh only; /* the search is within this mesh; .pp 0: any */
} mesh_question;

typedef struct mesh_found { /* a mesh, with the best of its plans */
    mesh_plan plan;
    mesh_prediction p;
} mesh_found;

enum { MESH_FOUND = 16, MESH_MICRO_MOST = 8 };
typedef struct mesh_answer {
    int plans, fits;                     /* legal ones, and those with room */
    mesh_found best[MESH_FOUND];         /* fastest first */
    mesh_found lacking[MESH_FOUND];      /* of those in which no plan has room: what lacks least, first */
    int best_count, lacking_count, ties; /* ties: meshes of `best` that the error does not tell from the first */
} mesh_answer;
/* All meshes of all GPUs, each with every strategy, schedule, number of chunks, micro-batch of 1 to MESH_MICRO_MOST and
 * recomputation. Closed forms order them; those that could be among the first are simulated. */
mesh_answer mesh_search(const mesh_question *q, const mesh_rates *r);
