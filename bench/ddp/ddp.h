/* SPDX-License-Identifier: MIT */
/* What the benches of data parallelism share: they are one driver, and differ by their variants and by defaults of
 * options. A case is a model, a number of ranks and a strategy of common/parallel/parallel.h (its variant). It is
 * checked on a slice (verify.c), then timed (time.c) with its own twin, which does the same without
 * communication.
 *
 * Every rank of the job runs every function here, unless it says otherwise; those that are no members of a case only
 * take part in exchanges. */
#ifndef STEPBENCH_BENCH_DDP_DDP_H
#define STEPBENCH_BENCH_DDP_DDP_H

#include "bench/model/case.h"
#include "bench/model/context.h"
#include "common/core/stats.h"
#include "common/parallel/parallel.h"
#include "common/replica/replica.h"

/* clang-format off */
#define DDP_OPTIONS(update)                                                                                            \
    LAUNCH_RANKS("2", "2"),                                                                                            \
    MODEL_OPTIONS("xl", "tiny", "128,512", "32", "fp32,bf16", "train-step"),                                           \
    {"update", OPTION_CHOICE, OPTION_LIST, update, NULL, 0, -1, UPDATE_CHOICES, "",                                    \
     "when AdamW runs: once, when all is summed; bucket by bucket after backward; likewise while backward goes on"},   \
    {"update-blocks", OPTION_INT, OPTION_LIST, "0", NULL, 0, 4096, NULL, "thread blocks",                              \
     "with --update backward: AdamW takes at most so many; 0: no limit"},                                              \
    {"max-ctas", OPTION_INT, OPTION_LIST, "0", NULL, 0, 64, NULL, "thread blocks",                                     \
     "a collective of NCCL takes at most so many; 0: NCCL decides"},                                                   \
    {"fusion", OPTION_CHOICE, OPTION_LIST, "kernels", NULL, 0, -1, "kernels|graph", "",                                \
     "fused kernels launched by the host, or the whole step with its collectives as one CUDA graph"},                  \
    {"warmup", OPTION_INT, 0, "5", NULL, 1, 1000000, NULL, "steps", "steps before those that are measured"},           \
    {"iters", OPTION_INT, 0, "20", NULL, 0, 1000000, NULL, "steps",                                                    \
     "measured steps, and as many of the twin without communication, in blocks by turns; 0: the check alone"},         \
    {"max-time", OPTION_REAL, 0, "0", NULL, 0, 86400, NULL, "s",                                                       \
     "fewer measured steps, at least 2 a block, where they would take longer than this; 0: never"},                    \
    {"peak-tflops", OPTION_REAL, 0, "0", NULL, 0, 1e9, NULL, "TFLOP/s",                                                \
     "dense peak of a GPU at this precision, for MFU; 0: by data sheet where it is known"},                            \
    {"timeline", OPTION_FLAG, 0, "0", NULL, 0, 1, NULL, "",                                                            \
     "at last record what runs when on which stream of each rank: results/<machine>/timeline/<variant>.csv, .json"},   \
    {"plant-error", OPTION_CHOICE, 0, "none", NULL, 0, -1, "none|gradient|parameter", "",                              \
     "tries the check: on the last rank one gradient before it is summed, or one parameter after an update, is changed"}
#define DDP_BUCKET_MB(def, def_cpu)                                                                                    \
    {"bucket-mb", OPTION_REAL, OPTION_LIST, def, def_cpu, 1e-4, 1e6, NULL, "MB of 2^20 bytes",                         \
     "gradients of a bucket; a larger tensor is a bucket of its own"}

