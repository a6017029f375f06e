/* SPDX-License-Identifier: MIT */
/* What strategies of data parallelism ask of a trainer: sums of gradients, and AdamW over ranges. All enqueue on
 * `stream`; a failure makes the step fail. */
#pragma once

#include "common/train/trainer.h"
#include "kernels/shared/direct_adamw.h"

/* to += from, n gradients; on `stream`. For hooks that add up what they have reduced. */
void trainer_add_grads(trainer *t, void *to, const void *from, int64_t n, void *stream);
/* to = from, n gradients as the backward made them to the dtype of their sums. */
void trainer_cast_grads(trainer *t, void *to, const void *from, int64_t n, void *stream);

/* A new update begins; AdamW on a range whose state starts at state_first of the state held here, with at most
 * max_blocks thread blocks (0: no limit). */
void trainer_update_begin(trainer *t, void *stream);
void trainer_update_range(trainer *t, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream);
/* Like trainer_update_range, on GPUs that reach each other's memory: p says where the range's parameters and gradients
 * lie on each rank; p.update is filled in here. */
void trainer_fused_update(trainer *t, sb_direct_adamw p, int64_t first, int64_t count, int64_t state_first,
                          int max_blocks, void *stream);
/* Everything, on the step's stream, with statistics over all gradients where the options want them. Only from the
 * update hook. */
void trainer_update_all(trainer *t);
/* Whether an update needs statistics over all gradients first (clipping, a loss scale). */
bool trainer_update_wants_all(const trainer *t);
/* The statistics over all gradients where ranks have slices. The L2 norm of a range of gradients, with their loss
 * scale, goes to *norm in device memory, NaN where one is not finite; then the norms of all ranges of all ranks become
 * the norm that the next trainer_update_begin clips to. Only from the update hook. */
void trainer_range_norm(trainer *t, int64_t first, int64_t count, int64_t state_first, float *norm, void *stream);
void trainer_take_norms(trainer *t, const float *norms, int n, void *stream);
/* Only the optimizer, over all parameters, with the gradients that are there: for timing it alone. False with
 * sb_last_message. */
bool trainer_optimizer(trainer *t);
double trainer_optimizer_bytes(const trainer *t); /* its necessary traffic */
