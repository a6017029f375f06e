/* SPDX-License-Identifier: MIT */
/* Eager forms of ops; see eager.c. */
#ifndef STEPBENCH_STEP_EAGER_H
#define STEPBENCH_STEP_EAGER_H

#include "common/step/step.h"

void eager_add(step *s, int layer, arena_slot a, arena_slot b, arena_slot out);
void eager_norm_forward(step *s, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd);
void eager_norm_backward(step *s, param_kind kind, int layer, arena_slot x, arena_slot rstd, arena_slot dy,
                         arena_slot d_residual, arena_slot dx, void *dweight);
void eager_swiglu_forward(step *s, int layer, arena_slot gate_up, arena_slot h);
void eager_swiglu_backward(step *s, int layer, arena_slot gate_up, arena_slot dh, arena_slot h);

#endif
