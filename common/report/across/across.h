/* SPDX-License-Identifier: MIT */
/* Several folders of results on one page: the figures that the README shows of each bench, side by side, and over the
 * commits that measured them. */
#ifndef STEPBENCH_REPORT_ACROSS_ACROSS_H
#define STEPBENCH_REPORT_ACROSS_ACROSS_H

#include "common/report/section.h"

typedef struct across_folder {
    const char *name, *dir; /* what it is called, and where its CSV files are */
} across_folder;

/* Caller frees. */
document *across_document(const across_folder *folders, size_t n);

/* ---- for the files of this page ---- */

/* One case in all folders: that of the first folder that has the bench. */
typedef struct across_case {
    const readme_bench *bench;
    const across_folder *folders;
    size_t n;
    csv **files;  /* [n], NULL: not there */
    table *first; /* of the folder whose row names the case */
    size_t row;   /* of it */
    char *text;   /* "flash seq=65536" */
} across_case;

/* False when no folder has a row of it that went well; to be closed all the same. */
bool across_case_open(across_case *c, const readme_bench *b, const across_folder *folders, size_t n);
void across_case_close(across_case *c);
size_t across_newest(const across_case *c, size_t f); /* of folder f's rows; NO_ROW where it has none */
/* Whether row r of folder f's file went well and is of this case; with any_ranks also on another number of ranks. */
bool across_is(const across_case *c, size_t f, size_t r, bool any_ranks);
const char *across_what(const readme_bench *b, size_t column); /* "forward"; that before where it stands for the same */

/* Adds what the rows of the case say over commits; nothing when one commit measured it. */
void across_history(document *doc, const across_case *c);

#endif
