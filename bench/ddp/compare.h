/* SPDX-License-Identifier: MIT */
/* Compares the results of a check with the reference; compare.c derives how far apart two right results may be. */
#pragma once

#include "bench/ddp/reference.h"

typedef struct ddp_outcome { /* of a check */
    bool ok;
    double err_grad, err_param;
    char reason[320];
} ddp_outcome;

typedef struct ddp_results { /* of a member's check; elements of the index space */
    float *grads;            /* sums of the first step */
    double norm;             /* of the gradients of the first update, where it wants to know */
    float *first, *after;    /* parameters after the first update and after the last; of rank 0 alone, else NULL */
} ddp_results;

/* Called by members; the outcome is ok so far. */
void ddp_compare(const ddp_case *k, const replica *r, const ddp_results *got, const ddp_reference *ref,
                 ddp_outcome *out);
