/* SPDX-License-Identifier: MIT */
/* The row of a case, the model of buckets, and what a replica holds: their columns, and how they are filled; see the sources of
 * these names. */
#pragma once

#include "bench/ddp/case.h"
#include "bench/ddp/time.h"
#include "bench/model/timing.h"

/* clang-format off */
#define DDP_COLUMNS                                                                                                    \
    {"bucket_bytes", COLUMN_INT, false, "bytes of the largest bucket"},                                                \
    {"step_ms", COLUMN_REAL, true, "a step, from its start to the start of the next, of the slowest rank; median"},    \
    {"global_batch", COLUMN_INT, true, "sequences of a step on all ranks: batch x ranks, of all its micro-batches"},   \
    {"wire_dtype", COLUMN_TEXT, true, "dtype of the sums of gradients, in memory and as they are sent"},               \
    {"buckets", COLUMN_INT, true, "collectives for gradients in a step"},                                              \
    {"step_mean_ms", COLUMN_REAL, false, "the same, mean"},                                                            \
    {"step_std_ms", COLUMN_REAL, false, "the same, standard deviation (n - 1)"},                                       \
    {"step_p5_ms", COLUMN_REAL, false, "the same, 5th percentile"},                                                    \
    {"step_p95_ms", COLUMN_REAL, false, "the same, 95th percentile"},                                                  \
    {"n_steps", COLUMN_INT, false, "measured steps, and as many compute-only ones"},                                   \
    {"compute_ms", COLUMN_REAL, true, "the same step without its communication, median"},                              \
    {"exposed_ms", COLUMN_REAL, true, "step_ms - compute_ms: what communication costs the step"},                      \
    {"exposed_lo_ms", COLUMN_REAL, false, "95 % bootstrap interval of exposed_ms, lower end"},                         \
    {"exposed_hi_ms", COLUMN_REAL, false, "95 % bootstrap interval of exposed_ms, upper end"},                         \
    {"tail_ms", COLUMN_REAL, false, "time that the compute stream waits for sums after the backward"},                 \
    {"contention_ms", COLUMN_REAL, false,                                                                              \
     "exposed_ms - tail_ms: how far collectives slow down compute; for zero1 also the waits of the forward"},          \
    {"comm_alone_ms", COLUMN_REAL, true, "all collectives of a step with nothing else running, slowest rank, median"}, \
    {"hidden_pct", COLUMN_REAL, true, "100 (1 - exposed_ms / comm_alone_ms): share of that time that the step "        \
     "does not pay for; contention counts as not hidden"},                                                             \
    {"comm_pct", COLUMN_REAL, false, "100 exposed_ms / step_ms"},                                                      \
    {"wire_bytes", COLUMN_REAL, false, "bytes that a rank sends per step, by the count of a ring"},                    \
    {"wire_gb_s", COLUMN_REAL, false, "wire_bytes / comm_alone_ms"},                                                   \
    {"fwd_ms", COLUMN_REAL, false,                                                                                     \
     "forward with the loss and its waits for parameters; this and the phases below are from separate steps, median"}, \
    {"bwd_ms", COLUMN_REAL, false, "backward"},                                                                        \
    {"after_ms", COLUMN_REAL, false, "after backward: waits and updates"},                                             \
    {"opt_ms", COLUMN_REAL, false, "after_ms - tail_ms: updates after backward"},                                      \
    {"phase_rank", COLUMN_INT, false,                                                                                  \
     "the rank of these phases and of tail_ms: the one that waited least, for which the others wait"},                 \
    {"opt_alone_ms", COLUMN_REAL, false, "AdamW on what a rank updates, with nothing else running, slowest rank"},     \
    {"rank_step_ms", COLUMN_TEXT, false, "median step of each rank, in the order of ranks"},                           \
    {"slowest_rank", COLUMN_INT, false, "the rank with the largest of them"},                                          \
    {"tokens_per_s", COLUMN_REAL, true, "tokens per second of all ranks together: global_batch seq / step_ms"},        \
    {"tflops", COLUMN_REAL, false, "per rank: FLOPs of the model (causal attention) / step_ms"},                       \
    {"mfu_causal_pct", COLUMN_REAL, true, "tflops / peak of the GPU at the products' precision"},                      \
    {"mfu_full_pct", COLUMN_REAL, false, "the same with the whole S x S attention counted"},                           \
    MODEL_FLOAT8_COLUMNS,                                                                                              \
    {"step_j", COLUMN_REAL, false,                                                                                     \
     "energy of a step, all ranks' GPUs together; nan where a block of steps takes less than about 0.6 s"},            \
    {"tokens_per_j", COLUMN_REAL, false, "global_batch seq / step_j"},                                                 \
    {"peak_bytes", COLUMN_INT, true, "memory of the model on the rank that needs most: all but what NCCL and the "     \
     "strategy take"},                                                                                                 \
    {"device_used_bytes", COLUMN_INT, false,                                                                           \
     "memory that the driver gave out since before the model was made, largest of all ranks; nan on the CPU"},         \
    {"recorded_comm_ms", COLUMN_REAL, false,                                                                           \
     "--timeline: time in which the recorded step communicated, largest of all ranks"},                                \
    {"recorded_exposed_ms", COLUMN_REAL, false, "--timeline: the part of it during which no compute ran"},             \
    {"overlapped_pct", COLUMN_REAL, false,                                                                             \
     "--timeline: share of recorded communication during which compute ran, however slowed; smallest of all ranks"},   \
    {"clock_err_us", COLUMN_REAL, false,                                                                               \
     "--timeline: the most by which a host's recorded times are off rank 0's clock; 0 on one host"},                   \
    {"params", COLUMN_INT, false, "parameters of the model"},                                                          \
    {"backend", COLUMN_TEXT, false, "the library of the collectives and its version"},                                 \
    {"hosts", COLUMN_INT, false, "hosts that the ranks of the job are on"},                                            \
    {"loss_first", COLUMN_REAL, false, "loss of the first step, mean of all ranks"},                                   \
    {"loss_third", COLUMN_REAL, false, "loss of the third step, after two updates; nan where the warm-up is shorter"}, \
    {"loss_last", COLUMN_REAL, false, "loss after the first block of measured steps, mean of all ranks"},              \
    {"checksum", COLUMN_TEXT, false,                                                                                   \
     "checksum of all parameters after that block; it is the same on every rank, or the row is fail"},                 \
    {"err_grad", COLUMN_REAL, false,                                                                                   \
     "check: worst tensor of summed gradients, relative L2 error against one rank that computes everything"},          \
    {"err_param", COLUMN_REAL, false,                                                                                  \
     "check: worst tensor after 3 steps, difference from that one rank, relative to how far it moved"}
