/* SPDX-License-Identifier: MIT */
/* bench_roofline in the report: the ceilings of the machine. */
#include <string.h>

#include "common/report/sections.h"

static table *rows_of(const table *t, const char *variant)
{
    return table_where(t, "variant", variant, "status", "ok", NULL);
}

void roofline_findings(FILE *out, const char *dir)
{
    table *t = open_result(dir, "bench_roofline.csv");
    if (!t)
        return;
    table *gemm = rows_of(t, "gemm");
    values dtypes = table_values(gemm, "dtype");
    fprintf(out, "- **Ceilings**:");
    for (size_t i = 0; i < dtypes.n; i++) {
        table *of = table_where(gemm, "dtype", dtypes.v[i], NULL);
        size_t best = largest(of, "tflops");
        if (best != NO_ROW)
            fprintf(out, " %s GEMM %s TFLOP/s (n %s),", dtypes.v[i], number(table_real(of, best, "tflops")),
                    table_text(of, best, "size"));
        table_free(of);
    }
    table *copy = rows_of(t, "copy_kernel"), *launch = rows_of(t, "launch");
    size_t largest_copy = largest(copy, "bytes"), best_launch = largest(launch, "time_us");
    fprintf(out, " copy %s GB/s (read + written)", number(table_real(copy, largest_copy, "gb_s")));
    if (best_launch != NO_ROW)
        fprintf(out, ", launch of an empty kernel %s us", number(table_real(launch, best_launch, "time_us")));
    fprintf(out, ".\n");
    table_free(launch);
    table_free(copy);
    values_free(&dtypes);
    table_free(gemm);
    table_free(t);
}

static void gemm_table(FILE *out, const table *t)
{
    values dtypes = table_values(t, "dtype"), sizes = table_values(t, "size");
    fprintf(out, "GEMM, TFLOP/s\n\n| n |");
    for (size_t d = 0; d < dtypes.n; d++)
        fprintf(out, " %s |", dtypes.v[d]);
    fprintf(out, "\n|---:|");
    for (size_t d = 0; d < dtypes.n; d++)
        fprintf(out, "---:|");
    fprintf(out, "\n");
    for (size_t s = 0; s < sizes.n; s++) {
        fprintf(out, "| %s |", sizes.v[s]);
        for (size_t d = 0; d < dtypes.n; d++)
            fprintf(out, " %s |",
                    cell_number(t, table_find(t, "size", sizes.v[s], "dtype", dtypes.v[d], NULL), "tflops", 1));
        fprintf(out, "\n");
    }
    fprintf(out, "\n");
    values_free(&dtypes);
    values_free(&sizes);
}

static void other_table(FILE *out, const table *t)
{
    fprintf(out, "Copies and launches\n\n| what | GPUs | bytes | us | GB/s |\n|---|---|---:|---:|---:|\n");
    values variants = table_values(t, "variant");
    for (size_t v = 0; v < variants.n; v++) {
        table *of = table_where(t, "variant", variants.v[v], NULL);
        for (size_t i = 0; i < of->n && strcmp(variants.v[v], "gemm") != 0; i++)
            fprintf(out, "| %s | %s | %s | %s | %s |\n", variants.v[v], table_text(of, i, "pair"),
                    table_text(of, i, "bytes"), cell_number(of, i, "time_us", 1), cell_number(of, i, "gb_s", 1));
        table_free(of);
    }
    fprintf(out, "\n");
    values_free(&variants);
}

void roofline_section(FILE *out, const char *dir)
{
    table *t = open_result(dir, "bench_roofline.csv");
    if (!t)
        return;
    table *gemm = table_where(t, "variant", "gemm", NULL);
    fprintf(out, "## bench_roofline: the ceilings of the machine\n\n");
    figures(out, dir, "roofline");
    if (gemm->n)
        gemm_table(out, gemm);
    other_table(out, t);
    table_free(gemm);
    table_free(t);
}
