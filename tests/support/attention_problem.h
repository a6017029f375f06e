/* SPDX-License-Identifier: MIT */
/* An attention problem for tests: tensors in guarded buffers of any layout, the fp64 reference, and a run of an op that
 * fails the test on a wrong result, an element left unwritten, or a byte touched outside of the outputs. */
#pragma once

#include "common/core/check.h"
#include "kernels/kernels.h"
#include "tests/support/test.h"

typedef enum problem_layout {
    LAYOUT_BHSD,
    LAYOUT_BSHD,
    LAYOUT_PADDED, /* BHSD with unused elements after each row, head and batch entry */
    LAYOUT_COUNT
} problem_layout;

enum { INPUT_Q, INPUT_K, INPUT_V, INPUT_D_O, OUTPUT_O, OUTPUT_DQ, OUTPUT_DK, OUTPUT_DV, TENSOR_COUNT };

typedef struct problem_tensor {
    sb_tensor *view; /* in problem.a */
    int heads, rows, columns;
    unsigned char *bytes, *before; /* the whole buffer with guards, and a copy of it made before a run */
    size_t buffer_bytes;
    double *values; /* (B, heads, rows, D): inputs as stored, outputs of the last run */
    size_t count;
} problem_tensor;

typedef struct problem {
    sb_attention a;
    char name[160];
    problem_tensor tensor[TENSOR_COUNT];
    size_t lse_count;
    double *lse;                    /* (B, H, Sq) of the last run */
    double *expected[TENSOR_COUNT]; /* of the outputs */
    double *expected_lse;
} problem;

/* Takes the shape, dtype, scale and mask of `shape`; draws the inputs from N(0,1). */
problem *problem_create(const sb_attention *shape, problem_layout layout, uint64_t seed);
void problem_free(problem *p);
OWNER(problem, problem_free)
#define OWNED_PROBLEM OWNED_BY(problem)

/* Sets an input from (B, heads, rows, D) floats, rounding to the dtype. */
void problem_set(problem *p, int tensor, const float *values);
/* Fills `expected` and `expected_lse` from the fp64 reference: every row. */
void problem_reference(problem *p);
/* Forward and backward of `op` on poisoned outputs with workspaces of exactly the size it asks for; fails the test when
 * an input or any byte around the outputs changed. */
void problem_run(problem *p, const sb_attention_op *op);
/* Fails the test unless the last run's results equal the expected ones within the dtype's bounds. */
void problem_check(const problem *p, const char *op_name);
/* Fails the test unless the n values, in rows of `row`, are equal within `bound`. */
void expect_close(const double *expected, const double *got, size_t n, size_t row, check_bound bound, const char *what,
                  const char *where);