#define DDP_MODEL_COLUMNS                                                                                              \
    {"fit_bytes", COLUMN_TEXT, false, "sizes of the all-reduces that this run measured for the model, in bytes"},      \
    {"fit_ms", COLUMN_TEXT, false, "what each of them took: median of the slowest rank"},                              \
    {"o_us", COLUMN_REAL, false, "o of t = o + bytes / w, fitted to this run's all-reduces"},                          \
    {"w_gb_s", COLUMN_REAL, false, "w of the same fit"},                                                               \
    {"fit_residual_pct", COLUMN_REAL, false, "largest deviation from the fit, relative to the measured time"},         \
    {"predicted_ms", COLUMN_REAL, true,                                                                                \
     "overhead by the handout's model, n o + s / (n w); compare it with exposed_ms"},                                  \
    {"predicted_best_mb", COLUMN_REAL, false, "best bucket by that model, sqrt(s o w), in MB of 2^20 bytes"},          \
    {"kappa", COLUMN_REAL, false, "contention_ms / comm_alone_ms of this row"},                                        \
    {"predicted_contention_ms", COLUMN_REAL, false,                                                                    \
     "o + b/w + kappa (n o + s/w), with kappa from the first row of the sweep; nan in that row"},                      \
    {"predicted_alone_ms", COLUMN_REAL, false,                                                                         \
     "comm_alone_ms as this run's all-reduces say, by interpolation between their sizes"},                             \
    {"predicted_exposed_ms", COLUMN_REAL, true,                                                                        \
     "exposed_ms from predicted_alone_ms and the contention of the first row of the sweep; nan in that row"},          \
    {"err_exposed_pct", COLUMN_REAL, true, "100 (predicted_exposed_ms / exposed_ms - 1)"}
