/* SPDX-License-Identifier: MIT */
/* Sections of the report: text with SQL in it, sections/<name>.sql. docs/report.md describes their blocks. */
#ifndef STEPBENCH_REPORT_ENGINE_H
#define STEPBENCH_REPORT_ENGINE_H

#include <sqlite3.h>

#include "common/report/document.h"

typedef struct page {
    sqlite3 *db;
    const char *folder; /* of results, to find its figures */
    document *doc;
    bool lint; /* prepares every statement of every block, whatever the rows */
} page;

/* Writes all sections in their order; those behind 0 that have rows are folded. */
void page_write(const page *p);

#endif
