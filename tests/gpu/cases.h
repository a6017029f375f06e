/* SPDX-License-Identifier: MIT */
/* The attention cases of the GPU test: a chosen subset of shapes x masks x layouts x values, each in every dtype. */
#pragma once

#include "kernels/kernels.h"
#include "tests/gpu/program/dtypes.h"

typedef enum case_layout {
    CASE_BHSD,
    CASE_BSHD,
    CASE_PADDED /* BHSD with unused elements after every row, head and batch entry */
} case_layout;

typedef enum case_values {
    VALUES_NORMAL,     /* N(0,1) */
    VALUES_PEAKED,     /* q and k are 8 N(0,1): nearly one key takes all */
    VALUES_INCREASING, /* scores grow with the key, from -10 to 10: the running maximum changes in every tile */
    VALUES_DECREASING,
    VALUES_OUTLIER,  /* one key scores about 20 */
    VALUES_IDENTICAL /* all keys score the same */
} case_values;

enum { CASE_DOCUMENTS = 8 }; /* at most */

typedef struct test_case {
    char name[192];
    int batch, heads, heads_kv, seq_q, seq_k, head_dim;
    int head_dim_v; /* 0: head_dim */
    sb_dtype dtype;
    bool causal, windowed;
    int window_left, window_right; /* of sb_attention */
    int documents;                 /* packed ones; 0: none. Their begins, and the end: */
    int cu_seqlens_q[CASE_DOCUMENTS + 1], cu_seqlens_k[CASE_DOCUMENTS + 1];
    float scale; /* 0: 1/sqrt(head_dim) */
    case_layout layout;
    case_values values;
    bool repeats; /* also run many times, in the default and the deterministic mode, and compared bit by bit */
    bool small;   /* part of --small */
} test_case;

/* Every case of every dtype; the caller frees it. */
test_case *cases_create(int *n);
