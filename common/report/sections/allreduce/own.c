/* SPDX-License-Identifier: MIT */
/* The all-reduces of our own in bench_allreduce, one-shot and two-shot, beside the library's of the same case. */
#include "common/report/sections/allreduce/own.h"

#include <math.h>
#include <string.h>

#include "common/report/section.h"

static const char *const own[] = {"one-shot", "two-shot"};
enum { OWN = sizeof own / sizeof *own };

/* The row of the same case as `row`, of another variant. NO_ROW where it did not go well. */
static size_t same_case(const table *t, size_t row, const char *variant)
{
    return table_find(t, "variant", variant, "status", "ok", "ranks", table_text(t, row, "ranks"), "bytes",
                      table_text(t, row, "bytes"), "dtype", table_text(t, row, "dtype"), "mode",
                      table_text(t, row, "mode"), "in_place", table_text(t, row, "in_place"), NULL);
}

static double times_as_fast(const table *t, size_t row, const char *variant)
{
    return table_real(t, row, "median_ms") / table_real(t, same_case(t, row, variant), "median_ms");
}

static bool has_own(const table *t, size_t row)
{
    bool any = false;
    for (size_t v = 0; v < OWN; v++)
        any = any || same_case(t, row, own[v]) != NO_ROW;
    return any;
}

/* ---- in short ---- */

/* Of all cases on so many ranks: how many there are, in how many one of ours is faster, and where by most. */
typedef struct gain {
    size_t cases, faster, best;
    double most;
    const char *variant;
} gain;

static gain gain_of(const table *t, const char *ranks)
{
    gain g = {.best = NO_ROW};
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(table_text(t, i, "variant"), "all-reduce") != 0 || strcmp(table_text(t, i, "status"), "ok") != 0 ||
            strcmp(table_text(t, i, "ranks"), ranks) != 0 || !has_own(t, i))
            continue;
        double here = 0;
        for (size_t v = 0; v < OWN; v++) {
            const double times = times_as_fast(t, i, own[v]);
            here = times > here ? times : here;
            if (times > g.most) {
                g.most = times;
                g.best = i;
                g.variant = own[v];
            }
        }
        g.cases++;
        g.faster += here > 1;
    }
    return g;
}

void allreduce_own_findings(document *doc, const table *t)
{
    values ranks = table_values(t, "ranks");
    for (size_t i = 0; i < ranks.n; i++) {
        const gain g = gain_of(t, ranks.v[i]);
        if (!g.cases)
            continue;
        doc_bullet(doc,
                   "%s: faster than the library by the median in %zu of %zu cases, at best %s times as fast (%s, %s, "
                   "%s, %s: %s us, the library %s).",
                   strong("Our own all-reduces on %s ranks", ranks.v[i]), g.faster, g.cases, number(g.most), g.variant,
                   table_text(t, g.best, "size"), table_text(t, g.best, "dtype"), table_text(t, g.best, "mode"),
                   number(table_real(t, same_case(t, g.best, g.variant), "median_ms") * 1e3),
                   number(table_real(t, g.best, "median_ms") * 1e3));
    }
    values_free(&ranks);
}

/* ---- the table ---- */

static void add_time(document *doc, const table *t, size_t row)
{
    if (row == NO_ROW)
        doc_blank(doc);
    else
        doc_cell(doc, "%s ± %s", number(table_real(t, row, "median_ms") * 1e3),
                 number(table_real(t, row, "std_ms") * 1e3));
}

static void begin_table(document *doc)
{
    doc_paragraph(doc, "Our own kernels, which store into the other GPUs' memory, in us: median ± standard deviation. "
                       "times is the library's\nmedian over ours: above 1, ours is faster.");
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "ranks", "size", NULL);
    doc_columns(doc, DOC_TEXT, "mode", "in place", NULL);
    doc_columns(doc, DOC_NUMBER, "library", NULL);
    for (size_t v = 0; v < OWN; v++)
        doc_columns(doc, DOC_NUMBER, own[v], "times", NULL);
}

void allreduce_own(document *doc, const table *t, const char *dtype)
{
    bool begun = false;
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(table_text(t, i, "variant"), "all-reduce") != 0 || strcmp(table_text(t, i, "status"), "ok") != 0 ||
            strcmp(table_text(t, i, "dtype"), dtype) != 0 || !has_own(t, i))
            continue;
        if (!begun)
            begin_table(doc);
        begun = true;
        doc_row(doc, table_text(t, i, "ranks"), table_text(t, i, "size"), table_text(t, i, "mode"),
                strcmp(table_text(t, i, "in_place"), "1") ? "no" : "yes", NULL);
        add_time(doc, t, i);
        for (size_t v = 0; v < OWN; v++) {
            const double times = times_as_fast(t, i, own[v]);
            add_time(doc, t, same_case(t, i, own[v]));
            doc_cells(doc, isfinite(times) ? number(times) : "", NULL);
        }
    }
}
