/* SPDX-License-Identifier: MIT */
/* The model of buckets: its columns, and how they are measured and filled; see fit.c. */
#ifndef STEPBENCH_BENCH_DDP_FIT_H
#define STEPBENCH_BENCH_DDP_FIT_H

#include "bench/ddp/time.h"

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
/* clang-format on */

/* Measures all-reduces of many sizes once for a kind, and remembers the fit. Before the case's replica is made. */
void ddp_fit_make(ddp_case *k);
void ddp_fill_fit(ddp_case *k, const replica *r, const ddp_times *m);

#endif
