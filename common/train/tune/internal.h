/* SPDX-License-Identifier: MIT */
/* What the tuners of a step share: whole steps as a measure (steps.c), and the tuners that need them. */
#ifndef STEPBENCH_TRAIN_TUNE_INTERNAL_H
#define STEPBENCH_TRAIN_TUNE_INTERNAL_H

#include "common/core/stats.h"
#include "common/train/internal.h"
#include "common/train/tune/choices.h"

/* Between begin and end steps change nothing. */
void steps_begin(trainer *t, sb_optimizer_state *kept);
void steps_end(trainer *t, const sb_optimizer_state *kept);
bool steps_capture(trainer *t, device_graph **graph); /* NULL where steps are launched op by op */
bool steps_run(trainer *t, device_graph *graph, double *ms);
/* Steps until the clock has settled; *step_ms is about what a step takes. */
bool steps_warm(trainer *t, device_graph *graph, double *step_ms);
/* Some steps in a row, for a time that suits the length of one; adds those at a settled clock. */
bool steps_block(trainer *t, device_graph *graph, double step_ms, samples *ms);

bool overlap_tune(trainer *t);                  /* the part of trainer_tune that chooses the way of overlap */
bool products_race(trainer *t, choices *known); /* the part that lets rival algorithms race in whole steps */

#endif
