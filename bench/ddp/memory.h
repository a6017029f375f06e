/* SPDX-License-Identifier: MIT */
/* What a replica holds: counted, planned and as the driver has it; see memory.c. */
#pragma once

#include "bench/ddp/case.h"

/* clang-format off */
#define DDP_MEMORY_COLUMNS                                                                                             \
    {"param_bytes", COLUMN_INT, false, "parameters, largest of all ranks"},                                            \
    {"grad_bytes", COLUMN_INT, false, "gradients"},                                                                    \
    {"state_bytes", COLUMN_INT, true, "master weights and moments"},                                                   \
    {"after_init_bytes", COLUMN_INT, false, "held before the first step: parameters"},                                 \
    {"before_step_bytes", COLUMN_INT, false, "held before an update: parameters and gradients; activations are gone"}, \
    {"after_step_bytes", COLUMN_INT, true, "held after an update: parameters, gradients and the optimizer's state"},   \
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
/* clang-format on */

/* clang-format off */
#define DDP_UNIT_COLUMNS                                                                                               \
    {"gathered_dtype", COLUMN_TEXT, false, "as which blocks are gathered: the parameters' dtype, or codes of float8"},    \
    {"gathered_bytes", COLUMN_INT, true, "parameters that a step gathers, counted as often as it does"},               \
    {"gathered_peak_bytes", COLUMN_REAL, false, "most of gathered parameters that are there at a time"},               \
    {"gather_wait_ms", COLUMN_REAL, true, "time that compute stands still for parameters to be gathered"},             \
    {"reduced_wait_ms", COLUMN_REAL, false,                                                                            \
     "time that compute stands still in the backward until gradients have been reduced and their memory is free"},     \
    {"forward_peak_bytes", COLUMN_REAL, false, "memory of the model at the worst moment of the forward"},              \
    {"backward_peak_bytes", COLUMN_REAL, false, "the same for the backward"},                                           \
    {"update_peak_bytes", COLUMN_REAL, false, "the same after the backward"}
/* clang-format on */

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
