/* SPDX-License-Identifier: MIT */
/* What else becomes of a row when it is measured: a line on stdout, of JSON (--json) or CSV (--csv -), and its ratio to a
 * baseline (--baseline). */
#pragma once

#include <stdio.h>

#include "common/options/options.h"

typedef struct row_output {
    const options *o;
    FILE *rows;               /* takes rows as JSON or CSV; NULL: nothing does */
    bool begun;               /* the header of the CSV is written */
    char *baseline, *machine; /* CSV of the baseline, machine.csv of this run; baseline NULL: there is none */
} row_output;

/* Ends the program with a sentence when the baseline has no rows of this bench. */
void row_output_check(const options *o);
/* `rows` takes rows as JSON or CSV, or is NULL; `csv` is the file of this run's rows, or NULL. */
row_output row_output_begin(const options *o, FILE *rows, const char *csv);
void row_output_write(void *output, const char *header, const char *line); /* rows_info.written */
void row_output_end(row_output *out);
