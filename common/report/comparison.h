/* SPDX-License-Identifier: MIT */
/* Peers beside ours, case by case, for the page of a machine and for the README. A ratio is a peer's time over ours: below 1, the
 * peer is faster. What peer_refusal refuses is named with its reason, and counts nowhere. */
#ifndef STEPBENCH_REPORT_COMPARISON_H
#define STEPBENCH_REPORT_COMPARISON_H

#include "common/report/document.h"

typedef struct peer_ratio {
    double is, low, high; /* low and high: of all rounds; NAN where there was one */
} peer_ratio;

typedef struct compared {
    peer_ratio ratio;  /* of the strongest peer of the case */
    char *who, *where; /* that peer, the case */
} compared;

typedef struct refused {
    const char *why; /* by peer_refusal */
    char *who, *where;
} refused;

typedef struct comparison {
    char *what;          /* "training step, bf16" */
    const char *library; /* which both sides call, so that the ratio is one of two harnesses; NULL: the work is ours */
    size_t n, n_refused;
    compared *cases;
    refused *refused;
} comparison;

typedef enum comparison_verdict { PEER_SLOWER, PEER_SAME, PEER_FASTER } comparison_verdict;

peer_ratio ratio_of_one(double is); /* of one measurement on each side */
/* A peer's ratio in a case; NAN is none. Calls for one case, with the same `where`, follow each other. */
void comparison_add(comparison *c, peer_ratio ratio, const char *who, const char *where);
void comparison_refuse(comparison *c, const char *why, const char *who, const char *where);
const compared *comparison_least(const comparison *c); /* NULL: it has no case */
/* Same: the rounds lie on both sides of 1, or where there was one round, it is within 2 % of 1. */
comparison_verdict comparison_judge(peer_ratio ratio);
void comparison_free(comparison *c); /* what it holds */

typedef struct comparisons {
    size_t n;
    comparison *all;
} comparisons;

/* A new one at the end, which takes `what`; valid until the next call. */
comparison *comparisons_begin(comparisons *c, char *what);
/* What the sections of the report compare in these folders, each kind of work by the first folder that has a case of it; the
 * one with the least ratio first. */
comparisons comparisons_of(char *const *dirs, size_t count);
/* A table of our work, a line of the libraries that both sides call, and what gave no ratio; nothing where there is nothing. */
void comparisons_write(document *doc, const comparisons *c);
void comparisons_free(comparisons *c);

/* "0.95 [0.94, 0.97]", two digits behind the point; valid until 32 further calls of number(). */
const char *ratio_text(peer_ratio ratio);

#endif
