/* SPDX-License-Identifier: MIT */
/* bench_attention in the report: what stands out, and the table of the course. */
#include <stdlib.h>

#include "common/report/section.h"
#include "common/report/sentences.h"

static const char *const axes[] = {"seq", "head_dim", "dtype", NULL};

static void attention_finding(document *doc, const table *of, const char *dtype)
{
    table *unfused = table_where(of, "variant", "unfused", "status", "ok", NULL);
    size_t u = largest(unfused, "mem_before_bwd_bytes");
    if (u != NO_ROW) {
        const char *seq = table_text(unfused, u, "seq"), *dim = table_text(unfused, u, "head_dim");
        doc_bullet(doc, "%s at S %s, D %s, batch %s: held before the backward", strong("Attention, %s", dtype), seq,
                   dim, table_text(unfused, u, "batch"));
        values variants = table_values(of, "variant");
        for (size_t i = 0; i < variants.n; i++) {
            size_t row = table_find(of, "variant", variants.v[i], "seq", seq, "head_dim", dim, NULL);
            doc_more(doc, "%s %s %s", i ? "," : "", variants.v[i],
                     number_unit(table_real(of, row, "mem_before_bwd_bytes"), "bytes"));
        }
        doc_more(doc, "; forward / backward");
        for (size_t i = 0; i < variants.n; i++) {
            size_t row = table_find(of, "variant", variants.v[i], "seq", seq, "head_dim", dim, NULL);
            doc_more(doc, "%s %s %s / %s ms", i ? "," : "", variants.v[i], cell_number(of, row, "fwd_ms", 1),
                     cell_number(of, row, "bwd_ms", 1));
        }
        doc_more(doc, ".");
        values_free(&variants);
    }
    table_free(unfused);
}

static void findings(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_attention.csv");
    if (!all)
        return;
    table *t = table_main_slice(all, axes, NULL);
    values dtypes = table_values(t, "dtype");
    for (size_t i = 0; i < dtypes.n; i++) {
        table *of = table_where(t, "dtype", dtypes.v[i], NULL);
        attention_finding(doc, of, dtypes.v[i]);
        table_free(of);
    }
    values_free(&dtypes);
    table_free(t);
    table_free(all);
}

/* The layout of the course's table: one row a (D, S), the variants side by side. */
static void attention_table(document *doc, const table *t)
{
    static const struct {
        const char *title, *column;
        double scale;
    } parts[] = {{"forward ms", "fwd_ms", 1},
                 {"backward ms", "bwd_ms", 1},
                 {"MiB before backward", "mem_before_bwd_bytes", MIB},
                 {"peak MiB", "peak_bytes", MIB},
                 {"bytes kept / S^2", "mem_over_s2", 1}};
    enum { PARTS = sizeof parts / sizeof *parts };
    values dims = table_values(t, "head_dim"), lengths = table_values(t, "seq"), variants = table_values(t, "variant");
    doc_paragraph(doc, "Each cell: ");
    for (size_t v = 0; v < variants.n; v++)
        doc_more(doc, "%s%s", v ? " / " : "", variants.v[v]);
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "D", "S", NULL);
    for (size_t p = 0; p < PARTS; p++)
        doc_column(doc, DOC_NUMBER, "%s", parts[p].title);
    for (size_t d = 0; d < dims.n; d++)
        for (size_t s = 0; s < lengths.n; s++) {
            doc_row(doc, dims.v[d], lengths.v[s], NULL);
            for (size_t p = 0; p < PARTS; p++) {
                doc_cell(doc, "%s", "");
                for (size_t v = 0; v < variants.n; v++) {
                    size_t row =
                        table_find(t, "head_dim", dims.v[d], "seq", lengths.v[s], "variant", variants.v[v], NULL);
                    doc_more(doc, "%s%s", v ? " / " : "", cell_number(t, row, parts[p].column, parts[p].scale));
                }
            }
        }
    values_free(&dims);
    values_free(&lengths);
    values_free(&variants);
}

static void write_section(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_attention.csv");
    if (!all)
        return;
    table *rest, *t = table_main_slice(all, axes, &rest);
    char *shape = table_shape(t, axes);
    doc_heading(doc, 2, "bench_attention: what unfused attention costs");
    doc_paragraph(doc, "%s, one head. Times are medians.", shape);
    figures(doc, dir, "attention_");
    values dtypes = table_values(t, "dtype");
    for (size_t i = 0; i < dtypes.n; i++) {
        table *of = table_where(t, "dtype", dtypes.v[i], NULL);
        doc_heading(doc, 3, "%s", dtypes.v[i]);
        say_attention(doc, of);
        attention_table(doc, of);
        table_free(of);
    }
    if (rest->n) {
        doc_heading(doc, 3, "Other shapes");
        attention_rows(doc, rest);
    }
    values_free(&dtypes);
    free(shape);
    table_free(rest);
    table_free(t);
    table_free(all);
}

static const readme_bench benches[] = {
    {.name = "bench_attention",
     .order = 20,
     .question = "What does attention cost in time and memory?",
     .columns = {{"fwd_ms", "forward", "ms"}, {"bwd_ms", "backward", "ms"}, {"peak_bytes", "peak", "bytes"}},
     .only = {{"variant", "flash"}, {"head_dim", "128"}, {"seq", "16384"}}},
    {.name = NULL}};

const report_section section_attention = {
    .order = 50, .findings = findings, .write = write_section, .benches = benches};
