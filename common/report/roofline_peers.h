/* SPDX-License-Identifier: MIT */
/* PyTorch's products and copies (peer_gemm.csv) beside the rows of bench_roofline. */
#ifndef STEPBENCH_REPORT_ROOFLINE_PEERS_H
#define STEPBENCH_REPORT_ROOFLINE_PEERS_H

#include "common/core/csv.h"
#include "common/report/comparison.h"
#include "common/report/table.h"

csv *roofline_peers_open(const char *dir); /* NULL when it is absent */
/* The row of `t` that stands beside row `peer`: the same work on the same GPU in the same run, sampled alike. A GPU that has
 * just begun runs at a higher clock than one at its power limit, so a row that was left to settle (--settle) stands beside
 * none that was not. NO_ROW: there is none. */
size_t roofline_peers_ours(const table *t, const csv *c, size_t peer);
typedef enum roofline_sampled { SAMPLED_ALIKE, SAMPLED_UNSETTLED, SAMPLED_SETTLED } roofline_sampled;
/* Adds all of a kind, "gemm" of a dtype or "copy" (dtype NULL). Returns how those of theirs were sampled that were left out for it. */
roofline_sampled roofline_peers_compare(comparison *to, const table *t, const csv *c, const char *kind,
                                        const char *dtype);

#endif
