/* SPDX-License-Identifier: MIT */
/* The problems of CS336's assignment 2 ("Systems and Parallelism", the editions of 2025 and 2026) and how a folder's rows
 * answer them: a small table or a few sentences, made from the numbers. What is asked is in the handouts; docs/course.md
 * has the commands. */
#ifndef STEPBENCH_REPORT_COURSE_H
#define STEPBENCH_REPORT_COURSE_H

#include "common/report/section.h"

typedef struct course_problem {
    const char *name;     /* the handout's, with its part: "benchmarking_mixed_precision (a)" */
    const char *editions; /* "2025, 2026" */
    const char *section;  /* the heading under which the report has all of it; "; " between several */
    void (*answer)(document *doc, const char *dir); /* adds nothing where the folder has no rows for it */
} course_problem;

/* In the order of the handouts; each ends with one without a name. */
extern const course_problem course_step[], course_profile[], course_precision[], course_memory[], course_attention[];
extern const course_problem course_communication[], course_ddp[], course_buckets[], course_sharding[];
extern const course_problem course_accounting[], course_leaderboard[];

#endif
