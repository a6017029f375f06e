/* SPDX-License-Identifier: MIT */
/* Two folders of results, or two CSV files, case by case: times get a verdict (verdict.h), bytes and counts are equal or
 * not, and what can't be compared is named. A case is a bench, a variant and the parameters. Of each case the newest row
 * counts, together with the other runs of the same commit under the same conditions. Rows of the two sides under other
 * conditions are not compared; nor are cases that only one side has. */
#pragma once

#include <stdio.h>

#include "common/compare/verdict.h"

typedef enum compare_kind {
    COMPARE_TIME,     /* judged */
    COMPARE_CHANGED,  /* bytes or a count that are not equal */
    COMPARE_BROKEN,   /* ok in A; fail or oom in B */
    COMPARE_MENDED,   /* the other way */
    COMPARE_NEW,      /* only in B */
    COMPARE_GONE,     /* only in A */
    COMPARE_UNMATCHED /* in both, but not comparable */
} compare_kind;

typedef struct compare_entry {
    compare_kind kind;
    char *bench, *name; /* name: variant and parameters */
    char *metric;       /* the column; "" where the whole case is meant */
    char *why;          /* of UNMATCHED and BROKEN; else "" */
    double a, b;
    size_t runs_a, runs_b;
    judgement judged;
} compare_entry;

typedef struct comparison {
    size_t n, equal; /* equal: bytes and counts */
    compare_entry *entries;
    double margin;
} comparison;

typedef struct compare_options {
    double margin;      /* ln(1.03) */
    double noise;       /* from run to run, relative; NAN: by device, GPU and time (see compare.c) */
    const char *across; /* those of COMPARE_CONDITIONS that may differ, "gpu,backend"; "" for none */
} compare_options;

/* timer: every column that begins so. nccl: its version, and what was set in its environment. */
#define COMPARE_CONDITIONS "method,device,gpu,backend,hosts,l2,check,timer,driver,cuda_runtime,cublas,nccl"
bool compare_is_condition(const char *word, size_t length);

/* Two CSV files, or two folders: bench_*.csv of each, by name. Dies with exit code 2 when one can't be read. */
comparison *compare_paths(const char *a, const char *b, const compare_options *o);
void comparison_free(comparison *c);

size_t comparison_count(const comparison *c, compare_kind kind);
size_t comparison_judged(const comparison *c, verdict v);
/* BROKEN cases, and SLOWER ones by at least the margin. */
size_t comparison_failures(const comparison *c);

/* One row, as the header and the line of a CSV file, beside the rows of its case in a file of the baseline: the ratio of
 * each time with its interval and verdict on one line, or why there is none. machine.csv is that of the row's run. Rows of
 * the baseline that are from the same run do not count. Caller frees. */
char *compare_row(const char *baseline_csv, const char *row, const char *machine_csv);

const char *compare_word(const compare_entry *e); /* "FASTER", "BROKEN", ... */

/* `names`: what the sides are called. `all`: every measurement, also SAME and UNCLEAR, each on its line. */
typedef void compare_writer(FILE *out, const comparison *c, const char *const names[2], bool all);
compare_writer compare_write_text, compare_write_csv, compare_write_markdown;