#define DDP_COLUMNS                                                                                                    \
    {"bucket_bytes", COLUMN_INT, false, "the largest of them"},                                                        \
    {"step_ms", COLUMN_REAL, true, "a step, begin to begin, of the slowest rank; median"},                             \
    {"global_batch", COLUMN_INT, true, "sequences of a step on all ranks: batch x ranks"},                             \
    {"wire_dtype", COLUMN_TEXT, true, "gradients in memory, in their sums and on the wire"},                           \
    {"buckets", COLUMN_INT, true, "collectives for gradients in a step"},                                              \
    {"step_mean_ms", COLUMN_REAL, false, "the same, mean"},                                                            \
    {"step_std_ms", COLUMN_REAL, false, "the same, standard deviation (n - 1)"},                                       \
    {"step_p5_ms", COLUMN_REAL, false, "the same, 5th percentile"},                                                    \
    {"step_p95_ms", COLUMN_REAL, false, "the same, 95th percentile"},                                                  \
    {"n_steps", COLUMN_INT, false, "measured steps, and as many of the twin"},                                         \
    {"twin_ms", COLUMN_REAL, true, "the same step without communication, median"},                                     \
    {"exposed_ms", COLUMN_REAL, true, "step_ms - twin_ms: what communication costs"},                                  \
    {"exposed_lo_ms", COLUMN_REAL, false, "its 95 % interval by bootstrap, lower end"},                                \
    {"exposed_hi_ms", COLUMN_REAL, false, "upper end"},                                                                \
    {"tail_ms", COLUMN_REAL, false, "the compute stream stands still after backward until sums are there"},            \
    {"contention_ms", COLUMN_REAL, false,                                                                              \
     "exposed_ms - tail_ms: what collectives slow down beside them; of zero1 also the waits of forward"},              \
    {"comm_alone_ms", COLUMN_REAL, true, "all collectives of a step with nothing beside them, slowest rank, median"},  \
    {"hidden_pct", COLUMN_REAL, true, "100 (1 - exposed_ms / comm_alone_ms)"},                                         \
    {"comm_pct", COLUMN_REAL, false, "100 exposed_ms / step_ms"},                                                      \
    {"wire_bytes", COLUMN_REAL, false, "a rank sends so much in a step, by a ring's count"},                           \
    {"wire_gb_s", COLUMN_REAL, false, "wire_bytes / comm_alone_ms"},                                                   \
    {"fwd_ms", COLUMN_REAL, false, "forward with the loss, and its waits for parameters (another run, median)"},       \
    {"bwd_ms", COLUMN_REAL, false, "backward"},                                                                        \
    {"after_ms", COLUMN_REAL, false, "after backward: waits and updates"},                                             \
    {"opt_ms", COLUMN_REAL, false, "after_ms - tail_ms: updates after backward"},                                      \
    {"phase_rank", COLUMN_INT, false, "whose these are and tail_ms: the rank that waited least; others wait for it"},  \
    {"opt_alone_ms", COLUMN_REAL, false, "AdamW on all that this rank updates, nothing beside it, slowest rank"},      \
    {"rank_step_ms", COLUMN_TEXT, false, "median step of each rank, in the order of ranks"},                           \
    {"slowest_rank", COLUMN_INT, false, "the rank with the largest of them"},                                          \
    {"tokens_per_s", COLUMN_REAL, true, "on all ranks together: global_batch seq / step_ms"},                          \
    {"tflops", COLUMN_REAL, false, "of a rank: FLOPs of the model (causal attention) / step_ms"},                      \
    {"mfu_causal_pct", COLUMN_REAL, true, "tflops / peak of the GPU at the products' precision"},                      \
    {"mfu_full_pct", COLUMN_REAL, false, "the same with the whole S x S attention counted"},                           \
    {"peak_bytes", COLUMN_INT, true, "memory of the model on the rank that needs most: all but what NCCL and the "     \
     "strategy take"},                                                                                                 \
    {"device_used_bytes", COLUMN_INT, false, "what the driver has given out since before the model was made, most of " \
     "all ranks; nan on the CPU"},                                                                                     \
    {"recorded_comm_ms", COLUMN_REAL, false, "--timeline: time in which the recorded step communicated, most of all ranks"},\
    {"recorded_exposed_ms", COLUMN_REAL, false, "--timeline: the part of it in which no compute ran"},                 \
    {"recorded_hidden_pct", COLUMN_REAL, false, "--timeline: share of it in which compute ran, of the rank with least"},\
    {"params", COLUMN_INT, false, "parameters of the model"},                                                          \
    {"backend", COLUMN_TEXT, false, "the library of the collectives and its version"},                                 \
    {"hosts", COLUMN_INT, false, "hosts that the ranks of the job are on"},                                            \
    {"loss_first", COLUMN_REAL, false, "loss of the first step, mean of all ranks"},                                   \
    {"loss_last", COLUMN_REAL, false, "after the first block of measured steps"},                                      \
    {"checksum", COLUMN_TEXT, false, "of all parameters after that block: the same on every rank, or the row is fail"},\
    {"err_grad", COLUMN_REAL, false, "check: worst sum of gradients of a tensor, relative L2 error to one rank's"},    \
    {"err_param", COLUMN_REAL, false,                                                                                  \
     "check: worst tensor after 3 steps, off from one rank's, relative to how far it moved"}

