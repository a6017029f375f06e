/* SPDX-License-Identifier: MIT */
/* What other rows a ratio may be formed with, and what bench_roofline measured, so that other benches can report their
 * share of it. */
#pragma once

#include "common/core/csv.h"
#include "common/session/session.h"

/* Whether a stored row is from this run, or from its ./run_all.sh, and from this GPU. Speedups and shares
 * compare such rows alone: another GPU of the same name, or the same one on another day, is a few percent off. */
csv *rows_read(const char *path); /* csv_read of stored rows, with what same_run wants to know of their runs */
csv *rows_of_bench(const char *results_dir, const char *bench); /* rows_read of its file there; NULL: there is none */
bool same_run(const session *s, const csv *c, size_t row);
/* Several ranks have other rates where their GPUs are kept from each other's memory: such a row is like this process, or has one rank. */
bool same_peers(const csv *c, size_t row);
/* The rows of the session's file, *row being the newest `ok` one from the same run that has this variant and the case's parameters,
 * but for those in `others`: pairs of a parameter and the value it has (NULL: any), up to a pair of NULL. NULL: there is none. */
csv *row_beside(const session *s, const bench_case *c, const char *variant, const char *const (*others)[2],
                size_t *row);

/* The best `ok` row of <results_dir>/bench_roofline.csv from the same run as `s` (NULL: of any run); NAN when
 * there is none. `dtype` is the precision of the products: fp32 by three 16-bit products ("fp16x3", "bf16x3") has a third of
 * the bf16 ceiling, by six ("bf16x6") a sixth. */
double ceiling_tflops(const session *s, const char *results_dir, const char *dtype);
/* The rate of the largest copies measured: small ones stay in the L2 cache. */
double ceiling_copy_gb_s(const session *s, const char *results_dir);
