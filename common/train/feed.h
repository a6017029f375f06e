/* SPDX-License-Identifier: MIT */
/* What a run of many steps gives a trainer and takes from it. Nothing here waits for the device: it is enqueued on the step's
 * stream, in front of a step or behind it, so that a captured step sees it as well. */
#pragma once

#include "common/train/trainer.h"

/* Update u (from 1) takes the rate rates[u - 1], the last one where there are no more. Also makes room for the losses of so many
 * steps and the norms of so many updates. Once, before the first step; rates may be NULL: the rate stays. False: no memory. */
bool trainer_keep_history(trainer *t, const float *rates, int64_t steps);
/* The next step's tokens, as in trainer_set_tokens, from pinned memory that stays as it is until the copy has run. */
void trainer_stage_tokens(trainer *t, const int32_t *ids, const int32_t *targets);
void trainer_read_tokens(trainer *t, int32_t *ids, int32_t *targets); /* those of the last step; waits */
/* Behind a step: its losses, one for each micro-batch, become those of `step` (from 0). */
void trainer_keep_loss(trainer *t, int64_t step);
/* Losses of `steps` steps, (steps, micro-batches), and norms of as many updates, to pinned memory. An update may run on
 * another stream than the step's: its norm is there when the step after it has been enqueued. Norms are those of gradients
 * before clipping; without clipping or a loss scale nobody computes them, and they are 0. */
void trainer_fetch_history(trainer *t, int64_t first, int64_t steps, float *losses, float *norms);
