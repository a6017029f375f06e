/* SPDX-License-Identifier: MIT */
/* Training steps of PyTorch on the same machine, beside rows of a bench of ours. */
#ifndef STEPBENCH_REPORT_MODEL_PEERS_H
#define STEPBENCH_REPORT_MODEL_PEERS_H

#include "common/report/comparison.h"
#include "common/report/table.h"

enum { MODEL_PEERS = 9 };

/* How a model was run there; `named` as in the heads of columns. `precision` is what stands beside our bf16, where that is
 * not its own bf16, which is autocast. */
typedef struct model_peer {
    const char *mode, *attn, *precision, *named;
} model_peer;
extern const model_peer model_peers[MODEL_PEERS];

csv *model_peers_open(const char *dir); /* <dir>/peer_model.csv; NULL when it is absent */
/* Its fastest step of the same size, context, batch and precision over ours; its peak memory over ours. NAN where it has
 * no such row, and for rows of ours that are no train step. `c` may be NULL. */
double model_peer_time(const csv *c, const table *t, size_t row, const model_peer *how);
double model_peer_memory(const csv *c, const table *t, size_t row, const model_peer *how);
/* Whether the file has no row of any mode but eager, so that the peer's fastest mode is not known. */
bool model_peers_eager_alone(const csv *c);
/* Adds the train steps of `t`. */
void model_peers_compare(comparison *to, const csv *c, const table *t);
bool model_peer_has(const csv *c, const table *t, const model_peer *how); /* a time for any row of t */

#endif
