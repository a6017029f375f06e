/* SPDX-License-Identifier: MIT */
/* Our times beside the tables of the write-ups in results/published/, which were measured on other machines. */
#include <stdlib.h>
#include <string.h>

#include "common/report/section.h"

static void add_ours(document *doc, const table *t, size_t row)
{
    doc_cell(doc, "%s", strong("%s / %s", cell_number(t, row, "fwd_ms", 1), cell_number(t, row, "bwd_ms", 1)));
}

static void add_theirs(document *doc, const csv *c, size_t row)
{
    if (row == NO_ROW)
        doc_blank(doc);
    else if (!cell_is(c, row, "status", "ok"))
        doc_cell(doc, "%s", csv_cell(c, row, "status"));
    else
        doc_cell(doc, "%s / %s", number(csv_real(c, row, "fwd_ms")), number(csv_real(c, row, "bwd_ms")));
}

/* A published row of the source with the shape of our row; `column` has the value that names its kind. */
static size_t find_theirs(const csv *c, const table *ours, size_t row, const char *source, const char *column,
                          const char *value)
{
    for (size_t r = 0; r < c->rows; r++) {
        bool same_dtype = csv_column(c, "dtype") < 0 || cell_is(c, r, "dtype", table_text(ours, row, "dtype"));
        if (cell_is(c, r, "source", source) && cell_is(c, r, column, value) && same_dtype &&
            cell_is(c, r, "seq", table_text(ours, row, "seq")) && cell_is(c, r, "d", table_text(ours, row, "head_dim")))
            return r;
    }
    return NO_ROW;
}

/* flash.csv gives batch 1 and causal, or neither, which is then the assignment's: the same. */
static void flash_of_dtype(document *doc, const csv *c, const table *ours, const char *dtype)
{
    static const char *const sources[] = {"answers_b", "answers_c"};
    static const char *const kinds[][2] = {{"unfused", "pytorch"}, {"flash", "triton_flash"}};
    table *flash =
        table_where(ours, "dtype", dtype, "variant", "flash", "batch", "1", "heads", "1", "causal", "1", "heads_kv",
                    "0", "seq_k", "0", "layout", "bhsd", "deterministic", "0", "device", "cuda", NULL);
    table *all = table_where(ours, "dtype", dtype, "batch", "1", "heads", "1", "causal", "1", "heads_kv", "0", "seq_k",
                             "0", "layout", "bhsd", "deterministic", "0", "device", "cuda", NULL);
    bool begun = false;
    for (size_t i = 0; i < flash->n; i++) {
        size_t theirs[2][2];
        bool any = false;
        for (size_t k = 0; k < 2; k++)
            for (size_t s = 0; s < 2; s++) {
                theirs[k][s] = find_theirs(c, flash, i, sources[s], "impl", kinds[k][1]);
                any |= theirs[k][s] != NO_ROW;
            }
        if (!any)
            continue;
        if (!begun) {
            doc_fold(doc, "flash_benchmarking, %s: batch 1, one head, causal; forward / backward ms", dtype);
            doc_table(doc);
            doc_columns(doc, DOC_NUMBER, "D", "S", "unfused, ours", "PyTorch, b (H100)", "PyTorch, c (H800)",
                        "flash, ours", "Triton, b (H100)", "Triton, c (H800)", NULL);
        }
        begun = true;
        doc_row(doc, table_text(flash, i, "head_dim"), table_text(flash, i, "seq"), NULL);
        for (size_t k = 0; k < 2; k++) {
            add_ours(doc, all,
                     table_find(all, "variant", kinds[k][0], "seq", table_text(flash, i, "seq"), "head_dim",
                                table_text(flash, i, "head_dim"), NULL));
            for (size_t s = 0; s < 2; s++)
                add_theirs(doc, c, theirs[k][s]);
        }
    }
    if (begun)
        doc_fold_end(doc);
    table_free(flash);
    table_free(all);
}

