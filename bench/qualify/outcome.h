/* SPDX-License-Identifier: MIT */
/* What bench_qualify ends with: an exit code that is 0 only when GPUs were found well, and the same as text for a monitor.
 * The text is OpenMetrics 1.0, which Prometheus' older text format reads too: gauges alone, as the textfile collector of its
 * node exporter takes them. The file is replaced as a whole, also when nothing could be measured. */
#pragma once

#include "bench/qualify/qualify.h"

typedef struct outcome {
    int ok, unchecked, missed; /* GPUs by their verdict */
    int parts_ok;              /* measurements that were compared, and well */
    int gpus, expected;        /* that were looked at; --expect, 0: any number */
    char why[512];             /* of the first GPU, or measurement, that was not checked */
} outcome;

/* Counts a verdict: on a GPU, or on one measurement. */
void outcome_count(outcome *o, bool on_gpu, verdict v, const char *why);
/* The exit code of the program, from that of its rows (0, or 77 where every row was skipped); a sentence says why it is not
 * 0. Nothing that was checked is 77; a GPU that is not well, not checked beside others that were, or missing is 4. */
int outcome_code(const outcome *o, int code);

/* The values and verdicts of all GPUs, pairs and groups; caller frees. */
char *outcome_metrics(qualify *q);
/* Writes the file: these metrics (NULL: none), the numbers of GPUs and the exit code. Ends the program when it can't. */
void outcome_write(const char *path, const char *metrics, const outcome *o, int code);
