/* SPDX-License-Identifier: MIT */
/* The model of buckets: its columns, and how they are measured and filled; see fit.c. */
#pragma once

#include "bench/ddp/time.h"

/* clang-format off */
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
/* clang-format on */

/* Times all-reduces of many sizes, once per number of ranks, dtype and --max-ctas, and remembers the fit. Call it before
 * the case's replica is made. */
void ddp_fit_make(ddp_case *k);
void ddp_fill_fit(ddp_case *k, const replica *r, const ddp_times *m);
