/* SPDX-License-Identifier: MIT */
/* The files of a machine's folder of results, and of those beside it. */
#ifndef STEPBENCH_REPORT_RESULTS_H
#define STEPBENCH_REPORT_RESULTS_H

#include "common/report/table.h"

/* Opens <dir>/<name>; NULL when it is absent or empty. */
table *open_result(const char *dir, const char *name);
/* The same by its path. What old rows do not say of their GPUs is taken from machine.csv beside it. */
table *open_rows(const char *path);
/* Opens <dir>/<name> as it is; NULL when it is absent. `published`: <dir>/../published/<name>, the write-ups' tables. */
csv *open_peer(const char *dir, const char *name);
/* <dir>/peer_<what>.csv, the newest row of each case, without the rows that do not say of which GPU and run they are. NULL when
 * it is absent. */
csv *open_peer_rows(const char *dir, const char *what);
/* Every CSV file of the folder, and of the folders of recordings in it, in the order of names: "profile/totals.csv". */
typedef void results_visit(void *user, const char *name, const csv *file);
void results_each_file(const char *dir, results_visit *visit, void *user);
/* "cuda" if any run of the folder had a GPU, else "cpu": what stands for the machine. Rows of the CPU may lie beside. */
const char *main_device(const char *dir);
csv *open_published(const char *dir, const char *name);
/* A fact of a run from machine.csv (open_peer), "" where it is not known. */
const char *run_value(const csv *machine, const char *run_id, const char *key);
bool cell_is(const csv *c, size_t row, const char *column, const char *want); /* false when there is no such column */

#endif
