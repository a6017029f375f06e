/* SPDX-License-Identifier: MIT */
/* One attention problem on the device: its tensors, and one forward and backward over them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/formulas/attention.h"
#include "common/session/session.h"
#include "kernels/kernels.h"

typedef struct attention_context { /* session.user */
    const sb_kernels *kernels;
    sb_context *ctx;
} attention_context;

typedef struct attention_problem {
    sb_attention shape;  /* without tensors; the borders of documents are in host memory */
    const char *op;      /* what computes it; NULL: the case's variant */
    bool seq_first;      /* layout (B, S, H, D) instead of (B, H, S, D) */
    bool random_lengths; /* of shape.documents; else equal ones */
} attention_problem;

typedef struct attention_case {
    session *s;
    row *w;
    attention_problem problem;
    char key[512]; /* the case without its variant: variants of one case see the same data */
    uint64_t seed; /* of that data */
    const sb_attention_op *op;
    sb_attention a;
    size_t before_backward_bytes;         /* held after forward: inputs, outputs, lse, saved */
    size_t saved_bytes;                   /* of that, what forward keeps for backward beside inputs, outputs and lse */
    size_t peak_bytes;                    /* of one forward and backward; of forward with a.forward_only */
    sb_status last;                       /* of the timed calls */
    double err_o, err_dq, err_dk, err_dv; /* relative L2 against fp64 over the checked rows; NAN with --check 0 */
} attention_case;

attention_context *attention_context_of(const attention_case *ac);
/* Columns of one of the case's tensors: those of v have their own number, and so have o, d_o and dv. */
int attention_columns(const attention_case *ac, const sb_tensor *t);
/* Describes the problem to the library; an op that has no backward for it gets a.forward_only, and the row's reason
 * says why. False after setting the row's status: the backend lacks the variant, or refuses the problem. */
bool attention_describe(attention_case *ac, session *s, const bench_case *c, row *w, const attention_problem *problem);
/* Allocates in the order of a training step and runs it once, so that the memory columns are those of a step: the
 * backward's tensors do not exist before forward is done. False after setting the row's status, or without memory. */
bool attention_step(attention_case *ac);

sb_status attention_case_run(attention_case *ac, bool backward);
double attention_element(sb_dtype dtype, const void *data, size_t i); /* of a tensor in host memory */
/* Replaces the op's workspace by one of `bytes`; false when there is no memory. */
bool attention_workspace(attention_case *ac, size_t bytes);

/* For --dry-run: the tensors of a case and the S x S matrices of the variants that keep them; no smaller workspaces. */
double attention_estimate_bytes(const attention_problem *problem, const char *variant);

/* Compares o, lse, dq, dk and dv (o and lse with a.forward_only) of a case whose step has run. Sets the case's errors;
 * false when one is out of bounds (the row is `fail`) or the oracle had no memory. */
bool attention_verify(attention_case *ac);

/* Begins of n documents that share `total` tokens, and the end (n + 1): of lengths that differ by one at most, or between random
 * borders, each of which is equally likely anywhere, so that some documents are short and a few long. The same for the same seed
 * and stream. The caller frees it. */
int *documents_draw(int n, int total, bool random, uint64_t seed, uint32_t stream);
