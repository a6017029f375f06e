/* SPDX-License-Identifier: MIT */
/* The check of an attention case: rows of its outputs against the fp64 oracle. */
#ifndef STEPBENCH_BENCH_ATTENTION_VERIFY_H
#define STEPBENCH_BENCH_ATTENTION_VERIFY_H

#include "bench/attention/case.h"

/* The oracle's answer for the last case, kept because every variant of a case has the same inputs. */
typedef struct attention_oracle {
    char key[512];
    bool backward; /* has gradients too */
    sb_attention_rows rows;
} attention_oracle;

typedef struct attention_bench { /* session.user */
    const sb_kernels *kernels;
    sb_context *ctx;
    attention_oracle oracle;
} attention_bench;

/* Compares o, lse, dq, dk and dv (o and lse with a.forward_only) of a case whose step has run. Sets the case's errors;
 * false when one is out of bounds (the row is `fail`) or the oracle had no memory. */
bool attention_verify(attention_case *ac);
void attention_oracle_clear(attention_oracle *o);

/* True for SB_OK; else the row gets its status and the reason, after `what` unless that is NULL. */
bool attention_status_ok(attention_case *ac, sb_status status, const char *what);
/* Replaces the op's workspace by one of `bytes`; false when there is no memory. */
bool attention_workspace(attention_case *ac, size_t bytes);

#endif
