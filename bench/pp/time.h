/* SPDX-License-Identifier: MIT */
/* Timing of a case, and the file that shows when each action ran. */
#pragma once

#include "bench/pp/case.h"

/* Cuts the model, times it, and fills the row. */
void pp_time(pp_case *k);

/* Spans of a step, in milliseconds from the barrier in front of it: (ranks, 2, actions); NAN: an action has none. */
typedef struct pp_spans {
    const pipeline_table *table;
    const double *begun_ended;
} pp_spans;
/* Writes pipeline/pp_....csv beside the rows, on rank 0, and its name to the row: the predicted strip and the recorded one. */
void pp_timeline(pp_case *k, const pp_spans *recorded, const pipeline_costs *costs);
