/* SPDX-License-Identifier: MIT */
/* How the ranks of a job share a training step: five axes, whose sizes multiply to the number of ranks. pp cuts the
 * layers into stages, dp_replicate and dp_shard the batch (ranks of dp_shard also share parameters or state), cp each
 * sequence, tp each layer. tp is innermost, so that its ranks are neighbours on one host, and pp outermost, so that the
 * ranks of a stage are: rank = (((pp DR + dp_replicate) DS + dp_shard) CP + cp) TP + tp. A mesh is a value, also of
 * coordinates; nothing here communicates. Whoever opens communicators for a set of axes calls comm_open_axes.
 *
 * Source: the order of axes and the rank that reports are those of torchtitan. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The sizes of the axes, or the place of a rank on them. */
typedef struct mesh {
    int pp, dp_replicate, dp_shard, cp, tp;
} mesh;

/* A set of axes is a sum of these. */
enum {
    MESH_PP = 1,
    MESH_DP_REPLICATE = 2,
    MESH_DP_SHARD = 4,
    MESH_CP = 8,
    MESH_TP = 16,
    MESH_FSDP = MESH_DP_SHARD | MESH_CP,        /* they share the parameters that a sharded strategy cuts */
    MESH_DATA = MESH_DP_REPLICATE | MESH_FSDP,  /* their tokens differ: they sum loss and gradients */
    MESH_MODEL = MESH_PP | MESH_FSDP | MESH_TP, /* their slices differ: together they hold the model once */
    MESH_ALL = MESH_PP | MESH_DATA | MESH_TP
};

/* "pp2+tp2" or, outside of lists, "pp2,tp2": what is left out is 1, and an axis without a size ("tp") takes the rest of the
 * world; dp_shard does, unless it is named or another does. NULL or "": all ranks are dp_shard. False with a sentence. */
bool mesh_parse(const char *text, int world, mesh *out, char *why, size_t why_bytes);
/* The axes larger than 1, or "dp_shard1": what mesh_parse and the lists of --mesh read. Returns out. */
const char *mesh_text(mesh m, char *out, size_t out_bytes);

int mesh_world(mesh m);
int mesh_rank(mesh m, mesh at);
mesh mesh_coords(mesh m, int rank);

/* The ranks that differ from one on these axes alone, in the order of ranks: a group of no axis is the rank itself. */
typedef struct mesh_group {
    int count, mine; /* members; the place of the rank that was asked for */
    int *ranks;      /* [count] of the job; mesh_group_free frees them */
} mesh_group;
int mesh_group_size(mesh m, unsigned axes);
mesh_group mesh_group_of(mesh m, int rank, unsigned axes);
void mesh_group_free(mesh_group *g);

/* Where the chunks of layers lie on the stages: chunk i of v p chunks on stage i % p, or with two chunks per stage there
 * and back, so that stage 0 has the first and the last. */
typedef enum mesh_placement { MESH_LOOP, MESH_V } mesh_placement;
/* The rank that has the loss: the first one of the stage with the last chunk. */
int mesh_metrics_rank(mesh m, mesh_placement placement);

/* What is to be split; 0: not asked about. */
typedef struct mesh_model {
    int layers, heads, heads_kv, d_ff;
    int chunks;     /* of layers, on each stage; 0 is 1 */
    int seq, batch; /* tokens of a sequence; sequences of a micro-batch on a rank of dp_replicate and dp_shard */
} mesh_model;
/* Why the mesh cannot split it ("heads 25 are not a multiple of tp 2"), in one sentence for the first reason, or NULL. */
const char *mesh_problem(mesh m, const mesh_model *of, char *out, size_t out_bytes);

#ifdef __cplusplus
}
#endif
