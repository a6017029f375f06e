/* SPDX-License-Identifier: MIT */
/* One case of context parallelism on one rank: its tensors, its communicator, and a context (common/context) that computes and
 * moves. All ranks of the job call the functions of this folder together, unless a comment says otherwise; ranks that are no
 * members only join in exchanges.
 *
 * A rank's tensors are in pieces: (groups of heads, 2 chunks, C, B, heads of a group, D), so that what moves needs no copy. */
#pragma once

#include "bench/attention/case.h"
#include "common/comm/shared.h"
#include "common/context/context.h"
#include "common/core/stats.h"
#include "common/launch/launch.h"

typedef struct cp_tensor {
    context_tensor at;
    bool keys; /* of the shape of k, else of q */
} cp_tensor;

typedef struct cp_case {
    session *s;
    launch *l;
    const bench_case *c;
    row *w;
    comm *comm;
    shared *memory; /* of a case whose moves are copies: this rank's tensors lie there */
    size_t taken;   /* of it */
    bool member, copies;
    context_setup setup;  /* of this rank */
    context *x;           /* connected where this rank is a member */
    attention_case whole; /* the whole sequence on this rank, (B, S, H, D) */
    bool has_whole;
    cp_tensor q, k, v, o, d_o, dq, dk, dv; /* this rank's */
    context_pass pass;
    size_t peak_bytes;
    int wrong; /* the first of o, lse, dq, dk, dv that is; where o is wrong, all that follows is */
} cp_case;

/* Sets the case up; false after setting the row's status, the same on all ranks. */
bool cp_prepare(cp_case *k, session *s, const bench_case *c, row *w);
void cp_finish(cp_case *k);
/* True on every rank when every member's row is ok; else the row has the status and sentence of the one that has least `wrong`. */
bool cp_agree(cp_case *k, const char *name);
/* After a pass that could not be enqueued, the row says so. */
bool cp_ran(cp_case *k);

size_t cp_elements(const cp_case *k, const cp_tensor *t); /* of a piece */
/* A piece from its place in a tensor of the whole sequence (B, S, all heads, D). */
void cp_take_piece(cp_case *k, const cp_tensor *t, void *piece, int group, int which, const sb_tensor *whole);

/* A pass of the whole case; false after a failure. Does not wait. */
bool cp_pass(cp_case *k, bool backward);

typedef struct cp_results { /* of the whole sequence; tensors (B, S, heads, D) */
    sb_tensor o, dq, dk, dv;
    float *lse; /* (B, H, S), in host memory */
} cp_results;

/* Runs forward and backward once and compares. Fills the error columns; false, the same on all ranks, after making the
 * row `fail`. */
bool cp_verify(cp_case *k);
/* Compares once more after the timing, what passes back to back leave. */
bool cp_verify_again(cp_case *k);

/* The whole sequence by the parts that the ranks compute, on this rank alone (parts.c). lse is the caller's to free, tensors
 * are released with the case. False after a failure, or without memory. */
bool cp_parts(cp_case *k, cp_results *out);

enum { CP_ALL, CP_COMPUTE, CP_MOVES, CP_KINDS }; /* what a sample runs */

typedef struct cp_times {
    samples fwd[CP_KINDS], bwd[CP_KINDS]; /* ms of the slowest rank */
    double one_fwd, one_bwd;              /* ms of the whole sequence on one rank */
    double moved_bytes;                   /* that the rank which receives most receives in a forward and backward */
} cp_times;

/* False, the same on all ranks, after setting the row's status, or where a profile was made instead. */
bool cp_time(cp_case *k, cp_times *t);
void cp_times_free(cp_times *t);
