/* SPDX-License-Identifier: MIT */
/* Our times beside the tables of the write-ups in results/published/, which were measured on other machines. */
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/sections.h"

static csv *open_published(const char *dir, const char *name)
{
    char *path = xasprintf("%s/../published/%s", dir, name);
    csv *c = csv_read(path);
    free(path);
    return c;
}

static bool has(const csv *c, size_t row, const char *column, const char *value)
{
    const char *cell = csv_cell(c, row, column);
    return cell && strcmp(cell, value) == 0;
}

static void print_ours(FILE *out, const table *t, size_t row)
{
    fprintf(out, " **%s / %s** |", cell_number(t, row, "fwd_ms", 1), cell_number(t, row, "bwd_ms", 1));
}

static void print_theirs(FILE *out, const csv *c, size_t row)
{
    if (row == NO_ROW)
        fprintf(out, " |");
    else if (!has(c, row, "status", "ok"))
        fprintf(out, " %s |", csv_cell(c, row, "status"));
    else
        fprintf(out, " %s / %s |", number(csv_real(c, row, "fwd_ms")), number(csv_real(c, row, "bwd_ms")));
}

/* A published row of the source with the shape of our row; `column` has the value that names its kind. */
static size_t find_theirs(const csv *c, const table *ours, size_t row, const char *source, const char *column,
                          const char *value)
{
    for (size_t r = 0; r < c->rows; r++) {
        bool same_dtype = csv_column(c, "dtype") < 0 || has(c, r, "dtype", table_text(ours, row, "dtype"));
        if (has(c, r, "source", source) && has(c, r, column, value) && same_dtype &&
            has(c, r, "seq", table_text(ours, row, "seq")) && has(c, r, "d", table_text(ours, row, "head_dim")))
            return r;
    }
    return NO_ROW;
}

/* flash.csv gives batch 1 and causal, or neither, which is then the assignment's: the same. */
static void flash_of_dtype(FILE *out, const csv *c, const table *ours, const char *dtype)
{
    static const char *const sources[] = {"answers_b", "answers_c"};
    static const char *const kinds[][2] = {{"unfused", "pytorch"}, {"flash", "triton_flash"}};
    table *flash =
        table_where(ours, "dtype", dtype, "variant", "flash", "batch", "1", "heads", "1", "causal", "1", "heads_kv",
                    "0", "seq_k", "0", "layout", "bhsd", "deterministic", "0", "device", "cuda", NULL);
    table *all = table_where(ours, "dtype", dtype, "batch", "1", "heads", "1", "causal", "1", "heads_kv", "0", "seq_k",
                             "0", "layout", "bhsd", "deterministic", "0", "device", "cuda", NULL);
    size_t printed = 0;
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
        if (!printed++)
            fprintf(out,
                    "<details><summary>flash_benchmarking, %s: batch 1, one head, causal; forward / backward "
                    "ms</summary>\n\n"
                    "| D | S | unfused, ours | PyTorch, b (H100) | PyTorch, c (H800) | flash, ours | Triton, b (H100) "
                    "| Triton, c (H800) |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n",
                    dtype);
        fprintf(out, "| %s | %s |", table_text(flash, i, "head_dim"), table_text(flash, i, "seq"));
        for (size_t k = 0; k < 2; k++) {
            print_ours(out, all,
                       table_find(all, "variant", kinds[k][0], "seq", table_text(flash, i, "seq"), "head_dim",
                                  table_text(flash, i, "head_dim"), NULL));
            for (size_t s = 0; s < 2; s++)
                print_theirs(out, c, theirs[k][s]);
        }
        fprintf(out, "\n");
    }
    if (printed)
        fprintf(out, "\n</details>\n\n");
    table_free(flash);
    table_free(all);
}

static void published_flash(FILE *out, const char *dir)
{
    csv *c = open_published(dir, "flash.csv");
    table *ours = open_result(dir, "bench_flash.csv");
    if (c && ours) {
        values dtypes = table_values(ours, "dtype");
        for (size_t i = 0; i < dtypes.n; i++)
            flash_of_dtype(out, c, ours, dtypes.v[i]);
        values_free(&dtypes);
    }
    csv_free(c);
    table_free(ours);
}

/* attention_naive.csv: eager from the problem pytorch_attention, compiled from torch_compile. */
static void attention_row(FILE *out, const csv *c, const table *all, const char *seq, const char *dim)
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
    fprintf(out, "| %s | %s |", dim, seq);
    print_ours(out, all, unfused);
    for (size_t s = 0; s < 3; s++)
        print_theirs(out, c, eager[s]);
    print_ours(out, all, fused);
    for (size_t s = 0; s < 3; s++)
        print_theirs(out, c, compiled[s]);
    fprintf(out, " **%s** |", cell_number(all, unfused, "mem_before_bwd_bytes", GIB));
    for (size_t s = 0; s < 3; s++)
        fprintf(out, " %s |", eager[s] == NO_ROW ? "" : number(csv_real(c, eager[s], "mem_before_bwd_mib") / 1024));
    fprintf(out, "\n");
}

static void published_attention(FILE *out, const char *dir)
{
    csv *c = open_published(dir, "attention_naive.csv");
    table *ours = open_result(dir, "bench_attention.csv");
    if (c && ours) {
        table *all = table_where(ours, "dtype", "fp32", "batch", "8", "causal", "1", "device", "cuda", NULL);
        values dims = table_values(all, "head_dim"), lengths = table_values(all, "seq");
        if (all->n)
            fprintf(out,
                    "<details><summary>pytorch_attention and torch_compile, fp32: batch 8, one head; forward / "
                    "backward ms, GiB held before the backward</summary>\n\n"
                    "| D | S | unfused, ours | eager, a | eager, b | eager, c | fused, ours | compiled, a | compiled, "
                    "b | compiled, c | GiB, unfused, ours | a | b | c |\n"
                    "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
        for (size_t d = 0; d < dims.n; d++)
            for (size_t s = 0; s < lengths.n; s++)
                attention_row(out, c, all, lengths.v[s], dims.v[d]);
        if (all->n)
            fprintf(out, "\n</details>\n\n");
        values_free(&dims);
        values_free(&lengths);
        table_free(all);
    }
    csv_free(c);
    table_free(ours);
}

void published_section(FILE *out, const char *dir)
{
    char *text;
    size_t bytes;
    FILE *part = text_stream(&text, &bytes);
    published_flash(part, dir);
    published_attention(part, dir);
    fclose(part);
    if (bytes)
        fprintf(out,
                "## Next to the published tables\n\n"
                "Ours beside three answers (a, b, c) to the course's assignment, at the same shape and dtype; [sources "
                "and cautions](../published/README.md).\nOther GPUs, unknown clocks, other ways of timing: an order of "
                "magnitude, not a race.\n\n"
                "- c gives neither batch nor mask for flash: read as the assignment's. Its flash backward is not "
                "Triton.\n"
                "- Flash, up to S 1024: their times are set by the host. Rows of b marked `mixed` time fp32 and are "
                "left out.\n"
                "- pytorch_attention: the forward of b is launch time, its backward contains the forward; b and c keep "
                "two score matrices, a one.\n\n%s",
                text);
    free(text);
}
