/* SPDX-License-Identifier: MIT */
/* The figures of a case over the commits that measured it; see across.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/report/across/across.h"

typedef struct point { /* a commit's runs in a folder */
    size_t folder, runs, *rows;
} point;

static const char *text_of(const across_case *c, const point *p, size_t i, const char *column)
{
    return csv_cell(c->files[p->folder], p->rows[i], column);
}

/* How much of it a page shows: seven digits of a hash that stands alone, else all. */
static int shown_of(const char *commit)
{
    return strpbrk(commit, "+-") ? (int)strlen(commit) : 7;
}

static point *find(point *points, size_t n, const across_case *c, size_t f, size_t r)
{
    for (size_t i = 0; i < n; i++)
        if (points[i].folder == f && cell_is(c->files[f], r, "commit", text_of(c, &points[i], 0, "commit")))
            return &points[i];
    return NULL;
}

static int by_time(const void *a, const void *b, void *user)
{
    const across_case *c = user;
    return strcmp(text_of(c, a, 0, "utc"), text_of(c, b, 0, "utc"));
}

/* In the order of time; caller frees. */
static point *points_of(const across_case *c, size_t *n)
{
    point *points = NULL;
    *n = 0;
    for (size_t f = 0; f < c->n; f++)
        for (size_t r = 0; c->files[f] && r < c->files[f]->rows; r++) {
            if (!across_is(c, f, r, false))
                continue;
            point *p = find(points, *n, c, f, r);
            if (!p) {
                points = xrealloc(points, (*n + 1) * sizeof *points);
                p = &points[(*n)++];
                *p = (point){.folder = f};
            }
            p->rows = xrealloc(p->rows, (p->runs + 1) * sizeof *p->rows);
            p->rows[p->runs++] = r;
        }
    if (*n)
        qsort_r(points, *n, sizeof *points, by_time, (void *)c);
    return points;
}

static double value_of(const across_case *c, const point *p, const char *column)
{
    samples x = {0};
    for (size_t i = 0; i < p->runs; i++) {
        const double v = csv_real(c->files[p->folder], p->rows[i], column);
        if (isfinite(v))
            samples_add(&x, v);
    }
    const double median = stats_of(&x).median;
    samples_free(&x);
    return median;
}

/* From the first commit that has a number to the last one. */
static void add_sentence(document *doc, const across_case *c, const point *points, size_t n, size_t column)
{
    const struct readme_column *shown = &c->bench->columns[column];
    const point *first = NULL, *last = NULL;
    for (size_t i = 0; i < n; i++)
        if (isfinite(value_of(c, &points[i], shown->column))) {
            first = first ? first : &points[i];
            last = &points[i];
        }
    if (!first || first == last)
        return;
    const double a = value_of(c, first, shown->column), b = value_of(c, last, shown->column), pct = 100 * (b / a - 1);
    const char *from = text_of(c, first, 0, "commit"), *to = text_of(c, last, 0, "commit");
    doc_bullet(doc, "%s: %s at %.*s, %s at %.*s", across_what(c->bench, column), number_unit(a, shown->unit),
               shown_of(from), from, number_unit(b, shown->unit), shown_of(to), to);
    if (isfinite(pct) && fabs(pct) >= 0.05)
        doc_more(doc, ", %.1f %% %s.", fabs(pct), pct > 0 ? "more" : "less");
    else
        doc_more(doc, ", the same.");
}

void across_history(document *doc, const across_case *c)
{
    size_t n;
    point *points = points_of(c, &n);
    if (n > 1) {
        doc_heading(doc, 3, "%s", c->bench->name);
        doc_paragraph(doc, "%s", code("%s", c->text));
        for (size_t k = 0; c->bench->columns[k].column; k++)
            add_sentence(doc, c, points, n, k);
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "date", "commit", "folder", NULL);
        doc_columns(doc, DOC_NUMBER, "runs", NULL);
        for (size_t k = 0; c->bench->columns[k].column; k++)
            doc_column(doc, DOC_NUMBER, "%s", across_what(c->bench, k));
        for (size_t i = 0; i < n; i++) {
            const char *commit = text_of(c, &points[i], 0, "commit");
            doc_row(doc, NULL);
            doc_cell(doc, "%.10s", text_of(c, &points[i], 0, "utc"));
            doc_cell(doc, "%s", code("%.*s", shown_of(commit), commit));
            doc_cell(doc, "%s", c->folders[points[i].folder].name);
            doc_cell(doc, "%zu", points[i].runs);
            for (size_t k = 0; c->bench->columns[k].column; k++)
                doc_cell(doc, "%s",
                         number_unit(value_of(c, &points[i], c->bench->columns[k].column), c->bench->columns[k].unit));
        }
    }
    for (size_t i = 0; i < n; i++)
        free(points[i].rows);
    free(points);
}
