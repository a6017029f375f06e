/* SPDX-License-Identifier: MIT */
/* What rows of a bench say beyond the burst: the steady state of --sustain beside it, and energy. */
#ifndef STEPBENCH_REPORT_STEADY_H
#define STEPBENCH_REPORT_STEADY_H

#include "common/report/section.h"

typedef struct steady_part { /* columns of one thing that is timed */
    const char *what;        /* "forward"; "" where the case says it */
    const char *unit;        /* of both times: "ms" */
    const char *burst, *sustained, *sm_mhz, *power_w;
    const char *burst_j, *sustained_j; /* energy of one */
    const char *burst_per_j, *sustained_per_j;
    const char *per_j; /* what these two are: "tokens/J" */
} steady_part;

/* A table of the rows that have a steady state, and one of the others that have an energy; parts end with one without
 * `burst`. Adds nothing where there are none. */
void steady_tables(document *doc, const table *t, const steady_part *parts);

#endif
