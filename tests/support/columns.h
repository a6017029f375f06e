/* SPDX-License-Identifier: MIT */
/* For tests that recompute the columns of a bench from the others of the row. A table has a line for each numeric column:
 * measured, or derived by a formula that the test states for itself. */
#pragma once

#include <stdbool.h>

#include "common/core/csv.h"

typedef enum column_source {
    MEASURED, /* an own reading; its value, where the test happens to know it, else NAN */
    DERIVED,  /* its value is a formula of other columns; NAN where the column must be nan, too */
    SOMETIMES /* the same, but the times of a run decide whether any row has a value */
} column_source;

typedef struct column_rule {
    const char *name; /* of what is measured, and of equal values, several, with blanks between */
    column_source kind;
    double (*value)(const csv *c, size_t row); /* NULL: measured and not known */
    double slack;                              /* absolute, for small differences of large numbers */
} column_rule;

/* A formula of a row: N("step_ms") is a number of it, T("mode") a text, IS("mode", "forward") a comparison. */
#define N(column) csv_real(c, row, column)
#define T(column) csv_cell(c, row, column)
#define IS(column, text) (strcmp(csv_cell(c, row, column), text) == 0)
#define FORMULA(name, ...)                                                                                             \
    static double name(const csv *c, size_t row)                                                                       \
    {                                                                                                                  \
        (void)c, (void)row;                                                                                            \
        return __VA_ARGS__;                                                                                            \
    }

/* Each numeric column of the bench, but for its options and the columns of all benches, has a rule. */
void columns_have_rules(const char *folder, const char *bench, const column_rule *rules);
/* Each row that is ok follows them; others fail the test. Frees c. */
void columns_hold(csv *c, const char *bench, const column_rule *rules);
/* Runs the bench, which must end with 0, and holds its rows to the rules. */
void columns_run(const char *folder, const char *bench, const char *environment, const char *arguments,
                 const column_rule *rules);
/* Each derived column has had a value in columns_hold since the last call. */
void columns_were_seen(const char *bench, const column_rule *rules);

/* The largest of numbers that are divided by blanks: its place, from 0 on. */
int place_of_largest(const char *numbers);
