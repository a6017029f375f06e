/* SPDX-License-Identifier: MIT */
/* What the tuners of a step share: whole steps as a measure (steps.c), and the tuners that need them. */
#pragma once

#include "common/core/stats.h"
#include "common/train/internal.h"
#include "common/train/tune/budget.h"
#include "common/train/tune/choices.h"

/* A row that waits for what only whole steps can tell. */
typedef struct tune_wait {
    choices *known;
    bool first, anew; /* as tune_budget takes them */
    double began;     /* host_seconds */
    double step_ms;   /* about what a step takes; 0: not known yet */
} tune_wait;
double tune_left(const trainer *t, const tune_wait *w); /* seconds */

/* Two steps op by op, the first of which loads kernels, unless they have been. */
bool steps_first(trainer *t, tune_wait *w);
/* Between begin and end steps change nothing. */
void steps_begin(trainer *t, sb_optimizer_state *kept);
void steps_end(trainer *t, const sb_optimizer_state *kept);
bool steps_capture(trainer *t, device_graph **graph); /* NULL where steps are launched op by op */
bool steps_run(trainer *t, device_graph *graph, double *ms);
/* Steps until the clock has settled; *step_ms is about what a step takes. */
bool steps_warm(trainer *t, device_graph *graph, double *step_ms);
double steps_warm_s(double step_ms); /* how long that takes */
/* Some steps in a row, for a time that suits the length of one; adds those at a settled clock. It ends early where all are
 * far above best_ms (INFINITY: never). */
bool steps_block(trainer *t, device_graph *graph, double step_ms, double best_ms, samples *ms);

bool overlap_tune(trainer *t, tune_wait *w);  /* the part of trainer_tune that chooses the way of overlap */
bool products_race(trainer *t, tune_wait *w); /* the part that lets rival algorithms race in whole steps */
/* The product with rivals that takes most of a step of step_ms; -1: none is left that could matter. */
int race_next(const step_products *p, double step_ms);
bool race_matters(const sb_matmul *p); /* whether an algorithm's energy can show in the step */
