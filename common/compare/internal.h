/* SPDX-License-Identifier: MIT */
/* The rows of one side of a comparison, grouped by case. */
#pragma once

#include "common/compare/compare.h"
#include "common/compare/params.h"

/* Rows of one case: the newest one, and those with numbers of other runs of its commit. */
typedef struct group {
    const char *key; /* bench, variant, the parameters that both sides have, and those of one side that say something */
    size_t newest;   /* row of the file */
    size_t runs, *rows;
    bool ambiguous; /* differs in a parameter that the other side lacks */
} group;

typedef struct side {
    csv *file, *machine; /* machine.csv beside the file; NULL where there is none */
    size_t n;
    group *groups; /* [n], by key */
    char **keys;   /* [file->rows] */
} side;

/* Takes over what was read of the path. False when there is no such file or it has no rows. `say`: on stderr, what does not
 * count. */
bool side_open(side *s, csv *read, const char *path, bool say);
bool side_parse(side *s, const char *text, const char *machine_csv); /* the same for a text in memory */
void side_group(side *s, const csv *other); /* `other`: the file of the other side, for its parameters */
void side_free(side *s);
const char *side_cell(const side *s, size_t row, const char *column);  /* "" when there is none */
const char *side_machine(const side *s, size_t row, const char *what); /* of the run of that row; "" when not known */

/* The first condition that two rows do not share, as "l2: warm in A, cold in B"; NULL when there is none. `across`: as in
 * compare_options. Caller frees. */
char *conditions_differ(const side *a, size_t row_a, const side *b, size_t row_b, const char *across);

/* The case of b's one row alone; NULL when a has none of it. */
comparison *compare_one(side *a, side *b, const compare_options *o);

/* The columns of times with a spread, in the order of the file; NULL behind the last one. */
typedef struct time_column {
    const char *name;
    char lo[64], hi[64], n[64]; /* columns of spread and count; hi "" for a standard deviation in lo */
    double normal_distance;     /* what lo to hi is for deviation 1 */
} time_column;
bool time_column_of(const csv *file, size_t column, time_column *out);
timed group_timed(const side *s, const group *g, const time_column *c);
