/* SPDX-License-Identifier: MIT */
/* The check of a case: this rank's o, lse, dq, dk and dv against the whole sequence on one rank, which was itself verified
 * against the fp64 oracle; and, of ways that merge nothing, against the same parts of it, computed by one rank in the same
 * order, bit for bit. */
#pragma once

#include "bench/cp/case.h"

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