static void published_flash(document *doc, const char *dir)
{
    csv *c = open_published(dir, "flash.csv");
    table *ours = open_result(dir, "bench_flash.csv");
    table_keep_plain_attention(ours);
    if (c && ours) {
        values dtypes = table_values(ours, "dtype");
        for (size_t i = 0; i < dtypes.n; i++)
            flash_of_dtype(doc, c, ours, dtypes.v[i]);
        values_free(&dtypes);
    }
    csv_free(c);
    table_free(ours);
}

/* attention_naive.csv: eager from the problem pytorch_attention, compiled from torch_compile. */
static void attention_row(document *doc, const csv *c, const table *all, const char *seq, const char *dim)
{
    static const char *const sources[] = {"answers_a", "answers_b", "answers_c"};
    size_t unfused = table_find(all, "variant", "unfused", "seq", seq, "head_dim", dim, NULL);
    size_t fused = table_find(all, "variant", "fused", "seq", seq, "head_dim", dim, NULL);
    size_t shape = unfused != NO_ROW ? unfused : fused;
    if (shape == NO_ROW)
        return;
    size_t eager[3], compiled[3];
    for (size_t s = 0; s < 3; s++) {
        eager[s] = find_theirs(c, all, shape, sources[s], "compiled", "0");
        compiled[s] = find_theirs(c, all, shape, sources[s], "compiled", "1");
    }
    doc_row(doc, dim, seq, NULL);
    add_ours(doc, all, unfused);
    for (size_t s = 0; s < 3; s++)
        add_theirs(doc, c, eager[s]);
    add_ours(doc, all, fused);
    for (size_t s = 0; s < 3; s++)
        add_theirs(doc, c, compiled[s]);
    doc_cell(doc, "%s", strong("%s", cell_number(all, unfused, "mem_before_bwd_bytes", GIB)));
    for (size_t s = 0; s < 3; s++)
        doc_cells(doc, eager[s] == NO_ROW ? "" : number(csv_real(c, eager[s], "mem_before_bwd_mib") / 1024), NULL);
}

static void published_attention(document *doc, const char *dir)
{
    csv *c = open_published(dir, "attention_naive.csv");
    table *ours = open_result(dir, "bench_attention.csv");
    if (c && ours) {
        table *all = table_where(ours, "dtype", "fp32", "batch", "8", "causal", "1", "device", "cuda", NULL);
        values dims = table_values(all, "head_dim"), lengths = table_values(all, "seq");
        if (all->n) {
            doc_fold(doc, "pytorch_attention and torch_compile, fp32: batch 8, one head; forward / backward ms, GiB "
                          "held before the backward");
            doc_table(doc);
            doc_columns(doc, DOC_NUMBER, "D", "S", "unfused, ours", "eager, a", "eager, b", "eager, c", "fused, ours",
                        "compiled, a", "compiled, b", "compiled, c", "GiB, unfused, ours", "a", "b", "c", NULL);
        }
        for (size_t d = 0; d < dims.n; d++)
            for (size_t s = 0; s < lengths.n; s++)
                attention_row(doc, c, all, lengths.v[s], dims.v[d]);
        if (all->n)
            doc_fold_end(doc);
        values_free(&dims);
        values_free(&lengths);
        table_free(all);
    }
    csv_free(c);
    table_free(ours);
}

static void write_section(document *doc, const char *dir)
{
    document *part = doc_create("");
    published_flash(part, dir);
    published_attention(part, dir);
    if (!doc_empty(part)) {
        doc_heading(doc, 2, "Next to the published tables");
        doc_paragraph(doc,
                      "Ours beside three answers (a, b, c) to the course's assignment, at the same shape and dtype; "
                      "%s.\nOther GPUs, unknown clocks, other ways of timing: an order of magnitude, not a race.",
                      link_to("sources and cautions", "../published/README.md"));
        doc_bullet(doc, "c states neither batch nor mask for flash: those of the assignment are assumed. Its flash "
                        "backward is not Triton.");
        doc_bullet(
            doc,
            "Flash up to S 1024: their times are bound by the host. Rows of b marked %s time fp32 and are left out.",
            code("mixed"));
        doc_bullet(doc, "pytorch_attention: the forward of b is launch time, and its backward contains the forward; b "
                        "and c keep two score matrices, a keeps one.");
    }
    doc_append(doc, part);
}

const report_section section_published = {.order = 140, .write = write_section};
