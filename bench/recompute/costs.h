/* SPDX-License-Identifier: MIT */
/* What recomputation costs, measured on a model of the same blocks but few of them, and what follows for one of many. */
#pragma once

#include "common/formulas/recompute_plan.h"
#include "common/session/session.h"
#include "common/train/trainer.h"

typedef struct step_costs {
    recompute_costs again;
    double base_ms, block_ms; /* a step that keeps everything takes base + layers x block */
} step_costs;

/* Steps of at most CALIBRATION_LAYERS blocks with each kind of recomputation: the difference to a step that keeps
 * everything, divided by the blocks. Half as many blocks give base and block. Remembered for the next case of the same
 * shape. False after setting the row's status, or when there is no memory. */
enum { CALIBRATION_LAYERS = 12 };
bool step_costs_measure(session *s, const step_options *o, row *w, step_costs *out);

/* What offloading costs, added to `c`: OFFLOAD_... kinds of blocks that compute `what` again leave for the host. Copies are
 * timed once a session. False after setting the row's status. */
bool step_costs_offload(session *s, const step_options *o, int kinds, recompute what, row *w, step_costs *c);

/* The step of `o`'s model with this schedule. */
double step_costs_predict(const step_costs *c, const recompute_schedule *schedule);
