/* SPDX-License-Identifier: MIT */
/* Context parallelism: which tokens of a sequence a rank has, what it computes and receives, and how long a step takes.
 * A sequence of 2n chunks is shared by n ranks, two chunks each. A causal mask makes later chunks see more keys: in the
 * order head-tail rank r has chunks r and 2n-1-r, and all ranks have the same number of pairs of query and key. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What moves: keys and values, to every rank that sees them; all tensors, so that each rank has all tokens of some heads;
 * blocks of keys and values, from rank to rank. */
typedef enum context_way { CONTEXT_GATHER, CONTEXT_ALL_TO_ALL, CONTEXT_RING } context_way;

typedef struct context_shape {
    int ranks;
    bool contiguous; /* rank r has chunks 2r and 2r+1; else r and 2n-1-r */
    bool causal;
    int64_t seq; /* tokens, a multiple of 2 ranks */
} context_shape;

int context_chunk(const context_shape *s, int rank, int which); /* which: 0 its first, 1 its second */
int context_owner(const context_shape *s, int chunk, int *which);
/* How many chunks, from the sequence's first on, some query of the rank sees. */
int context_seen(const context_shape *s, int rank);
/* How many chunks, from the sequence's first on, a query of some rank's first chunk sees: a gather moves these first. */
int context_first_chunks(const context_shape *s);
double context_pairs(const context_shape *s, int rank); /* pairs of query and key of one head that the mask leaves */
/* Mean of the ranks' pairs over the most; an all-to-all, which shares heads, has the same on all. */
double context_balance_pct(const context_shape *s, context_way way);

typedef struct context_widths { /* of a token */
    int64_t qo, kv;             /* elements of q and o together, of k and v together: batch x heads x columns */
    int bytes;                  /* of an element */
} context_widths;
/* Bytes that arrive in a forward and backward at the rank that receives most. A ring's sums of dk and dv travel in fp32. */
double context_moved_bytes(const context_shape *s, context_way way, const context_widths *w);

typedef struct context_load { /* milliseconds */
    context_way way;
    int ranks, groups; /* groups of heads that a gather moves one after another */
    double balance;    /* context_balance_pct / 100 */
    double first;      /* of a gather's moves: the share that is there before the first call, context_first_share */
    double one_fwd, one_bwd;     /* the whole sequence on one rank */
    double moves_fwd, moves_bwd; /* all of a pass's moves with nothing beside them */
} context_load;
double
context_first_share(const context_shape *s); /* of the chunks that the rank receives which receives most of the first */
/* Forward and backward: compute divided by the ranks, and the moves that it cannot hide. A gather hides all groups but
 * the first behind the compute of the group before, of the first what its first calls do not need, and in the backward the sums of
 * all but the last; a ring hides each hop behind
 * a block; an all-to-all hides all but the first group's way there and the last one's way back. */
double context_predicted_ms(const context_load *l);
