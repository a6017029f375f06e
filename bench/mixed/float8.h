/* SPDX-License-Identifier: MIT */
/* One product of bench_mixed_precision's float8: its operands in bf16 and as codes, and the calls that are checked and timed. */
#pragma once

#include "bench/mixed/mixed.h"
#include "common/model/float8.h"

/* (rows, k) in bf16, and in float8 its copies and scales; the second operand has no transposed copy. */
typedef struct float8_side {
    int rows, k;
    float8_operand as;
    void *x, *codes, *codes_t;
    float *scales, *scales_t;
    uint32_t *of_all, *of_rows, *of_columns, *counts;
} float8_side;

typedef struct float8_case {
    mixed *m;
    const float8_product *product; /* NULL: in bf16 */
    const char *values;
    int rows, columns, k; /* D is (rows, columns) */
    float8_side a, b;
    void *d; /* bf16 */
    void *workspace;
    size_t workspace_bytes;
    sb_matmul call; /* the product as it is timed */
} float8_case;

/* float8_check.c: casts and the product against the CPU's ops and double. Fills the error columns; false: the row says why. */
bool float8_check(float8_case *f);
