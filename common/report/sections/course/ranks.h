/* SPDX-License-Identifier: MIT */
/* What several problems of data parallelism share: the group of rows that answers, what its check found, and a step
 * against another. Lists of names end with NULL. */
#ifndef STEPBENCH_REPORT_COURSE_RANKS_H
#define STEPBENCH_REPORT_COURSE_RANKS_H

#include "common/report/ddp/ddp.h"
#include "common/report/document.h"

/* How the rows of these variants in <dir>/<file> did in the check that precedes the timing. */
void say_verified(document *doc, const char *dir, const char *file, const char *const *variants);

/* Of the groups that have all these variants, the one that stands for the folder; false where none has. */
bool course_group(const ddp_rows *r, const char *const *variants, size_t *first, size_t *end);

double course_share_pct(const ddp_entry *e); /* of exposed communication in the step */

/* A table of strategies under the title of their group, and its rows. */
void begin_strategies(document *doc, const ddp_entry *e);
void add_strategy(document *doc, const ddp_entry *e);

/* Adds the sentence " The step of flat is 12.27 ms (16.1 %) shorter than that of naive (...)." where both are of one run on
 * the same GPUs, else that they are not compared. */
void add_step_against(document *doc, const ddp_entry *e, const ddp_entry *base);

/* "cuda" if a row that ran, well or not, is of a GPU, else "cpu". */
const char *course_device(const table *t);

#endif
