/* SPDX-License-Identifier: MIT */
/* bench_transformer in the report, shares of the peak: one width over depth, context, recomputation, attention, and key
 * and value heads, and what each of these changes while the others stay. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

static const char *const axes[] = {"layers", "seq", "recompute", "attention", "heads_kv", NULL};

static bool same_but(const table *t, size_t a, size_t b, const char *axis)
{
    for (size_t i = 0; axes[i]; i++)
        if (strcmp(axes[i], axis) != 0 && strcmp(table_text(t, a, axes[i]), table_text(t, b, axes[i])) != 0)
            return false;
    return true;
}

/* From the first to the last value of an axis, over all pairs of rows that differ in nothing else. */
static void say_axis(document *doc, const table *t, const char *axis, const char *what)
{
    values v = table_values(t, axis);
    double least[2] = {INFINITY, INFINITY}, most[2] = {-INFINITY, -INFINITY};
    static const char *const shares[] = {"mfu_causal_pct", "hfu_pct"};
    size_t pairs = 0;
    const char *from = v.n ? v.v[0] : "", *to = v.n ? v.v[v.n - 1] : "";
    if (strcmp(axis, "recompute") == 0 || strcmp(axis, "attention") == 0) { /* words have no order */
        from = strcmp(axis, "recompute") == 0 ? "none" : "unfused";
        to = strcmp(axis, "recompute") == 0 ? "block" : "flash";
    }
    for (size_t a = 0; a < t->n; a++)
        for (size_t b = 0; b < t->n; b++) {
            if (strcmp(table_text(t, a, axis), from) != 0 || strcmp(table_text(t, b, axis), to) != 0 || a == b ||
                !same_but(t, a, b, axis) || !table_beside(t, a, t, b))
                continue;
            pairs++;
            for (size_t i = 0; i < 2; i++) {
                const double change = table_real(t, b, shares[i]) - table_real(t, a, shares[i]);
                least[i] = fmin(least[i], change);
                most[i] = fmax(most[i], change);
            }
        }
    if (pairs && strcmp(from, to) != 0) {
        doc_bullet(doc, "%s from %s to %s: MFU by %s to %s points", what, from, to, number(least[0]), number(most[0]));
        doc_more(doc, ", HFU by %s to %s (%zu %s).", number(least[1]), number(most[1]), pairs,
                 pairs == 1 ? "pair" : "pairs");
    }
    values_free(&v);
}

/* Rows in which depth and heads are both given; the main slice of them. */
static table *rows_of(const table *all)
{
    table *rows = table_where(all, "mode", "train-step", "status", "ok", NULL);
    size_t kept = 0;
    for (size_t i = 0; i < rows->n; i++)
        if (strcmp(table_text(rows, i, "layers"), "0") != 0 && strcmp(table_text(rows, i, "heads_kv"), "0") != 0 &&
            isfinite(table_real(rows, i, "mfu_causal_pct")))
            rows->rows[kept++] = rows->rows[i];
    rows->n = kept;
    table *t = table_main_slice(rows, axes, NULL);
    table_free(rows);
    return t;
}

static void write_section(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_transformer.csv");
    if (!all)
        return;
    table *t = rows_of(all);
    if (t->n > 1) {
        char *shape = table_shape(t, axes);
        doc_heading(doc, 2, "Shares of the peak");
        doc_paragraph(doc,
                      "%s. MFU counts what the model needs, with half of the attention (causal) or all of it (full); "
                      "HFU also what the\nbackward computes again.",
                      shape);
        doc_table(doc);
        doc_columns(doc, DOC_NUMBER, "blocks", "S", NULL);
        doc_columns(doc, DOC_TEXT, "attention", "recompute", NULL);
        doc_columns(doc, DOC_NUMBER, "key and value heads", "step ms", "MFU % causal", "MFU % full", "HFU %",
                    "peak GiB", NULL);
        for (size_t i = 0; i < t->n; i++)
            doc_row(doc, table_text(t, i, "layers"), table_text(t, i, "seq"), table_text(t, i, "attention"),
                    table_text(t, i, "recompute"), table_text(t, i, "heads_kv"), cell_number(t, i, "step_ms", 1),
                    cell_number(t, i, "mfu_causal_pct", 1), cell_number(t, i, "mfu_full_pct", 1),
                    cell_number(t, i, "hfu_pct", 1), cell_number(t, i, "peak_bytes", GIB), NULL);
        doc_paragraph(doc, "What changes while the rest stays:");
        say_axis(doc, t, "layers", "Blocks");
        say_axis(doc, t, "seq", "S");
        say_axis(doc, t, "attention", "Attention");
        say_axis(doc, t, "recompute", "Recomputation");
        say_axis(doc, t, "heads_kv", "Key and value heads");
        free(shape);
    }
    table_free(t);
    table_free(all);
}

const report_section section_mfu = {.order = 63, .write = write_section};
