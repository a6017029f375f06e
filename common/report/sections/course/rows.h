/* SPDX-License-Identifier: MIT */
/* Which rows of a model answer a problem, and in which order. */
#ifndef STEPBENCH_REPORT_COURSE_ROWS_H
#define STEPBENCH_REPORT_COURSE_ROWS_H

#include "common/report/section.h"

/* Rows that went well, with each parameter of a model that no problem varies at its default. A column that an older file
 * lacks was at its default there. */
table *plain_rows(const table *t);
/* The level of fusion that stands for the rest: the CPU has no graphs, and a GPU's kernels alone may be all there is. */
const char *main_level(const table *t);
/* `wanted` where rows have it, else the largest or last value there is; "" without rows. */
const char *value_or_last(const table *t, const char *column, const char *wanted);
/* The sizes of the rows in the order of the models, not of the alphabet. */
values sizes_in_order(const table *t);
/* "1.2 to 3.4", or "1.2" where both read alike. Valid until the next call. */
const char *range_text(double low, double high);

#endif
