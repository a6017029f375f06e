/* SPDX-License-Identifier: MIT */
/* Rows of a trace in chrome's format, and its text. */
#pragma once

#include <stdio.h>

#include "common/record/record.h"

enum { ANY_STREAM = -1 };
typedef struct chrome_row { /* a thread of the trace */
    record_lane lane;
    int stream; /* ANY_STREAM: many */
    int number; /* of those alike, from 0 */
    long long end_ns;
} chrome_row;
/* The row of each span of a list by start, and in *rows all of them; caller frees both. */
int *chrome_place(const record_span *s, size_t n, chrome_row **rows, int *row_count);
int chrome_thread(int row_index); /* from 1: some readers take 0 for an idle task */
long long chrome_ns(double us);   /* to which times are rounded */
/* Metadata of the rank's process and of its rows, without the comma after it. */
void chrome_put_names(FILE *f, const char *label, int rank, const chrome_row *rows, int n);
