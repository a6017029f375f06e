/* SPDX-License-Identifier: MIT */
/* A section of a machine's report, and what sections share. sections/<name>.c is a section and defines section_<name>; the
 * Makefile makes the table of all of them. What helps only one section lies in a folder of its name. */
#ifndef STEPBENCH_REPORT_SECTION_H
#define STEPBENCH_REPORT_SECTION_H

#include "common/report/comparison.h"
#include "common/report/document.h"
#include "common/report/peer.h"
#include "common/report/results.h"

#define MIB 1048576.0
#define GIB 1073741824.0

enum { README_ONLY = 8, README_PLAIN = 6 };

/* A bench in the README's table: the question it answers, and what is shown of its newest row. */
typedef struct readme_bench {
    const char *name;
    int order; /* position in the table */
    const char *question;
    struct readme_column {
        const char *column, *what, *unit; /* unit "bytes" becomes MiB or GiB */
    } columns[6];                         /* those without a number in the row are left out */
    const char *only[README_ONLY][2];     /* columns and values of the row that is shown, the most important first */
    const char
        *plain[README_PLAIN][2]; /* other options by their defaults, then NULL: rows where they differ are left out */
} readme_bench;

/* `dir` is the machine's folder of results. A section whose CSV is not there adds nothing. */
typedef struct report_section {
    int order;                                         /* position in the report; below 0: before what is in short */
    void (*findings)(document *doc, const char *dir);  /* bullets for the top of the report; may be NULL */
    void (*write)(document *doc, const char *dir);     /* the section itself; may be NULL */
    void (*compare)(comparisons *to, const char *dir); /* what peers take for its work; may be NULL */
    const readme_bench *benches;                       /* ended by one without a name; may be NULL */
} report_section;
extern const report_section *const report_sections[]; /* ended by NULL, in no order; from the Makefile */

/* Text of a number, valid until 32 further calls: three digits, "-" for NAN. */
const char *number(double value);
const char *hundredths(double value);                    /* of a ratio: "0.95", and from ten on "12.3" */
const char *number_unit(double value, const char *unit); /* "345 TFLOP/s"; of unit bytes in MiB or GiB */
/* number of a row's column; its status (oom, skip, fail) when the row has no numbers. */
const char *cell_number(const table *t, size_t row, const char *column, double scale);

/* A table with S down and D across; `cell` adds to the text of one cell. */
typedef void grid_cell(document *doc, const table *t, const char *seq, const char *head_dim, const void *context);
void sequence_by_head_dim(document *doc, const table *t, grid_cell *cell, const void *context);

size_t largest(const table *t, const char *column); /* row with the largest finite value, else NO_ROW */
/* Whether scores come before others: by the first of n in which they differ, the larger one first. */
bool comes_before(const double *a, const double *b, size_t n);
/* Rows of an attention bench one below the other, each under its table_case. */
void attention_rows(document *doc, const table *t);

/* The figures whose names begin with `prefix`, where plots/<machine>/ beside results/ has them. */
void figures(document *doc, const char *dir, const char *prefix);

/* The benches of all sections in their order; caller frees the list. */
const readme_bench **readme_benches(size_t *n);
/* The row of a bench that the README shows: of those that went well and have the most of `only`, the newest. NO_ROW: none
 * went well. */
size_t readme_row(const table *t, const readme_bench *b);

/* Rewrites the lines between the markers of `readme`'s two tables, each bench and each comparison by the first folder that has
 * rows of it; false after a message. */
bool readme_update(char *const *dirs, size_t count, const char *readme);

#endif
