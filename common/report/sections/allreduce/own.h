/* SPDX-License-Identifier: MIT */
/* Our own all-reduces beside the library's, of all rows of bench_allreduce; nothing is added when there are none.
 * `machine` (machine.csv, or NULL) says how a run was set up. */
#ifndef STEPBENCH_REPORT_SECTIONS_ALLREDUCE_OWN_H
#define STEPBENCH_REPORT_SECTIONS_ALLREDUCE_OWN_H

#include "common/report/document.h"
#include "common/report/table.h"

void allreduce_own_findings(document *doc, const table *t, const csv *machine);
void allreduce_own(document *doc, const table *t, const csv *machine, const char *dtype);

#endif