#define DDP_NOTES                                                                                                      \
    "batch is that of each rank; global_batch is batch x ranks. Before a case is timed, a slice of its model (at\n"    \
    "most two blocks, small batches, buckets of the same size or a quarter of its gradients) takes three steps on\n"   \
    "all its ranks, and on one rank that computes their batches one after another. With two ranks and fp32 gradients\n"\
    "both must agree in every bit; checksums of the parameters must agree between ranks after each step.\n"            \
    "exposed_ms is a difference of two runs by turns, step and twin; tail_ms is measured within a step. Compute and\n" \
    "collectives slow each other down, which is contention_ms. Gradients are summed in grad-dtype.\n"
/* clang-format on */

/* ---- a case ---- */

typedef struct ddp_case {
    session *s;
    launch *l;
    const bench_case *c;
    row *w;
    int ranks;
    bool member, graph;
    trainer_options o;  /* of a rank */
    parallel_options p; /* strategy, buckets, update */
    replica_place at;
    char choices_file[512]; /* of at */
} ddp_case;

/* Fills in the case; false after making the row `skip`: its options contradict each other, or it is another case. */
bool ddp_case_of(session *s, const bench_case *c, row *w, ddp_case *out);
bool ddp_validate(const options *o, char *msg, size_t msg_bytes); /* for bench_info.validate */
bool ddp_has_column(const ddp_case *k, const char *name);         /* whether this bench fills it in */
/* True on every rank when it is `ok` on every rank; else the row gets the status and the first such rank's sentence. */
bool ddp_agree(ddp_case *k, const char *name, bool ok, const char *why);
void ddp_set_problem(ddp_case *k, const replica_problem *problem); /* as the row's status */
/* A replica of the case's ranks, and the capture of its steps. NULL or false after setting the row's status. */
replica *ddp_replica(ddp_case *k, const trainer_options *o, const parallel_options *p);
bool ddp_capture(ddp_case *k, replica *r);
/* all: (ranks of the job, n). */
void ddp_gather(const ddp_case *k, const char *name, const double *mine, int n, double *all);
double ddp_most(const ddp_case *k, const char *name, double mine); /* of the members */

/* main of a bench. Sets defaults in its table of options. */
int ddp_main(const bench_info *info, option_spec *table, int argc, char **argv);

/* ---- what is remembered from case to case ---- */

typedef struct ddp_reference { /* of a slice on one rank; host memory, elements of the index space */
    char key[512];             /* "": none is held */
    int64_t elements;
    float *grads;         /* sums of the first step */
    float *start, *after; /* parameters; of rank 0 alone */
    float *reversed;      /* likewise, as `after` with sums in the opposite order; NULL where two are added */
} ddp_reference;
enum { DDP_CHECK_STEPS = 3 };
void ddp_reference_clear(ddp_reference *r);
void ddp_read_params(trainer *t, float *out); /* by index; what lies between tensors stays as it was */
/* Of members, each for itself: the gradients that it updates with are compared on each, the parameters on rank 0
 * alone, since they are the same everywhere. Makes *r that of the slice unless it is already. False with a sentence
 * in why. */
bool ddp_reference_make(ddp_case *k, const trainer_options *slice, const char *key, ddp_reference *r, char *why,
                        size_t why_bytes);

typedef struct ddp_outcome { /* of a check */
    char key[640];
    bool ok;
    double err_grad, err_param;
    char reason[320];
} ddp_outcome;
/* Of members. Gradients of the first step; on rank 0 parameters after all steps, else NULL. Leaves the key. */
void ddp_compare(const ddp_case *k, const replica *r, const float *grads, const float *values, const ddp_reference *ref,
                 ddp_outcome *out);

