/* SPDX-License-Identifier: MIT */
/* Forward, loss and backward of a whole model; see transformer.c. */
#ifndef STEPBENCH_STEP_TRANSFORMER_H
#define STEPBENCH_STEP_TRANSFORMER_H

#include "common/step/step.h"

void transformer_forward(step *s, arena_slot *logits); /* -1 where the loss is made in chunks */
void transformer_loss(step *s, arena_slot logits, bool backward);
void transformer_backward(step *s, arena_slot logits);

#endif
