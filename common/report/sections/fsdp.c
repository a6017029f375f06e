/* SPDX-License-Identifier: MIT */
/* bench_fsdp in the report: what a rank holds and what a step takes when no rank has the whole model. */
#include <string.h>

#include "common/report/ddp/ddp.h"
#include "common/report/section.h"

static void add_step(document *doc, const table *t, size_t row, const char *which)
{
    const char *recompute = table_text(t, row, "recompute");
    doc_more(doc, " %s %s ms and %s at its peak (%s, sums in %s%s%s)", which, precise(table_real(t, row, "step_ms")),
             number_unit(table_real(t, row, "peak_bytes"), "bytes"), table_text(t, row, "variant"),
             table_text(t, row, "wire_dtype"), strcmp(recompute, "none") == 0 ? "" : ", recompute ",
             strcmp(recompute, "none") == 0 ? "" : recompute);
}

static void write_section(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_fsdp.csv");
    if (!t)
        return;
    doc_heading(doc, 2, "Sharded training: nothing is whole on any rank");
    figures(doc, dir, "fsdp");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "variant", "size", NULL);
    doc_columns(doc, DOC_NUMBER, "S", "batch", "ranks", "prefetch", NULL);
    doc_columns(doc, DOC_TEXT, "precision", "sums", "gathers", NULL);
    doc_columns(doc, DOC_NUMBER, "step ms", "compute ms", "exposed ms", "waits for gathers ms", "tokens/s", "MFU %",
                "held GiB", "peak GiB", "gathered GiB a step", NULL);
    for (size_t i = 0; i < t->n; i++)
        doc_row(doc, table_text(t, i, "variant"), table_text(t, i, "size"), table_text(t, i, "seq"),
                table_text(t, i, "batch"), table_text(t, i, "ranks"), table_text(t, i, "prefetch"),
                table_text(t, i, "precision"), table_text(t, i, "wire_dtype"), table_text(t, i, "gather"),
                cell_number(t, i, "step_ms", 1), cell_number(t, i, "compute_ms", 1), cell_number(t, i, "exposed_ms", 1),
                cell_number(t, i, "gather_wait_ms", 1), cell_number(t, i, "tokens_per_s", 1),
                cell_number(t, i, "mfu_causal_pct", 1), cell_number(t, i, "after_step_bytes", GIB),
                cell_number(t, i, "peak_bytes", GIB), cell_number(t, i, "gathered_bytes", GIB), NULL);
    table_free(t);
}

/* Of the largest model on the most ranks in bf16: the shortest sharded step, and the one that needs least memory. */
static void findings(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_fsdp.csv");
    if (!t)
        return;
    table *of = table_where(t, "device", main_device(dir), "status", "ok", "precision", "bf16", NULL);
    size_t most = NO_ROW, fastest = NO_ROW, least = NO_ROW;
    for (size_t i = 0; i < of->n; i++)
        if (table_real(of, i, "ranks") > 1 &&
            (most == NO_ROW || table_real(of, i, "ranks") > table_real(of, most, "ranks") ||
             (table_real(of, i, "ranks") == table_real(of, most, "ranks") &&
              table_real(of, i, "params") > table_real(of, most, "params"))))
            most = i;
    for (size_t i = 0; most != NO_ROW && i < of->n; i++) {
        if (table_real(of, i, "ranks") != table_real(of, most, "ranks") ||
            strcmp(table_text(of, i, "size"), table_text(of, most, "size")) != 0 ||
            strcmp(table_text(of, i, "seq"), table_text(of, most, "seq")) != 0 ||
            strcmp(table_text(of, i, "batch"), table_text(of, most, "batch")) != 0 ||
            strcmp(table_text(of, i, "variant"), "ddp") == 0)
            continue;
        if (fastest == NO_ROW || table_real(of, i, "step_ms") < table_real(of, fastest, "step_ms"))
            fastest = i;
        if (least == NO_ROW || table_real(of, i, "peak_bytes") < table_real(of, least, "peak_bytes"))
            least = i;
    }
    if (fastest != NO_ROW) {
        doc_bullet(doc, "%s (%s, batch %s per rank, S %s, bf16, %s ranks):", strong("Sharded training"),
                   table_text(of, most, "size"), table_text(of, most, "batch"), table_text(of, most, "seq"),
                   table_text(of, most, "ranks"));
        add_step(doc, of, fastest, "the shortest step takes");
        if (least != fastest) {
            doc_more(doc, ";");
            add_step(doc, of, least, "the one of least memory");
        }
        doc_more(doc, ".");
    }
    table_free(of);
    table_free(t);
}

static const readme_bench benches[] = {
    {"bench_fsdp",
     140,
     "What does it cost that no rank holds the whole model?",
     {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}, {"peak_bytes", "peak", "bytes"}},
     {{"variant", "fsdp"}, {"size", "xl"}, {"precision", "bf16"}, {"recompute", "none"}, {"grad_dtype", "fp32"}}},
    {.name = NULL}};

const report_section section_fsdp = {.order = 113, .write = write_section, .findings = findings, .benches = benches};
