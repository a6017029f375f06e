/* SPDX-License-Identifier: MIT */
/* What tests of the training step share that need no framework: what a trainer stands on, its tensors as one array, tokens
 * for it, and how far two such arrays are apart. */
#pragma once

#include "common/train/trainer.h"

typedef struct model_bed { /* what trainers stand on */
    device *dev;
    memory *mem;
    const sb_kernels *kernels;
    sb_context *ctx;
} model_bed;

/* Tensor by tensor in index order, without padding; p->parameters floats; caller frees. */
float *all_params(trainer *t);
float *all_grads(trainer *t);
/* Random ids and targets, from this stream of the seed. */
void draw_tokens(trainer *t, uint64_t seed, uint32_t stream);

double relative_l2(const float *reference, const float *got, int64_t n);
/* relative_l2 of the worst tensor of two arrays as all_params gives. Its index in `which`, which may be NULL and is left
 * alone where no tensor differs. */
double worst_tensor(const params *p, const float *reference, const float *got, int *which);
