/* SPDX-License-Identifier: MIT */
/* What a rank of a mesh has of a model, against one rank that has all of it. */
#pragma once

#include "common/replica/team.h"

/* Within which results of ranks that share layers or a batch agree with one rank's: relative. */
typedef struct share_bounds {
    double loss, grad, param, norm;
} share_bounds;
share_bounds share_bounds_of(const step_options *o);

/* Gradients, or parameters, by index; members of a group of data parallelism together, NULL on others. Caller frees. */
float *share_read(team *x, bool grads);
float *share_read_trainer(trainer *t, bool grads); /* likewise, of one trainer */
/* The gradients whose sums this rank has; NULL: all. Caller frees. */
bool *share_summed(const team *x);
/* The loss of the last step over all ranks whose tokens differ; NAN where this stage has none. All ranks of the job. */
double share_mean_loss(const team *x);
/* Parameters of one rank become such as ranks are read whose state is in slices: without what a master has beside. */
void share_round(const team *x, float *params, size_t n);

typedef struct share_distance {
    double off, size; /* squares */
} share_distance;
double share_relative(share_distance d);
/* How far a rank's part of a tensor is off, where `only` is true (NULL: everywhere); `from` is what sizes are counted from,
 * NULL: zero. Each array is by the index of its tensor. */
share_distance share_distance_of(const param_tensor *part, const float *got, const bool *only, const param_tensor *all,
                                 const float *want, const float *from);
