/* SPDX-License-Identifier: MIT */
/* PyTorch's products and copies (peer_gemm.csv) beside the rows of bench_roofline. */
#ifndef STEPBENCH_REPORT_ROOFLINE_PEERS_H
#define STEPBENCH_REPORT_ROOFLINE_PEERS_H

#include "common/core/csv.h"
#include "common/report/comparison.h"
#include "common/report/table.h"

csv *roofline_peers_open(const char *dir); /* NULL when it is absent */
/* The row of `t` that does the work of row `peer` and may stand beside it. NO_ROW: there is none. */
size_t roofline_peers_ours(const table *t, const csv *c, size_t peer);
/* Adds all of a kind, "gemm" of a dtype or "copy" (dtype NULL). */
void roofline_peers_compare(comparison *to, const table *t, const csv *c, const char *kind, const char *dtype);

#endif
