/* SPDX-License-Identifier: MIT */
/* Forward, loss and backward of a part of the model for one micro-batch (transformer.c), and of its ends (ends.c). A walk
 * begins with table_begin and hops_open; in front of each action comes hops_open, behind the last one hops_end. */
#pragma once

#include "common/step/step.h"

/* Takes x from the embedding or from the part before; leaves logits (-1 where the loss is made in chunks), or gives x to
 * the part behind. */
void part_forward(step *s, step_part *p, step_micro *m);
void part_loss(step *s, step_part *p, step_micro *m, bool backward); /* where the head is */
/* `split`: the weight gradients of linear layers wait for part_weights, and what they read lives as long. */
void part_backward(step *s, step_part *p, step_micro *m, bool split);
void part_weights(step *s, step_part *p, step_micro *m);

void embedding_forward(step *s, step_micro *m); /* leaves m->x */
void head_forward(step *s, step_micro *m);      /* from m->x to m->logits; -1 where the loss is made in chunks */
void head_backward(step *s, step_micro *m, arena_slot *dy); /* from m->logits to *dy, which it takes */
void embedding_backward(step *s, arena_slot *dy);           /* from *dy, which it drops */
