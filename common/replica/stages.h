/* SPDX-License-Identifier: MIT */
/* A model cut into the stages of a pipeline: which layers each has, what a rank's step is made of (stages.c), and what moves
 * the residual stream between ranks (edges.c). Stage s of `ends` has layers [ends[s - 1], ends[s]); the first one has
 * the embedding, too, and the last one the head. */
#pragma once

#include "common/comm/comm.h"
#include "common/pipeline/pipeline.h"
#include "common/step/options.h"
#include "common/train/trainer.h"

/* ---- stages.c ---- */

/* Time of a forward and backward, in any unit: of one block, of the embedding, of the head with the loss. */
typedef struct stage_costs {
    double block, embedding, head;
} stage_costs;

/* Fills ends[p v] of at least as many layers: as many blocks in each stage as possible; or such that the rank with most to do
 * has as little as possible. */
void stages_even(const pipeline_shape *s, int layers, int *ends);
void stages_balanced(const pipeline_shape *s, int layers, const stage_costs *costs, int *ends);

/* The stage in front of the boundary that a hop of this layer crosses. */
int stages_front(const pipeline_shape *s, const int *ends, int layer);

/* What a rank does in a step; by stages_table_free. */
step_table *stages_table(const pipeline_table *t, const int *ends, int rank);
void stages_table_free(step_table *t);

/* ---- edges.c ---- */

/* How tensors move: by the library of the device, with a communicator and a stream for each direction between two neighbours and for
 * each kind of tensor (the residual stream, and its gradient); or by copies into memory of GPUs of one host (copies.h).
 * All ranks of the job make and destroy them together. The ranks of a mesh that differ on pp alone are a
 * ring; there are several side by side. */
typedef struct edges edges;
edges *edges_open(launch *l, device *d, mesh m, bool copy, int max_ctas, char *why, size_t why_bytes); /* NULL: why */
void edges_close(edges *e);
comm *edges_all(const edges *e); /* of all ranks of the mesh */
/* The hops of a trainer whose stages these are: before its first step. `ends` is used until the next call. */
step_hops edges_hops(edges *e, const pipeline_shape *s, const int *ends);
/* Every rank of the job, members with the trainer that has these hops: they learn where tensors go. False on all, with a sentence,
 * where memory is out of reach. Disconnect likewise, before the trainer is freed and after a false one, too. */
bool edges_connect(edges *e, trainer *t, const pipeline_shape *s, char *why, size_t why_bytes);
void edges_disconnect(edges *e);
/* Milliseconds of a hop of `bytes` bytes from rank 0 to rank 1 and back, halved, with nothing beside it; the same on both; NAN
 * elsewhere. Members call it together, between steps, with memory of that size. */
double edges_hop_ms(edges *e, void *at, size_t bytes);
