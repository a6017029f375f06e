/* SPDX-License-Identifier: MIT */
/* Units of a sharded step; see units.c. Layers are as in params_range. Without sharding these calls do nothing. */
#pragma once

#include "common/step/step.h"

void units_create(step *s);
void units_free(step *s);
void units_note(step *s, bool on);         /* the next walk only tells which units it uses; then off again */
void units_begin(step *s, bool first);     /* no micro-batch is in flight: what is gathered now is for the next ones */
void unit_acquire(step *s, int layer);     /* what main enqueues from here on may read its parameters */
void unit_release(step *s);                /* of the unit acquired last: all that reads them is enqueued */
void unit_grads_begin(step *s, int layer); /* its gradients are made next */
void unit_grads_end(step *s, int layer);   /* they are enqueued */
void unit_made(step *s, int unit);         /* or left to a W; a unit as in streams.h */
void unit_left(step *s, int unit);         /* and that W has enqueued them */
int64_t units_held(const step *s);         /* elements of this rank's slices, with what it has whole */
void units_end(step *s);                   /* those of all units of a part, for a micro-batch */
bool unit_grads_apart(const step *s);      /* they do not lie at the start of the block */
bool unit_ready_whole(const step *s);      /* hooks learn of a unit's gradients when all of them are there */
void *unit_param(const step *s, const param_tensor *p);
char *unit_grad(const step *s, int unit, int64_t element); /* NULL while planning */
/* n gradients of `dtype` become sums, or are added to them. */
void units_sum(step *s, void *to, const void *from, sb_dtype dtype, bool onto, int64_t n, void *stream);
