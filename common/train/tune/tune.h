/* SPDX-License-Identifier: MIT */
/* Tuning a trainer before its first step. */
#pragma once

#include "common/train/trainer.h"
#include "common/train/tune/choices.h"

/* Chooses an algorithm for every matrix product of the step: one that is known, else by timing, which is then added to
 * `known` (NULL: nothing is known). A choice that this trainer has made already stays. False with sb_last_message. */
bool trainer_tune_products(trainer *t, choices *known);
/* Like trainer_tune_products, then what only whole steps can tell: with OVERLAP_AUTO the way of overlap, and of large
 * products that were timed in this run the algorithm, raced against its rivals. Before the first step. Parameters,
 * moments and tokens are as before afterwards. */
bool trainer_tune(trainer *t, choices *known);
