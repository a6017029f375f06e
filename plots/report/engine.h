/* SPDX-License-Identifier: MIT */
/* Sections of the report: text with SQL in it, sections/<name>.sql. docs/report.md describes their blocks. */
#pragma once

#include <sqlite3.h>

#include "plots/report/document.h"

typedef struct page {
    sqlite3 *db;
    const char *folder; /* of results, to find its figures */
    document *doc;
    const char *figure;   /* whose @draw it is */
    const char *drawings; /* where @draw puts a figure's data and variables; NULL: nowhere */
    bool lint;            /* prepares every statement of every block, whatever the rows */
} page;

/* The sections in their order up to `last`; those behind 0 that have rows are folded. */
void page_write(const page *p, int last);
enum { PAGE_PEERS = -30, PAGE_FIRST_SCREEN = -20, PAGE_ALL = 1000000 };
/* The blocks of an embedded file that is no section of a machine's page: "across.sql", "figures/roofline.sql". */
void page_use(const page *p, const char *file);
