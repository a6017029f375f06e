/* SPDX-License-Identifier: MIT */
/* Peers beside ours, case by case, for the page of a machine and for the README. A ratio is a peer's time over ours: below 1, the
 * peer is faster. */
#ifndef STEPBENCH_REPORT_COMPARISON_H
#define STEPBENCH_REPORT_COMPARISON_H

#include "common/report/document.h"

typedef struct compared {
    double ratio;      /* of the strongest peer of the case */
    char *who, *where; /* that peer, the case */
} compared;

typedef struct comparison {
    char *what; /* "training step, bf16" */
    size_t n;
    compared *cases;
} comparison;

/* A peer's ratio in a case; NAN is none. Calls for one case, with the same `where`, follow each other. */
void comparison_add(comparison *c, double ratio, const char *who, const char *where);
const compared *comparison_least(const comparison *c); /* NULL: it has no case */
double comparison_median(const comparison *c);         /* NAN likewise */
void comparison_free(comparison *c);                   /* what it holds */

typedef struct comparisons {
    size_t n;
    comparison *all;
} comparisons;

/* A new one at the end, which takes `what`; valid until the next call. */
comparison *comparisons_begin(comparisons *c, char *what);
/* What the sections of the report compare in these folders, each kind of work by the first folder that has a case of it; the
 * one with the least ratio first. */
comparisons comparisons_of(char *const *dirs, size_t count);
void comparisons_write(document *doc, const comparisons *c); /* a table; nothing where there is none */
void comparisons_free(comparisons *c);

#endif
