/* SPDX-License-Identifier: MIT */
/* Machines or commits side by side; see across.h. */
#include "common/report/across/across.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

typedef struct spread { /* between folders that measured the same on as many ranks */
    size_t figures, close;
    double most;
    char *farthest;
} spread;

static const double close_pct = 3;

static void add_spread(spread *s, const across_case *c, size_t column, const size_t *rows)
{
    const struct readme_column *shown = &c->bench->columns[column];
    size_t low = NO_ROW, high = NO_ROW, there = 0;
    for (size_t f = 0; f < c->n; f++) {
        const double x = rows[f] == NO_ROW ? NAN : csv_real(c->files[f], rows[f], shown->column);
        if (!(x > 0) || !across_is(c, f, rows[f], false))
            continue;
        there++;
        low = low == NO_ROW || x < csv_real(c->files[low], rows[low], shown->column) ? f : low;
        high = high == NO_ROW || x > csv_real(c->files[high], rows[high], shown->column) ? f : high;
    }
    if (there < 2)
        return;
    const double least = csv_real(c->files[low], rows[low], shown->column),
                 largest = csv_real(c->files[high], rows[high], shown->column), pct = 100 * (largest / least - 1);
    s->figures++;
    s->close += pct <= close_pct;
    if (pct <= s->most)
        return;
    s->most = pct;
    free(s->farthest);
    s->farthest = xasprintf("%s, %s: %s in %s, and %s in %s, %s %% more", c->bench->name, across_what(c->bench, column),
                            number_unit(least, shown->unit), c->folders[low].name, number_unit(largest, shown->unit),
                            c->folders[high].name, number(pct));
}

static void add_rows(document *doc, const across_case *c, spread *s)
{
    size_t *rows = xmalloc(c->n * sizeof *rows);
    for (size_t f = 0; f < c->n; f++)
        rows[f] = across_newest(c, f);
    for (size_t k = 0; c->bench->columns[k].column; k++) {
        const struct readme_column *shown = &c->bench->columns[k];
        bool any = false;
        for (size_t f = 0; f < c->n; f++)
            any = any || (rows[f] != NO_ROW && isfinite(csv_real(c->files[f], rows[f], shown->column)));
        if (!any)
            continue;
        doc_row(doc, c->bench->name, NULL);
        doc_cell(doc, "%s", code("%s", c->text));
        doc_cell(doc, "%s", across_what(c->bench, k));
        for (size_t f = 0; f < c->n; f++) {
            const double x = rows[f] == NO_ROW ? NAN : csv_real(c->files[f], rows[f], shown->column);
            if (!isfinite(x)) {
                doc_blank(doc);
                continue;
            }
            doc_cell(doc, "%s", number_unit(x, shown->unit));
            if (!across_is(c, f, rows[f], false))
                doc_more(doc, " on %s ranks", csv_cell(c->files[f], rows[f], "ranks"));
        }
        add_spread(s, c, k, rows);
    }
    free(rows);
}

static void add_side_by_side(document *doc, across_case *cases, size_t n, const across_folder *folders,
                             size_t folders_n)
{
    spread s = {0};
    document *rows = doc_create("");
    doc_heading(doc, 2, "Side by side");
    doc_table(rows);
    doc_columns(rows, DOC_TEXT, "bench", "case", "what", NULL);
    for (size_t f = 0; f < folders_n; f++)
        doc_column(rows, DOC_NUMBER, "%s", folders[f].name);
    for (size_t i = 0; i < n; i++)
        add_rows(rows, &cases[i], &s);
    if (s.figures) {
        doc_paragraph(doc, "%zu of %zu figures that several folders have agree within %.0f %%.", s.close, s.figures,
                      close_pct);
        if (s.farthest)
            doc_more(doc, " The farthest apart: %s.", s.farthest);
    } else {
        doc_paragraph(doc, "No figure below is of as many ranks in more than one folder.");
    }
    doc_append(doc, rows);
    free(s.farthest);
}

document *across_document(const across_folder *folders, size_t n)
{
    size_t benches, count = 0;
    const readme_bench **all = readme_benches(&benches);
    across_case *cases = xcalloc(benches + 1, sizeof *cases);
    document *doc = doc_create("Machines and commits");
    for (size_t i = 0; i < benches; i++)
        if (across_case_open(&cases[count], all[i], folders, n))
            count++;
        else
            across_case_close(&cases[count]);
    doc_paragraph(doc,
                  "Written by %s from the CSV files of these folders; do not edit. Of each bench the case that the "
                  "README shows; %s compares all cases of two folders and judges their differences.",
                  code("build/report --all"), code("./stepcmp"));
    add_side_by_side(doc, cases, count, folders, n);
    doc_heading(doc, 2, "Over commits");
    doc_paragraph(
        doc, "The same cases by the commits that measured them, as the folders' CSV files have them. Another GPU of "
             "a type, or another day, is a few percent off.");
    for (size_t i = 0; i < count; i++) {
        across_history(doc, &cases[i]);
        across_case_close(&cases[i]);
    }
    free(cases);
    free(all);
    return doc;
}
