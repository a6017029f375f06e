/* SPDX-License-Identifier: MIT */
/* The rows of one CSV as the report and the figures see them: the newest row of each case, in the order of the
 * parameters, and selections of them.
 *
 * A case is bench, variant, device and the parameters. The parameters are the columns between `reason` and the first
 * measured one, which ends in _ms, _us, _s, _bytes, _gib, _gb_s, _tflops, _pct or _mhz. A file without `reason` (the
 * times of PyTorch) has its parameters from the first column on. */
#ifndef STEPBENCH_REPORT_TABLE_H
#define STEPBENCH_REPORT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/core/csv.h"

#define NO_ROW ((size_t)-1)

typedef struct table {
    csv *file;
    bool owner; /* of file; a selection shares it */
    size_t n;
    size_t *rows;               /* [n] rows of file */
    int first_param, end_param; /* columns of file */
    struct {
        size_t n;     /* rows that it was found out for */
        char *params; /* [end_param - first_param] whether all rows have one value; NULL: not yet */
    } * alike;
    char **run_of; /* [rows of file] which run on which GPU; NULL: not known (results.h) */
} table;

/* NULL when there is no such file or it has no rows. Columns that were renamed go by their new names. */
table *table_open(const char *path);
void table_free(table *t);
void table_rename_columns(csv *file);                     /* old names of columns, and of values, become the new ones */
void table_params(const csv *file, int *first, int *end); /* the columns of the parameters: first <= c < end */

/* Rows of t where each column has the value; `...` is column, value pairs ended by NULL. */
table *table_where(const table *t, ...) __attribute__((sentinel));
table *table_where_pairs(const table *t, size_t pairs, const char *const *columns, const char *const *values);
size_t table_find(const table *t, ...) __attribute__((sentinel));            /* the first such row of t, else NO_ROW */
table *table_without(const table *t, const char *column, const char *value); /* the rows that do not have the value */

/* Whether a row has the value in each column, or nothing there: a variant without such an option, a file of the time before it.
 * `pairs` of column and value end with NULL. */
bool table_agrees(const table *t, size_t row, const char *const (*pairs)[2]);
void table_keep_agreeing(table *t, const char *const (*pairs)[2]); /* leaves out the other rows */
/* Leaves out the rows of attention with a sliding window, packed documents or values of another width; what compares plain shapes
 * does not want them. t may be NULL. */
void table_keep_plain_attention(table *t);
/* The largest group of rows that differ in nothing but the axes (names ended by NULL) and the variant, and with
 * `rest` given, what is left. */
table *table_main_slice(const table *t, const char *const *axes, table **rest);

const char *table_text(const table *t, size_t row, const char *column); /* "" when there is none */
double table_real(const table *t, size_t row, const char *column);      /* NAN when there is none */

typedef struct values {
    size_t n;
    const char **v; /* numbers in their order, words in the order of the rows */
} values;
values table_values(const table *t, const char *column);
void values_free(values *v);
/* The rows of each of the values, which are those of the column or some of them: [v->n], each to be freed, as is the list. */
table **table_split(const table *t, const char *column, const values *v);

/* "batch 1, 1 head, causal": the parameters, without the axes, that all rows share. Caller frees. */
char *table_shape(const table *t, const char *const *axes);
/* "h200-x1, NVIDIA H200, 2026-11-21" of the rows. Caller frees. */
char *table_caption(const table *t);
/* "flash seq=65536 head_dim=16": variant and parameters of a row, without what is empty or alike in all of t. Caller
 * frees. */
char *table_case(const table *t, size_t row);

/* Whether the row is of a size of model with another dimension than its own (--d-model, --layers ...). */
bool table_is_custom(const table *t, size_t row);
/* Whether the middle 80 % of the samples of two steps (90 % of ranks' steps) meet: neither is certainly the longer one. */
bool table_steps_meet(const table *t, size_t a, size_t b);
/* Whether a ratio of two rows may be formed: they are of one run on one GPU. Rows of the time before there was a column
 * campaign do not name their run; they are of one commit then. */
bool table_beside(const table *a, size_t row_a, const table *b, size_t row_b);

bool names_have(const char *const *names, const char *name); /* names ended by NULL, or NULL */
/* Writes to memory; *text is for the caller to free after fclose. */
FILE *text_stream(char **text, size_t *bytes);

/* Figures are drawn by a shell and by gnuplot: of the texts of a file it leaves what no program takes for anything but text. */
void table_make_drawable(table *t);
void text_make_drawable(char *text);

/* As CSV, with a last column run_of: alike in rows that may stand in a ratio. False with errno set. */
bool table_write(const table *t, const char *path);

#endif
