/* SPDX-License-Identifier: MIT */
/* A case of data parallelism: its options, and exchanges between its ranks. All ranks of the job call the functions of
 * this folder together, unless a comment says otherwise; ranks that are not members of the case only join in exchanges. */
#pragma once

#include "bench/model/case.h"
#include "bench/model/timing.h"
#include "common/launch/launch.h"
#include "common/replica/replica.h"

/* clang-format off */
#define DDP_PLANT_HELP                                                                                                 \
    "test the check by a fault on the last rank: change one gradient before it is summed, or one parameter after an "  \
      "update; from the second update on, leave out half of a tensor's gradient (half), or sum that of the step "      \
      "before (stale), which 16-bit gradients may hide"
#define DDP_OPTIONS(update)                                                                                            \
    LAUNCH_RANKS("2", "2"),                                                                                            \
    MODEL_OPTIONS("xl", "tiny", "128,512", "32", "fp32,bf16", "train-step"),                                           \
    {"update", OPTION_CHOICE, OPTION_LIST, update,                                                                     \
     .help = "when AdamW runs: after all sums; bucket by bucket after the backward; bucket by bucket during "          \
      "the backward", .choices = UPDATE_CHOICES},                                                                      \
    {"update-blocks", OPTION_INT, OPTION_LIST, "0",                                                                    \
     .help = "limit on the thread blocks of AdamW with --update backward", .max = 4096, .unit = "thread blocks",       \
     .unset = "0: no limit (fused: 128)"},                                                                             \
    {"max-ctas", OPTION_INT, OPTION_LIST, "0", .help = "limit on the thread blocks of an NCCL collective", .max = 64,  \
     .unit = "thread blocks", .unset = "0: NCCL decides"},                                                             \
    {"fusion", OPTION_CHOICE, OPTION_LIST, "kernels",                                                                  \
     .help = "fused kernels launched by the host, or the whole step with its collectives as one CUDA graph",           \
     .choices = "kernels|graph"},                                                                                      \
    {"warmup", OPTION_INT, 0, "5", .help = "warm-up steps; unless it is given, 3 if a step takes more than 200 ms",    \
     .min = 1, .max = 1000000, .unit = "steps"},                                                                       \
    {"iters", OPTION_INT, 0, "20",                                                                                     \
     .help = "measured steps, alternating in blocks with as many compute-only steps; 0: only the check",               \
     .max = 1000000, .unit = "steps"},                                                                                 \
    {"max-time", OPTION_REAL, 0, "5",                                                                                  \
     .help = "measure fewer steps, at least 2 per block, if they would take longer than this", .max = 86400,           \
     .unit = "s", .unset = "0: never"},                                                                                \
    MODEL_PEAK_OPTION("MFU"),                                                                                          \
    {"timeline", OPTION_FLAG, 0, "0",                                                                                  \
     .help = "at the end, record what runs when on which stream, in timeline/<variant>.csv and .json next to "          \
      "the CSV file, and what each rank holds, in memory/<variant>_rank<n>.csv; each variant's last case is kept"},    \
    {"plant-error", OPTION_CHOICE, OPTION_SETTING, "none",                                                                          \
     .help = DDP_PLANT_HELP,                                                                                           \
     .choices = "none|gradient|parameter|half|stale"}
#define DDP_BUCKET_MB(def, cpu)                                                                                        \
    {"bucket-mb", OPTION_REAL, OPTION_LIST, def,                                                                       \
     .help = "size of a bucket of gradients; a larger tensor is a bucket of its own", .def_cpu = cpu,                  \
     .min = 1e-4, .max = 1e6, .unit = "MB of 2^20 bytes"}
/* clang-format on */

typedef struct ddp_case {
    session *s;
    launch *l;
    const bench_case *c;
    row *w;
    int ranks;
    bool member, graph;
    step_options o;     /* of a rank */
    parallel_options p; /* strategy, buckets, update */
    replica_place at;   /* where its replicas live */
} ddp_case;

/* Fills in the case. Returns false after setting the row to `skip`: its options contradict each other, or the same case
 * has another name. */
bool ddp_case_of(session *s, const bench_case *c, row *w, ddp_case *out);
/* The case by another strategy, as --strategy names it, on other ranks of the job. */
void ddp_case_set_strategy(ddp_case *k, const char *name, int ranks);
/* For session_hooks.estimate_bytes: what a rank holds by its strategy. */
double ddp_case_estimate(const options *o, const bench_case *c);
bool ddp_has_column(const ddp_case *k, const char *name); /* whether this bench fills it in */
/* Returns true on every rank if `ok` is true on every rank; otherwise the row gets the status and sentence of the first
 * rank that says no. */
bool ddp_agree(ddp_case *k, const char *name, bool ok, const char *why);
/* A replica on the case's ranks, and the capture of its steps. Return NULL or false after setting the row's status. */
replica *ddp_replica(ddp_case *k, const step_options *o, const parallel_options *p);
bool ddp_capture(ddp_case *k, replica *r);
double ddp_most(const ddp_case *k, const char *name, double mine); /* the largest of the members' */
