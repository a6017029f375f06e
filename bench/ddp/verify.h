/* SPDX-License-Identifier: MIT */
/* The check of a case before it is timed, on a slice of its model (verify.c); the results that it expects, of the same steps on
 * one rank (reference.c); how far apart the two may be (compare.c). */
#pragma once

#include "bench/ddp/case.h"

/* Fills err_grad and err_param. Returns false after setting the row to `fail`, `skip` or `oom`. Remembers outcomes. */
bool ddp_verify(ddp_case *k);

enum { DDP_CHECK_STEPS = 3 };

typedef struct ddp_reference { /* host memory, elements of the index space */
    int64_t elements;
    double norm;                  /* of the gradients of the first update */
    float *grads;                 /* sums of the first step */
    float *start, *first, *after; /* parameters before, after the first update and after the last; only on rank 0 */
    double
        err_mean; /* of a batch's share in the mean, relative to its gradients in a single process divided by ranks */
} ddp_reference;

/* Each member calls it for itself: the gradients that it updates with are compared on each, the parameters on rank 0
 * alone, since they are the same everywhere. That of the last slice is remembered by its key. NULL with a sentence in
 * why. */
const ddp_reference *ddp_reference_of(ddp_case *k, const step_options *slice, const char *key, char *why,
                                      size_t why_bytes);
/* Micro-batches that the reference adds up within one step, as the ranks of the case do. */
int ddp_reference_micros(const ddp_case *k, const step_options *slice);
double ddp_grad_norm(trainer *t); /* of the last update, where it wants to know */

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
