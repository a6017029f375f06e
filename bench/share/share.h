/* SPDX-License-Identifier: MIT */
/* A case of tensor parallelism: checked against one rank that has whole layers (verify.c), timed with and without its
 * communication (time.c), and written down (row.c). All ranks of the job call these functions together. */
#pragma once

#include "common/core/stats.h"
#include "common/replica/team.h"
#include "common/session/session.h"

/* clang-format off */
#define SHARE_COLUMNS                                                                                                  \
    {"step_ms", COLUMN_REAL, true, "a step, from its start to the start of the next, of the slowest rank; median"},    \
    {"step_p10_ms", COLUMN_REAL, false, "the same, 10th percentile"},                                                  \
    {"step_p90_ms", COLUMN_REAL, false, "the same, 90th percentile"},                                                  \
    {"n_steps", COLUMN_INT, false, "measured steps, and as many compute-only ones"},                                   \
    {"compute_ms", COLUMN_REAL, true, "the same step with nothing sent, own rows in place of others', median"},        \
    {"exposed_ms", COLUMN_REAL, true, "step_ms - compute_ms: what communication costs the step"},                      \
    {"exposed_lo_ms", COLUMN_REAL, false, "95 % bootstrap interval of exposed_ms, lower end"},                         \
    {"exposed_hi_ms", COLUMN_REAL, false, "95 % bootstrap interval of exposed_ms, upper end"},                         \
    {"alone_ms", COLUMN_REAL, true, "all collectives of a step with nothing else running, slowest rank, median"},      \
    {"hidden_pct", COLUMN_REAL, true, "100 (1 - exposed_ms / alone_ms): share of that time that the step does "        \
     "not pay for"},                                                                                                   \
    {"one_ms", COLUMN_REAL, false, "a step of the whole model on one rank, on all of them at once, slowest; nan where it " \
     "does not fit"},                                                                                                  \
    {"speedup", COLUMN_REAL, true, "one_ms / step_ms, times the batches of the mesh"},                                 \
    {"efficiency_pct", COLUMN_REAL, true, "100 speedup / ranks"},                                                      \
    {"predicted_ms", COLUMN_REAL, true, "one_ms / (tp cp) + alone_ms: compute divides, and nothing is hidden"},        \
    {"err_pct", COLUMN_REAL, true, "100 (predicted_ms / step_ms - 1)"},                                                \
    {"peak_bytes", COLUMN_INT, true, "memory of the model's part on the rank that needs most: all but what NCCL takes"}, \
    {"predicted_bytes", COLUMN_INT, false, "the same, planned before anything was taken"},                             \
    {"one_bytes", COLUMN_INT, false, "the same for one rank with the whole model, planned"},                           \
    {"saved_pct", COLUMN_REAL, true, "100 (1 - peak_bytes / one_bytes)"},                                              \
    {"device_used_bytes", COLUMN_INT, false,                                                                           \
     "memory that the driver gave out since before the part was made, largest of all ranks; nan on the CPU"},          \
    {"collectives", COLUMN_INT, false, "number per step, between ranks that share layers"},                            \
    {"wire_bytes", COLUMN_REAL, true, "bytes that a rank sends per step, by the count of a ring"},                     \
    {"wire_gb_s", COLUMN_REAL, false, "wire_bytes / alone_ms"},                                                        \
    {"tokens_per_s", COLUMN_REAL, true, "tokens per second of all ranks together"},                                    \
    {"tflops", COLUMN_REAL, false, "per rank: FLOPs of the model (causal attention) / ranks / step_ms"},               \
    {"mfu_causal_pct", COLUMN_REAL, false, "tflops / peak of the GPU at the products' precision"},                     \
    {"params", COLUMN_INT, false, "parameters of the model"},                                                          \
    {"rank_params", COLUMN_INT, false, "parameters of the first rank's part"},                                         \
    {"backend", COLUMN_TEXT, false, "the library of the collectives and its version"},                                 \
    {"hosts", COLUMN_INT, false, "hosts that the ranks of the job are on"},                                            \
    {"loss_first", COLUMN_REAL, false, "loss of the first step, mean of all ranks"},                                   \
    {"loss_last", COLUMN_REAL, false, "loss after the first block of measured steps, mean of all ranks"},              \
    {"err_loss", COLUMN_REAL, false, "check: relative error of the loss of three steps against one rank, worst"},      \
    {"err_norm", COLUMN_REAL, false, "check, with --clip: relative error of the norm of the first step's gradients"},  \
    {"err_grad", COLUMN_REAL, false, "check: worst tensor of gradients, relative L2 error against one rank"},          \
    {"err_param", COLUMN_REAL, false, "check: all parameters after 3 updates, difference from that one rank, relative " \
     "to how far they moved"},                                                                                         \
    {"bits_off", COLUMN_INT, false, "check: gradients, parameters and losses of all ranks with other bits than those of " \
     "one rank that computes the same parts; empty where sums come in another order"}
/* clang-format on */

typedef struct share_case {
    session *s;
    launch *l;
    const bench_case *c;
    row *w;
    mesh m;
    int ranks, data, batches; /* of the mesh; those whose tokens differ; how often these hold `batch` sequences */
    int max_ctas;
    bool graph;
    const team_way *way;
    const char *strategy; /* of data parallelism */
    team_fault fault;
    step_options o; /* of the whole model */
    replica_place at;
} share_case;

typedef struct share_times {
    samples step, compute; /* ms of the slowest rank */
    double alone;
    double loss_first, loss_last;
    double used_bytes;
} share_times;

/* Sets the row to the problem's status. Returns false. */
bool share_problem(share_case *k, const replica_problem *problem);
/* With the case's tokens; `way` NULL: the whole model on each rank. NULL after setting the row's status. */
team *share_team(share_case *k, const step_options *o, const team_way *way);

bool share_has_bits(const share_case *k); /* one rank that computes the same parts must have the same bits */
bool share_verify(share_case *k);         /* false after setting the row's status */
/* A step of the whole model on each rank, slowest: milliseconds, NAN where it does not fit; planned bytes. */
bool share_one(share_case *k, double *ms, int64_t *bytes);
bool share_time(share_case *k, team *x, share_times *m);
void share_profile(share_case *k, team *x);
void share_times_free(share_times *m);
void share_fill_row(share_case *k, const team *x, const share_times *m, double one_ms, int64_t one_bytes);
