/* SPDX-License-Identifier: MIT */
/* What the parts of a model give each other; see hops.c. */
#ifndef STEPBENCH_STEP_HOPS_H
#define STEPBENCH_STEP_HOPS_H

#include "common/step/step.h"

void hops_open(step *s, int action); /* what this action and the next one are given may come */
void hops_end(step *s);              /* the step is over: all that was given has been read */
/* The residual stream, or with `backward` its gradient, of the present micro-batch comes from the part before, or behind;
 * or goes to the part behind, or before. */
void hop_receive(step *s, bool backward);
void hop_send(step *s, bool backward);

#endif
