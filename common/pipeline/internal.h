/* SPDX-License-Identifier: MIT */
/* What the generators, the validator and the simulator share: which moments are known, and what an action waits for. */
#pragma once

#include "common/pipeline/pipeline.h"

/* When each action of each stage ended; NAN: it has not run. (kinds, stages, micros) */
typedef struct pipeline_moments {
    const pipeline_shape *shape;
    const pipeline_costs *costs;
    double *end;
} pipeline_moments;

void pipeline_moments_create(pipeline_moments *m, const pipeline_shape *s, const pipeline_costs *costs);
void pipeline_moments_free(pipeline_moments *m);
double *pipeline_end(const pipeline_moments *m, pipeline_kind kind, int stage, int micro);
/* When everything that rank's action waits for is there, hops included, not before `from`; NAN: that is not known yet. */
double pipeline_ready(const pipeline_moments *m, int rank, pipeline_action a, double from);
/* When what an action makes for others has left, if it ends at `end`. */
double pipeline_given(const pipeline_moments *m, int rank, pipeline_action a, double end);

/* Fills a table of a schedule that goes there and back. */
void pipeline_generate_v(pipeline_table *t, const pipeline_costs *costs);
