/* SPDX-License-Identifier: MIT */
/* What must hold after a run; and what the run's numbers say of its loss. */
#pragma once

#include "bench/run/run.h"

typedef struct run_result {
    double loss_first,
        loss_last;     /* mean over ranks: of the first step, of the last tenth of the run (10 steps at least) */
    double entropy[3]; /* of the source for who knows 0, 1 and 2 tokens; NAN: no generated tokens */
    double floor;      /* of a window's mean loss */
    double excess,
        sigma; /* loss - surprise, mean of the last quarter of the steps, and how sure that is; NAN likewise */
    uint64_t checksum;
    int64_t updates;
    double norm, rate; /* of the last update */
} run_result;

/* False after making the row `fail`. */
bool run_check(run *x, run_result *out);
