/* SPDX-License-Identifier: MIT */
/* One case of context parallelism on one rank: its tensors, its communicator, what it computes and what it moves.
 * All ranks of the job call the functions of this folder together, unless a comment says otherwise; ranks that are no members
 * only join in exchanges.
 *
 * A rank's tensors are in pieces: (groups of heads, 2 chunks, C, B, heads of a group, D), so that what moves is contiguous and
 * lands at its place in a sequence (chunks, C, B, heads of a group, D) without a pass of its own. */
#ifndef STEPBENCH_BENCH_CP_CASE_H
#define STEPBENCH_BENCH_CP_CASE_H

#include "bench/attention/case.h"
#include "common/comm/comm.h"
#include "common/formulas/ranks/context.h"
#include "common/launch/launch.h"

/* What --plant-error breaks, on the last rank. */
typedef enum cp_plant { PLANT_NONE, PLANT_ORDER, PLANT_POSITION, PLANT_MERGE, PLANT_TAIL, PLANT_OWN } cp_plant;
#define CP_PLANTS "none|order|position|merge|tail|own"

enum { CP_PLACES = 2 }; /* a group is computed from one place while the next one arrives in the other */

typedef struct cp_case cp_case;

typedef struct cp_way {
    const char *name, *summary;
    context_way way;
    unsigned plants; /* bits of cp_plant that mean something to it */
    bool (*allocate)(cp_case *k);
    void (*forward)(cp_case *k), (*backward)(cp_case *k); /* enqueue */
} cp_way;
extern const cp_way cp_ways[]; /* ends with {0} */

typedef struct cp_tensor {
    char *data;
    int heads, columns; /* of a group */
    size_t piece;       /* elements of a chunk of a group */
} cp_tensor;

struct cp_case {
    session *s;
    launch *l;
    const bench_case *c;
    row *w;
    comm *comm;
    bool member;
    context_shape shape;
    const cp_way *way;
    cp_plant plant;
    int rank, groups, rows; /* rows: C, tokens of a chunk */
    int at[2];              /* the chunks of this rank, as the mask sees them */
    sb_attention base;      /* shape, dtype, mask of the whole sequence */
    comm_dtype wire;
    size_t element;
    attention_case whole; /* the whole sequence on this rank, (B, S, H, D) */
    bool has_whole;

    cp_tensor q, k, v, o, d_o, dq, dk, dv; /* this rank's */
    float *lse[2];                         /* of a chunk: (groups, B, heads of a group, C) */
    float *lse_whole;                      /* all-to-all: (B, heads of a group, S) */
    cp_tensor seq[8];                      /* whole sequences of a group, as the way needs them */
    cp_tensor parts[2], in[2];             /* shares of dk and dv: the first chunk's, and those of other ranks */
    float *sum;                            /* of them, a piece */
    float *o_sum, *dq_sum, *dk_sum[CP_PLACES], *dv_sum[CP_PLACES]; /* a ring's, of two chunks */
    float *part_lse;
    size_t peak_bytes;

    void *side; /* stream of the moves */
    device_event *begun, *arrived[CP_PLACES], *used[CP_PLACES], *computed[CP_PLACES], *returned[CP_PLACES];
    bool planning, computing, moving; /* only ask for workspace; run attention; run moves */
    void *workspace;
    size_t workspace_bytes;
    double received_bytes;
    int wrong;        /* the first of o, lse, dq, dk, dv that is; where o is wrong, all that follows is */
    sb_status status; /* the first that is not SB_OK */
    char why[256];
};

/* Sets the case up; false after setting the row's status, the same on all ranks. */
bool cp_prepare(cp_case *k, session *s, const bench_case *c, row *w);
void cp_finish(cp_case *k);
/* True on every rank when every member's row is ok; else the row has the status and sentence of the one that has least `wrong`. */
bool cp_agree(cp_case *k, const char *name);

/* ---- pieces ---- */

bool cp_tensor_alloc(cp_case *k, cp_tensor *t, int groups, int chunks, int heads, int columns, const char *tag);
void *cp_piece(const cp_case *k, const cp_tensor *t, int group, int which); /* of a rank's tensor */
void *cp_chunk(const cp_case *k, const cp_tensor *t, int chunk);            /* of a sequence */
sb_tensor cp_view(const cp_case *k, const cp_tensor *t, const void *data);  /* as attention takes it */
float *cp_lse(const cp_case *k, int group, int which);
/* A piece of the tensor's shape to or from its place in a tensor of the whole sequence (B, S, all heads, D). */
void cp_piece_copy(cp_case *k, const cp_tensor *t, void *piece, int group, int which, const sb_tensor *whole,
                   bool to_whole);

/* ---- what a way is made of; all enqueue ---- */

/* One attention of some queries and the keys that they see: q, k, v, o, lse and the gradients of `a` are set. */
void cp_attend(cp_case *k, sb_attention a, bool backward);
/* out = a + b, or out = a where b is NULL, over elements of these dtypes. */
void cp_add(cp_case *k, sb_dtype ta, const void *a, sb_dtype tb, const void *b, sb_dtype t_out, void *out, size_t rows,
            size_t columns);
/* The part of attention in `a` joins the sum of a chunk: o in fp32, with the layout of `like`, and lse. */
void cp_merge(cp_case *k, const sb_attention *a, bool first, const cp_tensor *like, float *o_sum, float *lse_sum);
/* Between cp_moves_begin and _end, on the side stream: a piece goes from one member to another, or stays. All members name
 * the moves in the same order. */
void cp_moves_begin(cp_case *k);
void cp_move(cp_case *k, int from, int to, const void *src, void *dst, size_t elements, comm_dtype t);
void cp_moves_end(cp_case *k);
void cp_record(cp_case *k, void *stream, device_event *e);
void cp_wait(cp_case *k, void *stream, device_event *e);

/* A pass of the whole case; false after a failure, see k->why. Does not wait. */
bool cp_forward(cp_case *k);
bool cp_backward(cp_case *k);

#endif
