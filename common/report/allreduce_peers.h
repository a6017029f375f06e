/* SPDX-License-Identifier: MIT */
/* All-reduces of others beside rows of bench_allreduce: peer_allreduce.csv and peer_nccl_tests.csv. */
#ifndef STEPBENCH_REPORT_ALLREDUCE_PEERS_H
#define STEPBENCH_REPORT_ALLREDUCE_PEERS_H

#include "common/core/csv.h"
#include "common/report/comparison.h"
#include "common/report/table.h"

enum { ALLREDUCE_PEERS = 2 };

typedef struct allreduce_peers {
    csv *files[ALLREDUCE_PEERS]; /* PyTorch's, nccl-tests'; NULL where a folder has none */
} allreduce_peers;

allreduce_peers allreduce_peers_open(const char *dir);
void allreduce_peers_free(const allreduce_peers *p);
const char *allreduce_peer_name(size_t which);
/* The peer's time over that of `row`, an all-reduce of bench_allreduce; NAN where the peer has no row of the same case on the
 * same GPU in the same run. An op of our own stands beside the library that it replaces. */
double allreduce_peer_ratio(const allreduce_peers *p, size_t which, const table *t, size_t row);

/* Adds the calls of `t` that ran from CUDA graphs, each with our fastest row of it; all of them must be of one library. */
void allreduce_peers_compare(comparison *to, const allreduce_peers *p, const table *t);

#endif
