/* SPDX-License-Identifier: MIT */
/* The rows of one side, grouped by case; see internal.h. */
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/compare/internal.h"
#include "common/compare/params.h"

/* A parameter that the other side lacks had its plain value there: with another one a case is not the same. */
static char *key_of(const side *s, size_t row, const csv *other)
{
    char *text;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    fprintf(out, "%s\t%s", side_cell(s, row, "bench"), side_cell(s, row, "variant"));
    int first, end;
    params_of(s->file, &first, &end);
    for (int c = first; c < end; c++) {
        const char *name = s->file->header[c], *value = s->file->cells[row * s->file->columns + (size_t)c];
        if (csv_column(other, name) >= 0 || param_departs(name, value))
            fprintf(out, " %s=%s", name, value);
    }
    fclose(out);
    return text;
}

static int by_key(const void *a, const void *b, void *keys)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    const int order = strcmp(((char **)keys)[x], ((char **)keys)[y]);
    return order ? order : (x > y) - (x < y);
}

static bool same_params(const csv *file, size_t a, size_t b)
{
    int first, end;
    params_of(file, &first, &end);
    for (int c = first; c < end; c++)
        if (strcmp(file->cells[a * file->columns + (size_t)c], file->cells[b * file->columns + (size_t)c]) != 0)
            return false;
    return true;
}

static bool same_cells(const side *s, size_t a, size_t b, const char *column)
{
    return strcmp(side_cell(s, a, column), side_cell(s, b, column)) == 0;
}

/* Whether runs may stand for each other. */
static bool same_build(const side *s, size_t a, size_t b)
{
    static const char *const columns[] = {"commit", "dirty", "machine"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (!same_cells(s, a, b, columns[i]))
            return false;
    OWNED char *why = conditions_differ(s, a, s, b, "");
    return !why;
}

/* rows[0..n) have one key, in the order of the file, in which newer rows are below older ones. */
static group group_of(const side *s, const size_t *rows, size_t n)
{
    group g = {.key = s->keys[rows[0]], .newest = rows[0], .rows = xmalloc(n * sizeof *g.rows)};
    for (size_t i = 1; i < n; i++) {
        g.ambiguous = g.ambiguous || !same_params(s->file, rows[i], g.newest);
        if (strcmp(side_cell(s, rows[i], "utc"), side_cell(s, g.newest, "utc")) >= 0)
            g.newest = rows[i];
    }
    for (size_t i = 0; i < n; i++) {
        size_t k = 0; /* of a run that measured the case twice, the last row stands */
        while (k < g.runs && !same_cells(s, g.rows[k], rows[i], "run_id"))
            k++;
        if (rows[i] == g.newest ||
            (strcmp(side_cell(s, rows[i], "status"), "ok") == 0 && same_build(s, rows[i], g.newest)))
            g.rows[k] = rows[i];
        else
            continue;
        g.runs += k == g.runs;
    }
    return g;
}

void side_group(side *s, const csv *other)
{
    const size_t rows = s->file->rows;
    OWNED size_t *order = xmalloc(rows * sizeof *order);
    s->keys = xmalloc(rows * sizeof *s->keys);
    s->groups = xmalloc(rows * sizeof *s->groups);
    for (size_t i = 0; i < rows; i++) {
        order[i] = i;
        s->keys[i] = key_of(s, i, other);
    }
    qsort_r(order, rows, sizeof *order, by_key, s->keys);
    for (size_t i = 0, end; i < rows; i = end) {
        for (end = i + 1; end < rows && strcmp(s->keys[order[i]], s->keys[order[end]]) == 0;)
            end++;
        s->groups[s->n++] = group_of(s, order + i, end - i);
    }
}
