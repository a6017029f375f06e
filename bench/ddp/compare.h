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

/* Of members. Gradients of the first step; on rank 0 parameters after all steps, else NULL. */
void ddp_compare(const ddp_case *k, const replica *r, const float *grads, const float *values, const ddp_reference *ref,
                 ddp_outcome *out);

#endif
