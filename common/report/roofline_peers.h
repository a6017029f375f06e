/* SPDX-License-Identifier: MIT */
/* PyTorch's products and copies (peer_gemm.csv) beside the rows of bench_roofline. */
#ifndef STEPBENCH_REPORT_ROOFLINE_PEERS_H
#define STEPBENCH_REPORT_ROOFLINE_PEERS_H

#include "common/core/csv.h"
#include "common/report/table.h"

csv *roofline_peers_open(const char *dir); /* NULL when it is absent */
/* The row of `t` that stands beside row `peer`: the same work on the same GPU in the same run, sampled alike. A GPU that has
 * just begun runs at a higher clock than one at its power limit, so a row that was left to settle (--settle) stands beside
 * none that was not. NO_ROW: there is none. */
size_t roofline_peers_ours(const table *t, const csv *c, size_t peer);
/* Over all of a kind, "gemm" of a dtype or "copy" (dtype NULL): the least of their times over ours. */
typedef struct roofline_lead {
    size_t cases; /* 0: none */
    double least;
    enum {
        SAMPLED_ALIKE,
        SAMPLED_UNSETTLED,
        SAMPLED_SETTLED
    } sampled_apart; /* how theirs were that were left out for it */
} roofline_lead;
roofline_lead roofline_peers_lead(const table *t, const csv *c, const char *kind, const char *dtype);

#endif
