/* SPDX-License-Identifier: MIT */
/* Reading RFC-4180 CSV with '#' comment lines: used by --resume, the report and the tests. Lines may end as on any system, and a
 * byte order mark of UTF-8 is passed over. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct csv {
    size_t rows, columns;
    char **header; /* [columns] */
    char **cells;  /* [rows * columns]; a torn line, or one with too few or too many, is dropped and counted */
    size_t dropped, first_dropped; /* how many, and the line of the file where the first one starts */
    const char *problem;           /* why no row of the file counts; NULL: it can be read */
    char *text;                    /* what header and cells point into */
    struct csv *joined;            /* a file that columns were taken from (results.h); NULL: none */
} csv;

/* NULL with errno set when the file can't be opened; an empty file gives a csv with 0 columns. */
csv *csv_read(const char *path);
csv *csv_parse(const char *text); /* the same for a text in memory, which is copied */
void csv_free(csv *c);
/* What the pointer owns is freed where its name ends. */
#define OWNED_CSV __attribute__((cleanup(owned_csv_free)))
static inline void owned_csv_free(csv **c)
{
    csv_free(*c);
}
/* What of the file does not count, as "line 7 is torn and does not count"; NULL when all of it counts. Caller frees. */
char *csv_lost(const csv *c);
void csv_warn_lost(const csv *c, const char *path);                         /* says it on stderr */
int csv_column(const csv *c, const char *name);                             /* -1 when absent */
const char *csv_cell(const csv *c, size_t row, const char *name);           /* "" when the column is absent */
bool csv_is(const csv *c, size_t row, const char *name, const char *value); /* false when the column is absent */
double csv_real(const csv *c, size_t row, const char *name);                /* NAN when absent, empty or no number */

/* `text` as a cell of CSV (RFC 4180). A control character becomes a question mark. Caller frees. */
char *csv_quoted(const char *text);
