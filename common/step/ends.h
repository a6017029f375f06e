/* SPDX-License-Identifier: MIT */
/* The ends of a model; see ends.c. */
#ifndef STEPBENCH_STEP_ENDS_H
#define STEPBENCH_STEP_ENDS_H

#include "common/step/step.h"

void embedding_forward(step *s, step_micro *m); /* leaves m->x */
void head_forward(step *s, step_micro *m);      /* from m->x to m->logits; -1 where the loss is made in chunks */
void head_backward(step *s, step_micro *m, arena_slot *dy); /* from m->logits to *dy, which it takes */
void embedding_backward(step *s, arena_slot *dy);           /* from *dy, which it drops */

#endif
