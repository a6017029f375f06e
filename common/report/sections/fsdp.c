/* SPDX-License-Identifier: MIT */
/* bench_fsdp in the report: what a rank holds and what a step takes when no rank has the whole model. */
#include "common/report/section.h"

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

static const readme_bench benches[] = {
    {"bench_fsdp",
     140,
     "What does it cost that no rank holds the whole model?",
     {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}, {"peak_bytes", "peak", "bytes"}},
     {{"variant", "fsdp"}, {"size", "xl"}, {"precision", "bf16"}, {"recompute", "none"}, {"grad_dtype", "fp32"}}},
    {.name = NULL}};

const report_section section_fsdp = {.order = 113, .write = write_section, .benches = benches};
