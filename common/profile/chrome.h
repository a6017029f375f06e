/* SPDX-License-Identifier: MIT */
/* What the two writers of chrome's trace format share. */
#ifndef STEPBENCH_PROFILE_CHROME_H
#define STEPBENCH_PROFILE_CHROME_H

#include <stdio.h>

#include "common/profile/timeline.h"

typedef struct chrome_row { /* a thread of the trace */
    timeline_lane lane;
    int stream; /* ANY_STREAM: many */
    int number; /* of those alike, from 0 */
    long long end_ns;
} chrome_row;
/* The row of each span, and in *rows all of them; caller frees both. */
int *chrome_place(const stream_timeline *t, chrome_row **rows, int *row_count);
int chrome_thread(int row_index); /* from 1: some readers take 0 for an idle task */
void chrome_put_string(FILE *f, const char *text);
/* Metadata of the rank's process and of its rows, without the comma after it. */
void chrome_put_names(FILE *f, const char *label, int rank, const chrome_row *rows, int n);

#endif
