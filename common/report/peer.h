/* SPDX-License-Identifier: MIT */
/* The one gate in front of every ratio of a peer's row and ours. What refuses a ratio is a table of rules in peer.c:
 * provenance, GPU, run, timer, settling, a wrong result, and a GPU that waits for its host. */
#ifndef STEPBENCH_REPORT_PEER_H
#define STEPBENCH_REPORT_PEER_H

#include "common/core/csv.h"
#include "common/report/table.h"

/* Why no ratio of these rows may be formed; NULL: it may. `what` is the column of theirs that is compared: a rule about
 * times has no say in memory, and a check of the forward none in the backward. */
const char *peer_refusal(const csv *theirs, size_t peer, const csv *ours, size_t row, const char *what);
bool peer_beside(const csv *theirs, size_t peer, const table *ours, size_t row,
                 const char *what); /* nothing refuses it */
/* The refusal of a row of a table of ours; NULL likewise. */
const char *peer_refused(const csv *theirs, size_t peer, const table *ours, size_t row, const char *what);
/* The share of time in which the peer's GPU was busy, in percent: 100 by construction where its step is one CUDA graph.
 * NAN: its row does not say. */
double peer_busy_pct(const csv *theirs, size_t peer);

/* "PyTorch fsdp2 (MFU 36 %, ours 46 %, busy 97 %)": a peer with what its row says of its load. Caller frees. */
char *peer_named(const char *who, const csv *theirs, size_t peer, double our_mfu);

#endif
