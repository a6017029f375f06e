/* SPDX-License-Identifier: MIT */
/* Which rows of which folder are of one case; see across.h. */
#include "common/report/across/across.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

static bool same_cell(const table *t, size_t row, const csv *file, size_t r, const char *column)
{
    const char *theirs = csv_cell(file, r, column), *ours = table_text(t, row, column);
    return csv_column(file, column) < 0 || csv_column(t->file, column) < 0 || strcmp(theirs, ours) == 0;
}

/* What follows from the number of ranks. */
static bool of_ranks(const char *column)
{
    return strcmp(column, "ranks") == 0 || strcmp(column, "global_batch") == 0;
}

bool across_is(const across_case *c, size_t f, size_t r, bool any_ranks)
{
    static const char *const others[] = {"variant", "device", "l2", "timer_asked"};
    const csv *file = c->files[f];
    bool is = cell_is(file, r, "status", "ok") && !cell_is(file, r, "check", "0");
    for (size_t i = 0; is && i < sizeof others / sizeof *others; i++)
        is = same_cell(c->first, c->row, file, r, others[i]);
    for (int k = c->first->first_param; is && k < c->first->end_param; k++) {
        const char *column = c->first->file->header[k];
        is = (any_ranks && of_ranks(column)) || same_cell(c->first, c->row, file, r, column);
    }
    return is;
}

static bool newer(const csv *file, size_t a, size_t b)
{
    const char *x = csv_cell(file, a, "utc"), *y = csv_cell(file, b, "utc");
    return strcmp(x, y) >= 0;
}

size_t across_newest(const across_case *c, size_t f)
{
    size_t best = NO_ROW;
    for (size_t r = 0; c->files[f] && r < c->files[f]->rows; r++)
        if (across_is(c, f, r, true) && (best == NO_ROW || newer(c->files[f], r, best)))
            best = r;
    return best;
}

bool across_case_open(across_case *c, const readme_bench *b, const across_folder *folders, size_t n)
{
    char *name = xasprintf("%s.csv", b->name);
    *c = (across_case){.bench = b, .folders = folders, .n = n, .files = xcalloc(n, sizeof *c->files), .row = NO_ROW};
    for (size_t f = 0; f < n; f++) {
        c->files[f] = open_peer(folders[f].dir, name);
        if (c->files[f])
            table_rename_columns(c->files[f]);
        table *t = c->first ? NULL : open_result(folders[f].dir, name);
        if (t)
            table_keep_agreeing(t, b->plain);
        const size_t row = t ? readme_row(t, b) : NO_ROW;
        if (row == NO_ROW) {
            table_free(t);
            continue;
        }
        c->first = t;
        c->row = row;
        c->text = table_case(t, row);
    }
    free(name);
    return c->first;
}

void across_case_close(across_case *c)
{
    for (size_t f = 0; f < c->n; f++)
        csv_free(c->files[f]);
    table_free(c->first);
    free(c->files);
    free(c->text);
}

const char *across_what(const readme_bench *b, size_t column)
{
    while (column > 0 && strcmp(b->columns[column].what, "=") == 0)
        column--;
    return *b->columns[column].what ? b->columns[column].what : b->columns[column].column;
}
