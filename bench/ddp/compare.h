/* SPDX-License-Identifier: MIT */
/* What the ranks came to in a check against the reference, and how far apart two right results may be: see compare.c. */
#ifndef STEPBENCH_BENCH_DDP_COMPARE_H
#define STEPBENCH_BENCH_DDP_COMPARE_H

#include "bench/ddp/reference.h"

typedef struct ddp_outcome { /* of a check */
    bool ok;
    double err_grad, err_param;
    char reason[320];
} ddp_outcome;

typedef struct ddp_results { /* of a member's check; elements of the index space */
    float *grads;            /* sums of the first step */
    float *first, *after;    /* parameters after the first update and after the last; of rank 0 alone, else NULL */
} ddp_results;

/* Of members. Starts with an outcome that is ok. */
void ddp_compare(const ddp_case *k, const replica *r, const ddp_results *got, const ddp_reference *ref,
                 ddp_outcome *out);

#endif
