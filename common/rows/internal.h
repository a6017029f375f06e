/* SPDX-License-Identifier: MIT */
/* What the files of this room share; no other file includes it. */
#pragma once

#include "common/rows/rows.h"

typedef struct kept_row { /* a finished case found by --resume */
    char *key;
    row_status status;
} kept_row;

struct row_writer {
    const options *o;
    rows_info info;
    bool table_started;
    char run_id[48];
    const char *campaign, *gpu_uuid; /* as rows have them */
    char *header;
    char *run_header, *run_line; /* ",campaign,...", and the values */
    size_t columns;              /* of the bench */
    kept_row *kept;
    size_t kept_n, kept_used, rows, fails;
    size_t missing;                   /* cases without a result, in this run or kept: oom and skip */
    char *first_fail, *first_missing; /* of this run: its case and reason; NULL: none */
};

struct row {
    row_writer *r;
    const bench_case *c;
    char **cells; /* [columns] as CSV text; NULL is missing */
    row_status status;
    char *reason;
    row_conditions conditions;
};

extern const char *const row_status_names[];

char *rows_header(const options *o); /* the header line, without its end. Caller frees. */
/* Fills run_header and run_line; the same for machine.csv. The caller of the latter frees. */
void run_facts_fill(row_writer *r);
char *run_facts_lines(const row_writer *r);
/* Appends `line` (NULL: nothing) to the CSV of these columns; rows_open says what happens to another file there. */
void rows_append(const char *path, const char *header, const char *line);
/* Shows a row in the table on stdout. */
void console_row(const row *w);
