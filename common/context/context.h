/* SPDX-License-Identifier: MIT */
/* Context parallelism: attention whose sequence is shared by ranks, forward and backward. A rank has two chunks of C tokens of
 * each sequence (formulas/ranks/context.h says which), and a way says how its queries meet the keys of other ranks. The ways are
 * in ways.c and ring.c, what they are made of in internal.h.
 *
 * A context is planned without a communicator: it says what memory a pass takes, and context_connect lets passes run. It
 * enqueues on the caller's stream, and moves on a stream of its own, which a pass joins before it ends: so a pass can be
 * captured in a graph, and its workspace has another use behind it. */
#pragma once

#include "common/comm/comm.h"
#include "common/formulas/ranks/context.h"
#include "kernels/kernels.h"
#include "kernels/shared/direct.h"
#include "kernels/train.h"

/* What a planted error breaks, on the last rank. */
typedef enum context_fault {
    CONTEXT_NONE,
    CONTEXT_ORDER,    /* head and tail swapped */
    CONTEXT_POSITION, /* its queries placed at the sequence's start */
    CONTEXT_MERGE,    /* parts merged without scaling them */
    CONTEXT_TAIL,     /* dk and dv of its second chunk's queries left out */
    CONTEXT_OWN       /* its own chunks alone */
} context_fault;
#define CONTEXT_FAULTS "none|order|position|merge|tail|own"
#define CONTEXT_WAYS "gather|all-to-all|ring" /* as context_way */

typedef struct context context;

typedef struct context_row {
    const char *name;
    unsigned faults;                                      /* bits of context_fault that mean something to it */
    void (*forward)(context *k), (*backward)(context *k); /* enqueue */
} context_row;
extern const context_row context_rows[]; /* by context_way */
context_way context_way_named(const char *name);

/* A rank's q, for example: `b`, `s`, `group` and `which` are elements from one sequence, token, group of heads or chunk to the
 * next. A chunk of a group is contiguous as a piece, (C, B, heads of the group, D): then it moves without a copy. */
typedef struct context_tensor {
    void *data;
    int64_t b, s, group, which;
} context_tensor;

typedef struct context_pass {
    context_tensor q, k, v, o, d_o, dq, dk, dv;
    float *lse;      /* B x heads x 2C, in an order of the way */
    void *saved;     /* context_saved_bytes, written forward and read backward */
    void *workspace; /* context_workspace, 256-byte aligned */
} context_pass;

typedef struct context_setup {
    device *d;
    const sb_kernels *kernels;
    sb_context *ctx;
    const sb_attention_op *op;
    sb_attention whole; /* shape, dtype and mask of whole sequences */
    context_shape shape;
    context_way way;
    int rank, groups; /* of heads that are moved one after another, not by a ring; 0: context_groups */
    context_fault fault;
    bool pieces; /* chunks of a group lie as pieces, see context_tensor */
    bool
        any_rank; /* workspace for the calls of attention of every rank, deterministic or not: a check runs them on one */
} context_setup;

enum { CONTEXT_PLACES = 2 }; /* a group is computed from one place while the next one arrives in the other */

struct context {
    context_setup as;
    comm *comm; /* NULL: nothing moves, and results are wrong */
    const context_row *row;
    int rank, rows;    /* rows: C */
    int groups, turns; /* of heads: all, and those that are moved one after another, of an all-to-all a rank's */
    int heads, heads_kv, head_dim; /* of a group */
    int at[2];                     /* the chunks of this rank, as the mask sees them */
    comm_dtype wire;
    size_t element, q_piece, k_piece; /* bytes of an element; elements of a piece of q and of k */
    context_pass now, last[2];        /* of a forward and a backward */
    int64_t passes[2];                /* so far */
    char *carved;                     /* of the workspace, so far */
    void *main, *side;
    device_event *arrived[CONTEXT_PLACES], *first_arrived[CONTEXT_PLACES], *used[CONTEXT_PLACES],
        *computed[CONTEXT_PLACES], *returned[CONTEXT_PLACES];
    char *at_rank[SB_DIRECT_RANKS_MAX]; /* of context_connect; NULL: the communicator moves */
    void *push[SB_DIRECT_RANKS_MAX];    /* streams of copies to each rank */
    device_event *reached, *sent[SB_DIRECT_RANKS_MAX];
    unsigned gives, takes;  /* bits of ranks that these moves go to, and come from */
    bool planning;          /* the pass only asks for workspace */
    bool computing, moving; /* passes run attention; passes run moves */
    bool
        stands_in; /* where moves do not run, what would arrive is a copy of what is here: steps keep their numbers finite */
    size_t carved_bytes[2], op_workspace[2]; /* of forward and backward */
    double received_bytes;                   /* so far */
    sb_status status;                        /* the first that is not SB_OK, */
    char why[256];                           /* and why */
};

/* The groups where nobody says how many: the fewest that are at least 4, or as many as heads of keys. */
int context_groups(int heads_kv);
/* Why the way does not take the shape, in one sentence, or NULL. */
const char *context_problem(const context_setup *x, char *out, size_t bytes);
/* The shape has no problem. The status says whether attention takes the calls. */
context *context_create(const context_setup *x);
void context_free(context *k); /* NULL is fine */
/* Before the first pass; the ranks of c are those of the context. at: NULL, or memory of each rank as it is reached here, into
 * which copy engines then move: CONTEXT_WORDS_BYTES that are 0, and at the same places on all ranks all that passes are given. */
enum { CONTEXT_WORDS_BYTES = 256 };
void context_connect(context *k, comm *c, void *const *at);

size_t context_saved_bytes(const context *k);
size_t context_workspace(const context *k, bool backward);
/* Enqueues a pass on main, and does not wait. False after a failure, see why. */
bool context_run(context *k, const context_pass *p, bool backward, void *main);
/* The moves of the last forward, so often as there are forwards for each backward, and of the last backward, with no compute. */
void context_moves_alone(context *k, void *main);

/* ---- also for checks ---- */

/* One attention of some queries and the keys that they see: q, k, v, o, lse and the gradients of `a` are set. */
void context_attend(context *k, sb_attention a, bool backward);
/* out = a + b, or out = a where b is NULL, over elements of these dtypes. */
typedef struct context_operand {
    sb_dtype dtype;
    const void *data;
    int64_t ld; /* elements from row to row */
} context_operand;
void context_add(context *k, context_operand a, context_operand b, context_operand out, size_t rows, size_t columns);
void *context_piece(const context *k, const context_tensor *t, int group, int which);
float *context_lse(const context *k, int group, int which);
float *context_lse_heads(const context *k, int turn); /* of an all-to-all: (B, heads of a group, S) */