typedef struct ddp_fit { /* t = o + bytes / w of an all-reduce */
    int ranks, max_ctas;
    comm_dtype dtype;
    double overhead_s, rate, residual_pct; /* NAN where it could not be measured */
} ddp_fit;

typedef struct ddp_cache {
    ddp_outcome *outcomes;
    size_t outcome_count;
    ddp_reference reference;
    ddp_fit *fits;
    size_t fit_count;
    char *sweep; /* the case of the last row but for its bucket size, and what was measured in its first row */
    double kappa;
} ddp_cache;
ddp_cache *ddp_cache_of(const session *s);
void ddp_outcomes_free(ddp_cache *m);

/* ---- verification (verify.c, reference.c, compare.c) ---- */

/* Before anything is timed; false after making the row `fail` (or skip, oom). */
bool ddp_verify(ddp_case *k);

/* ---- measuring (time.c) ---- */

typedef struct ddp_measured {
    samples full, twin;                    /* ms of the slowest rank, in the order of steps */
    samples own;                           /* ms of this rank's full steps */
    double forward, backward, after, tail; /* medians of phase_rank */
    int phase_rank;
    double comm_alone, opt_alone;
    double loss_first, loss_last;
    uint64_t checksum;
    double used_bytes;
} ddp_measured;

/* False after making the row `fail`. */
bool ddp_measure(ddp_case *k, replica *r, double free_before, ddp_measured *m);
void ddp_measured_free(ddp_measured *m);

/* Records a step and writes it down (timeline.c); measure before it, for launches are slower once something records. */
void ddp_record(ddp_case *k, replica *r);

/* ---- rows (row.c, fit.c, memory.c) ---- */

void ddp_fill_row(ddp_case *k, const replica *r, const ddp_measured *m);

/* Columns of the model of buckets. */
/* clang-format off */
#define DDP_MODEL_COLUMNS                                                                                              \
    {"o_us", COLUMN_REAL, false, "of an all-reduce: t = o + bytes / w, fitted to those of this run"},                  \
    {"w_gb_s", COLUMN_REAL, false, "w of the same fit"},                                                               \
    {"fit_residual_pct", COLUMN_REAL, false, "largest deviation from the fit, of the time measured"},                  \
    {"predicted_ms", COLUMN_REAL, true, "the handout's overhead, n o + s / (n w): to be compared with exposed_ms"},    \
    {"predicted_best_mb", COLUMN_REAL, false, "its best bucket, sqrt(s o w), in MB of 2^20 bytes"},                    \
    {"kappa", COLUMN_REAL, false, "contention_ms / comm_alone_ms of this row"},                                        \
    {"predicted_contention_ms", COLUMN_REAL, false,                                                                    \
     "o + b/w + kappa (n o + s/w) with the kappa of the first row of the sweep; nan in that row"}
#define DDP_MEMORY_COLUMNS                                                                                             \
    {"param_bytes", COLUMN_INT, false, "parameters, most of all ranks"},                                               \
    {"grad_bytes", COLUMN_INT, false, "gradients"},                                                                    \
    {"state_bytes", COLUMN_INT, true, "master weights and moments"},                                                   \
    {"after_init_bytes", COLUMN_INT, false, "what a rank needs before the first step: parameters"},                    \
    {"before_step_bytes", COLUMN_INT, false, "before an update: and gradients; activations are gone"},                 \
    {"after_step_bytes", COLUMN_INT, true, "after one: and the optimizer's state"},                                    \
    {"predicted_init_bytes", COLUMN_REAL, false, "p P; P is the index space, p g k bytes of a parameter"},             \
    {"predicted_before_bytes", COLUMN_REAL, false, "(p + g) P"},                                                       \
    {"predicted_after_bytes", COLUMN_REAL, false, "(p + g + k) P, with the state in n parts (p + g + k/n) P"},         \
    {"err_pct", COLUMN_REAL, true, "largest deviation of the three from what was predicted"}
/* clang-format on */
/* Measures all-reduces of many sizes once for a kind, and remembers the fit. Before the case's model is made. */
void ddp_fit_make(ddp_case *k);
void ddp_fill_model(ddp_case *k, const replica *r, const ddp_measured *m);
void ddp_fill_memory(ddp_case *k, const replica *r);

#endif
