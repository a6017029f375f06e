/* SPDX-License-Identifier: MIT */
/* How long a pipeline takes: its table, run with given times. A rank runs one action at a time in the table's order, each as
 * soon as what it waits for is there; sending takes no time of a rank. */
#pragma once

#include "common/pipeline/pipeline.h"

typedef struct pipeline_times {
    double makespan; /* from the first start to the last end; NAN: the run stands still */
    double longest;  /* of any rank, from its first start to its last end */
    double busy;     /* mean of the ranks */
    double
        bubble; /* 1 - busy / longest: for equal stages 1 - m (F + B + W) / longest, as the zero-bubble paper counts */
    int peak;   /* most chunks of micro-batches that a rank holds */
} pipeline_times;

/* `starts`: (ranks, count), when each action of the table starts; NULL: nobody asks. */
pipeline_times pipeline_simulate(const pipeline_table *t, const pipeline_costs *costs, double *starts);

/* The same for p equal ranks by the closed form of a schedule, for shapes whose tables are too long: m (F + B + W) and a bubble of
 * p - 1 times F + B + W (gpipe, 1f1b), that over v (interleaved), F + B - W (zb-h1), F + B - 2 W, if positive, and one W over two (zb-v);
 * f, b, w are of all chunks of a rank. */
double pipeline_closed_form(const pipeline_shape *s, double f, double b, double w, double hop);
