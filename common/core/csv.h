/* SPDX-License-Identifier: MIT */
/* Reading RFC-4180 CSV with '#' comment lines: used by --resume, the report and the tests. */
#ifndef STEPBENCH_CORE_CSV_H
#define STEPBENCH_CORE_CSV_H

#include <stdbool.h>
#include <stddef.h>

typedef struct csv {
    size_t rows, columns;
    char **header;                 /* [columns] */
    char **cells;                  /* [rows * columns]; a short or torn row is dropped and counted */
    size_t dropped, first_dropped; /* how many, and the line of the file where the first one starts */
    char *text;                    /* what header and cells point into */
} csv;

/* NULL with errno set when the file can't be opened; an empty file gives a csv with 0 columns. */
csv *csv_read(const char *path);
csv *csv_parse(const char *text); /* the same of a text in memory, which is copied */
void csv_free(csv *c);
/* Names the dropped rows of the file, if any, on stderr. */
void csv_warn_dropped(const csv *c, const char *path);
int csv_column(const csv *c, const char *name);                   /* -1 when absent */
const char *csv_cell(const csv *c, size_t row, const char *name); /* NULL when the column is absent */
double csv_real(const csv *c, size_t row, const char *name);      /* NAN when absent, empty or no number */

/* Quotes `text` for a CSV cell into out (RFC 4180) and returns the length it needed. */
size_t csv_quote(const char *text, char *out, size_t out_bytes);

#endif
