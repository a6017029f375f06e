/* SPDX-License-Identifier: MIT */
/* The models of CS336's tests of data parallelism, in plain C and fp32: linear layers 10-10-50-5 with ReLU between
 * them, where the second layer has a bias that is not trained, and beside them a vector of 2 that is not; or, tied,
 * 10-10-50-10-50-5 where the fourth matrix is the second. What is not trained has no index. The loss is the mean
 * squared error over all samples, so that gradients of parts of them are to be added. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/parallel/buckets.h"

enum { TOY_LAYERS = 5, TOY_TENSORS = 4, TOY_SAMPLES = 20, TOY_IN = 10, TOY_OUT = 5, TOY_WIDEST = 50 };

typedef struct toy_model {
    bool tied;
    int layers, tensors;
    int widths[TOY_LAYERS + 1];
    int tensor[TOY_LAYERS];          /* of each layer */
    int64_t starts[TOY_TENSORS + 1]; /* multiples of 64, the last one of the granularity */
    int64_t counts[TOY_TENSORS];
    float *param, *grad; /* over the index space */
    float *m, *v;        /* moments, for toy_adamw, of the caller's size */
    int steps;           /* that adamw has begun */
    float bias[TOY_WIDEST], fixed[2];
} toy_model;

/* Who wants to know; any may be NULL. */
typedef struct toy_hooks {
    void *user;
    void (*need)(void *user, int64_t first, int64_t count);  /* before a layer of forward reads its matrix */
    void (*ready)(void *user, int64_t first, int64_t count); /* in index order */
} toy_hooks;

/* Weights are those of a seed. */
toy_model *toy_create(bool tied, int seed, int64_t granularity, int64_t state_elements);
void toy_free(toy_model *t);
index_space toy_space(const toy_model *t);
/* Forward and backward of samples [first, end) of TOY_SAMPLES: their part of the gradients. */
void toy_step(toy_model *t, int first, int end, const toy_hooks *hooks);
/* On [first, first + count), whose state starts at state_first. */
void toy_sgd(toy_model *t, int64_t first, int64_t count);                        /* rate 0.1 */
void toy_adamw(toy_model *t, int64_t first, int64_t count, int64_t state_first); /* 0.1, decay 0.1, 0.9, 0.999, 1e-8 */
