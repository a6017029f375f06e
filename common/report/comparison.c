/* SPDX-License-Identifier: MIT */
/* Peers beside ours; see comparison.h. */
#include "common/report/comparison.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

/* A peer that is faster by less is as fast: times differ by so much from one run to the next. */
static const double AS_FAST = 0.98;

void comparison_add(comparison *c, double ratio, const char *who, const char *where)
{
    if (!isfinite(ratio))
        return;
    compared *last = c->n ? &c->cases[c->n - 1] : NULL;
    if (!last || strcmp(last->where, where) != 0) {
        c->cases = xrealloc(c->cases, (c->n + 1) * sizeof *c->cases);
        last = &c->cases[c->n++];
        *last = (compared){INFINITY, NULL, xstrdup(where)};
    }
    if (ratio < last->ratio) {
        free(last->who);
        last->ratio = ratio, last->who = xstrdup(who);
    }
}

const compared *comparison_least(const comparison *c)
{
    const compared *least = NULL;
    for (size_t i = 0; i < c->n; i++)
        if (!least || c->cases[i].ratio < least->ratio)
            least = &c->cases[i];
    return least;
}

static int by_ratio(const void *a, const void *b)
{
    const double x = ((const compared *)a)->ratio, y = ((const compared *)b)->ratio;
    return (x > y) - (x < y);
}

/* Shallow, the least ratio first; caller frees the list alone. */
static compared *in_order(const comparison *c)
{
    compared *cases = xmalloc(c->n * sizeof *cases);
    memcpy(cases, c->cases, c->n * sizeof *cases);
    qsort(cases, c->n, sizeof *cases, by_ratio);
    return cases;
}

double comparison_median(const comparison *c)
{
    if (!c->n)
        return NAN;
    compared *cases = in_order(c);
    const double median = (cases[(c->n - 1) / 2].ratio + cases[c->n / 2].ratio) / 2;
    free(cases);
    return median;
}

void comparison_free(comparison *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->cases[i].who);
        free(c->cases[i].where);
    }
    free(c->cases);
    free(c->what);
    *c = (comparison){0};
}

/* ---- all of them ---- */

comparison *comparisons_begin(comparisons *c, char *what)
{
    c->all = xrealloc(c->all, (c->n + 1) * sizeof *c->all);
    comparison *last = &c->all[c->n++];
    *last = (comparison){.what = what};
    return last;
}

static bool has(const comparisons *c, size_t end, const char *what)
{
    for (size_t i = 0; i < end; i++)
        if (strcmp(c->all[i].what, what) == 0)
            return true;
    return false;
}

static int by_least(const void *a, const void *b)
{
    return by_ratio(comparison_least(a), comparison_least(b));
}

comparisons comparisons_of(char *const *dirs, size_t count)
{
    comparisons c = {0};
    for (size_t d = 0; d < count; d++) {
        const size_t before = c.n;
        for (const report_section *const *s = report_sections; *s; s++)
            if ((*s)->compare)
                (*s)->compare(&c, dirs[d]);
        size_t kept = before;
        for (size_t i = before; i < c.n; i++)
            if (c.all[i].n && !has(&c, before, c.all[i].what))
                c.all[kept++] = c.all[i];
            else
                comparison_free(&c.all[i]);
        c.n = kept;
    }
    if (c.n)
        qsort(c.all, c.n, sizeof *c.all, by_least);
    return c;
}

static void write_row(document *doc, const comparison *c)
{
    compared *cases = in_order(c);
    doc_row(doc, c->what, NULL);
    doc_cell(doc, "%zu", c->n);
    doc_cells(doc, number(cases[0].ratio), cases[0].who, cases[0].where, number(comparison_median(c)), NULL);
    if (c->n < 2 || !(cases[1].ratio < AS_FAST))
        doc_blank(doc);
    else
        doc_cell(doc, "%s (%s)", number(cases[1].ratio), cases[1].where);
    for (size_t i = 2; i < c->n && cases[i].ratio < AS_FAST; i++)
        doc_more(doc, "; %s (%s)", number(cases[i].ratio), cases[i].where);
    free(cases);
}

void comparisons_write(document *doc, const comparisons *c)
{
    if (!c->n)
        return;
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "work", NULL);
    doc_columns(doc, DOC_NUMBER, "cases", "least", NULL);
    doc_columns(doc, DOC_TEXT, "peer", "case", NULL);
    doc_columns(doc, DOC_NUMBER, "median", NULL);
    doc_column(doc, DOC_TEXT, "also below %.2f", AS_FAST);
    for (size_t i = 0; i < c->n; i++)
        write_row(doc, &c->all[i]);
}

void comparisons_free(comparisons *c)
{
    for (size_t i = 0; i < c->n; i++)
        comparison_free(&c->all[i]);
    free(c->all);
    *c = (comparisons){0};
}
