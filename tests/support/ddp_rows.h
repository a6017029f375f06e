/* SPDX-License-Identifier: MIT */
/* For tests that run benches of data parallelism on CPU ranks, in the current folder: rows of a tiny model, and what holds in each. */
#pragma once

#include "common/core/csv.h"

/* Under ASan, where each of these takes several times as long, uneven slices stand for all: their ends are where memory would
 * be overrun. Numbers are compared for each count by the plain build. */
#ifdef __SANITIZE_ADDRESS__
#define RANKS_2_3 "3"
#define RANKS_2_3_4 "3"
enum { TWO_COUNTS = 1, THREE_COUNTS = 1 }; /* of ranks */
#else
#define RANKS_2_3 "2,3"
#define RANKS_2_3_4 "2,3,4"
enum { TWO_COUNTS = 2, THREE_COUNTS = 3 };
#endif

/* Runs a bench with these arguments; its rows, or NULL when there are none. Skips the test without Gloo. */
csv *ddp_rows_of_model(const char *bench, const char *model, const char *arguments, int code);
csv *ddp_rows(const char *bench, const char *arguments, int code); /* of a model of one block */

/* Errors of gradients and parameters are those of roundings; `exact`: two ranks in fp32 give the bits of one. */
void ddp_check_errors_of(const csv *c, size_t row, bool exact);
void ddp_check_errors(const csv *c, size_t row); /* exact */
/* And times, losses and the checksum agree with each other. */
void ddp_check_row(const csv *c, size_t row);
