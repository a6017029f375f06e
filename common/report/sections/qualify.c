/* SPDX-License-Identifier: MIT */
/* bench_qualify in the report: each GPU in a word, then what missed its bound, then everything. */
#include <math.h>
#include <string.h>

#include "common/report/section.h"

static bool is(const table *t, size_t row, const char *column, const char *value)
{
    return strcmp(table_text(t, row, column), value) == 0;
}

/* The GPU, pair or group that a row is about. */
static const char *about(const table *t, size_t row)
{
    const char *pair = table_text(t, row, "pair"), *group = table_text(t, row, "group");
    return *pair ? pair : *group ? group : table_text(t, row, "rank");
}

static bool missed(const table *t, size_t row)
{
    return is(t, row, "verdict", "slow") || is(t, row, "verdict", "busy") || is(t, row, "verdict", "broken") ||
           is(t, row, "status", "fail");
}

static void write_gpus(document *doc, const table *t)
{
    size_t gpus = 0, ok = 0;
    for (size_t i = 0; i < t->n; i++)
        if (is(t, i, "variant", "verdict")) {
            gpus++;
            ok += is(t, i, "verdict", "ok");
        }
    if (!gpus)
        return;
    doc_paragraph(doc, "%zu of %zu GPUs are as fast as they should be.", ok, gpus);
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "GPU", NULL);
    doc_columns(doc, DOC_TEXT, "verdict", "why", NULL);
    for (size_t i = 0; i < t->n; i++)
        if (is(t, i, "variant", "verdict"))
            doc_row(doc, table_text(t, i, "rank"), table_text(t, i, "verdict"), table_text(t, i, "why"), NULL);
}

static void write_rows(document *doc, const table *t)
{
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "metric", NULL);
    doc_columns(doc, DOC_TEXT, "GPU", NULL);
    doc_columns(doc, DOC_NUMBER, "value", "reference", "bound", "behind, %", NULL);
    doc_columns(doc, DOC_TEXT, "verdict", NULL);
    for (size_t i = 0; i < t->n; i++)
        if (*table_text(t, i, "metric"))
            doc_row(doc, table_text(t, i, "metric"), about(t, i), cell_number(t, i, "value", 1),
                    cell_number(t, i, "reference", 1), cell_number(t, i, "bound", 1),
                    cell_number(t, i, "behind_pct", 1), table_text(t, i, "verdict"), NULL);
}

static void write_section(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_qualify.csv");

    if (!t)
        return;
    doc_heading(doc, 2, "bench_qualify: is every GPU as fast as it should be");
    write_gpus(doc, t);
    for (size_t i = 0; i < t->n; i++)
        if (missed(t, i) && (*table_text(t, i, "pair") || *table_text(t, i, "group"))) {
            doc_bullet(doc, "%s %s is %s: %s.", table_text(t, i, "variant"), about(t, i), table_text(t, i, "verdict"),
                       table_text(t, i, "why"));
        }
    figures(doc, dir, "qualify");
    doc_fold(doc, "Every measurement");
    write_rows(doc, t);
    doc_fold_end(doc);
    table_free(t);
}

const report_section section_qualify = {.order = 200, .write = write_section};
