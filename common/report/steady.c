/* SPDX-License-Identifier: MIT */
/* The tables of burst and steady state, and of energy; see steady.h. */
#include "common/report/steady.h"

#include <math.h>
#include <stdlib.h>

static void name_cells(document *doc, const table *t, size_t row, const steady_part *p)
{
    char *name = table_case(t, row);
    doc_row(doc, NULL);
    doc_cell(doc, "%s%s%s", name, *p->what ? ", " : "", p->what);
    free(name);
}

static void steady_row(document *doc, const table *t, size_t row, const steady_part *p)
{
    const double burst = table_real(t, row, p->burst), sustained = table_real(t, row, p->sustained);
    name_cells(doc, t, row, p);
    doc_cells(doc, number(burst), number(sustained), number(sustained / burst), number(table_real(t, row, p->sm_mhz)),
              number(table_real(t, row, p->power_w)), number(table_real(t, row, p->sustained_j)),
              number(table_real(t, row, p->sustained_per_j)), NULL);
}

static void steady_table(document *doc, const table *t, const steady_part *parts)
{
    bool begun = false;
    for (size_t i = 0; i < t->n; i++)
        for (const steady_part *p = parts; p->burst; p++) {
            if (isnan(table_real(t, i, p->sustained)))
                continue;
            if (!begun) {
                doc_heading(doc, 3, "Burst and steady state");
                doc_paragraph(doc,
                              "A burst is what the tables above show: few samples, on a GPU that has not been busy "
                              "for long. The steady state is the second half of %s, at the clock that the GPU's "
                              "power limit allows.",
                              code("--sustain"));
                doc_table(doc);
                doc_columns(doc, DOC_TEXT, "case", NULL);
                doc_column(doc, DOC_NUMBER, "burst %s", p->unit);
                doc_column(doc, DOC_NUMBER, "steady %s", p->unit);
                doc_columns(doc, DOC_NUMBER, "steady / burst", "SM MHz", "W", "J", p->per_j, NULL);
            }
            begun = true;
            steady_row(doc, t, i, p);
        }
}

static void energy_table(document *doc, const table *t, const steady_part *parts)
{
    bool begun = false;
    for (size_t i = 0; i < t->n; i++)
        for (const steady_part *p = parts; p->burst; p++) {
            if (isnan(table_real(t, i, p->burst_j)) || !isnan(table_real(t, i, p->sustained)))
                continue;
            if (!begun) {
                doc_heading(doc, 3, "Energy");
                doc_paragraph(doc, "By the GPU's energy counter, while samples were taken; of the cases that took long "
                                   "enough for it.");
                doc_table(doc);
                doc_columns(doc, DOC_TEXT, "case", NULL);
                doc_column(doc, DOC_NUMBER, "%s", p->unit);
                doc_columns(doc, DOC_NUMBER, "J", p->per_j, NULL);
            }
            begun = true;
            name_cells(doc, t, i, p);
            doc_cells(doc, number(table_real(t, i, p->burst)), number(table_real(t, i, p->burst_j)),
                      number(table_real(t, i, p->burst_per_j)), NULL);
        }
}

void steady_tables(document *doc, const table *t, const steady_part *parts)
{
    table *ok = table_where(t, "status", "ok", NULL);
    steady_table(doc, ok, parts);
    energy_table(doc, ok, parts);
    table_free(ok);
}
