/* SPDX-License-Identifier: MIT */
/* One attention case on the host: inputs as stored, and what every op must give for them (fp64). Knows no device. */
#pragma once

#include "tests/gpu/cases.h"

enum { T_Q, T_K, T_V, T_D_O, T_O, T_DQ, T_DK, T_DV, T_COUNT };
static inline bool is_output(int tensor)
{
    return tensor >= T_O;
}
static inline bool is_key_tensor(int tensor)
{
    return tensor == T_K || tensor == T_V || tensor == T_DK || tensor == T_DV;
}
static inline bool is_value_tensor(int tensor)
{
    return tensor == T_V || tensor == T_O || tensor == T_D_O || tensor == T_DV;
}
extern const char *const tensor_names[T_COUNT];

typedef struct problem {
    const test_case *c;
    bool by_cpu; /* are the expected values the CPU's? */
    sb_attention
        a; /* shapes and strides; no pointers but those of documents. forward_only: as the op under test has it */
    struct problem_tensor {
        size_t offset;        /* of the sb_tensor in sb_attention */
        size_t rows, columns; /* B * heads * seq, each of D or Dv elements */
        size_t bytes;         /* of the buffer, gaps of the layout included */
        unsigned char *host;  /* the buffer before a run: gaps and outputs are NaN */
        double *values;       /* (B, heads, seq, columns): inputs as stored, outputs as expected */
        double *terms;        /* (B, heads, seq) of dq and dk: see sb_attention_rows; else NULL */
    } tensor[T_COUNT];
    size_t lse_count;
    double *lse;          /* (B, H, Sq) as expected */
    double largest_score; /* max |scale q . k| */
    double rms[T_COUNT];
} problem;

/* Does the op under test write it? Forward alone has no gradients. */
static inline bool is_written(const problem *p, int tensor)
{
    return p->a.forward_only ? tensor == T_O : is_output(tensor);
}

/* Draws the inputs; no expected values yet. */
problem *problem_create(const test_case *c);
void problem_free(problem *p);
sb_tensor *problem_view(const problem *p, sb_attention *a, int tensor);
/* Byte offset of a row in its buffer, and a row as doubles. */
size_t problem_row_at(const problem *p, int tensor, size_t row);
void problem_read_row(const problem *p, int tensor, const unsigned char *buffer, size_t row, double *out);

/* Asks `k` for every row of o, lse, dq, dk, dv. `a` has the inputs where that backend can read them; `workspace` of
 * k->reference_workspace(.., true) bytes too. Arrays of the sizes in `p`, indexed by tensor, of `terms` dq and dk. False:
 * sb_last_message. */
bool problem_reference(const problem *p, const sb_kernels *k, sb_context *ctx, const sb_attention *a, void *stream,
                       double *const out[T_COUNT], double *const terms[T_COUNT], double *lse);
/* Is the CPU's reference cheap enough to ask? */
bool problem_cpu_affordable(const problem *p);
/* Fills `values` of the outputs and `lse` from the CPU's reference. */
void problem_expect_from_cpu(problem *p);
/* To call when the expected values are there. */
void problem_finish(problem *p);