#define DDP_MEMORY_COLUMNS                                                                                             \
    {"param_bytes", COLUMN_INT, false, "parameters, largest of all ranks"},                                            \
    {"grad_bytes", COLUMN_INT, false, "gradients"},                                                                    \
    {"state_bytes", COLUMN_INT, true, "master weights and moments"},                                                   \
    {"after_init_bytes", COLUMN_INT, false, "held before the first step: parameters"},                                 \
    {"before_step_bytes", COLUMN_INT, false, "held before an update: parameters and gradients; activations are gone"}, \
    {"after_step_bytes", COLUMN_INT, true, "held after an update: parameters, gradients and the optimizer state"},   \
    {"predicted_init_bytes", COLUMN_REAL, false,                                                                       \
     "p P; P is the index space, p, g and k are bytes of a parameter, its gradient and its state"},                    \
    {"predicted_before_bytes", COLUMN_REAL, false, "(p + g) P"},                                                       \
    {"predicted_after_bytes", COLUMN_REAL, false,                                                                      \
     "(p + g + k) P; with the state divided among n ranks (p + g + k/n) P"},                                           \
    {"err_pct", COLUMN_REAL, true, "largest deviation of the three from the prediction"},                              \
    {"comm_bytes", COLUMN_REAL, false,                                                                                 \
     "given out by the driver while the communicators were made and first used; nan on the CPU"},                      \
    {"measured_after_init_bytes", COLUMN_REAL, false,                                                                  \
     "given out by the driver since before the model was made, less comm_bytes (on the CPU: the benches' own count). A "\
     "model takes all its memory at once, so this and the next two should be peak_bytes"},                             \
    {"measured_before_step_bytes", COLUMN_REAL, false, "the same after a backward, before the first update"},          \
    {"measured_after_step_bytes", COLUMN_REAL, false, "the same after the measured steps"},                            \
    {"err_measured_pct", COLUMN_REAL, true, "largest deviation of the three from peak_bytes, on any rank"}
#define DDP_UNIT_COLUMNS                                                                                               \
    {"gathered_dtype", COLUMN_TEXT, false, "dtype in which blocks are gathered: the parameters', or codes of float8"}, \
    {"gathered_bytes", COLUMN_INT, true, "parameters that a step gathers, counted as often as it does"},               \
    {"gathered_peak_bytes", COLUMN_REAL, false, "most bytes of gathered parameters held at one time"},                 \
    {"gather_wait_ms", COLUMN_REAL, true, "time for which compute waits for gathered parameters"},                     \
    {"reduced_wait_ms", COLUMN_REAL, false,                                                                            \
     "time for which compute waits in the backward until gradients have been reduced and their memory is free"},       \
    {"forward_peak_bytes", COLUMN_REAL, false, "memory of the model at the worst moment of the forward"},              \
    {"backward_peak_bytes", COLUMN_REAL, false, "the same for the backward"},                                          \
    {"update_peak_bytes", COLUMN_REAL, false, "the same after the backward"}
/* clang-format on */

void ddp_fill_row(ddp_case *k, const replica *r, const ddp_times *m);
/* Times all-reduces of many sizes, once per number of ranks, dtype and --max-ctas, and remembers the fit. Call it before
 * the case's replica is made. */
void ddp_fit_make(ddp_case *k);
void ddp_fill_fit(ddp_case *k, const replica *r, const ddp_times *m);

/* Bytes of this rank: held when measured, less what was held at `start`. */
typedef struct ddp_held {
    double start, comm, init, before, after;
} ddp_held;

void ddp_held_start(const ddp_case *k, ddp_held *h); /* before a replica is made */
/* What a new replica holds: uses its communicators and runs a step without an update; neither changes its parameters. */
void ddp_held_init(const ddp_case *k, replica *r, ddp_held *h);
void ddp_held_after(const ddp_case *k, ddp_held *h); /* after its steps */
/* Fills in DDP_MEMORY_COLUMNS. */
void ddp_fill_memory(ddp_case *k, const replica *r, const ddp_held *h);
