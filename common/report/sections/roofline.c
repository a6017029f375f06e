/* SPDX-License-Identifier: MIT */
/* bench_roofline in the report: the ceilings of the machine. */
#include <string.h>

#include "common/core/error.h"
#include "common/report/roofline_peers.h"
#include "common/report/section.h"
#include "common/report/steady.h"

static table *rows_of(const table *t, const char *variant)
{
    return table_where(t, "variant", variant, "status", "ok", NULL);
}

/* The bullet begins with the first ceiling that there is. */
static void begin_or_more(document *doc, const char **separator)
{
    if (strcmp(*separator, " ") == 0)
        doc_bullet(doc, "%s:", strong("Ceilings"));
    doc_more(doc, "%s", *separator);
    *separator = ", ";
}

static void findings(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_roofline.csv");
    if (!t)
        return;
    table *gemm = rows_of(t, "gemm");
    values dtypes = table_values(gemm, "dtype");
    const char *separator = " ";
    for (size_t i = 0; i < dtypes.n; i++) {
        table *of = table_where(gemm, "dtype", dtypes.v[i], NULL);
        size_t best = largest(of, "tflops");
        if (best != NO_ROW) {
            begin_or_more(doc, &separator);
            doc_more(doc, "%s GEMM %s TFLOP/s (n %s)", dtypes.v[i], number(table_real(of, best, "tflops")),
                     table_text(of, best, "size"));
        }
        table_free(of);
    }
    table *copy = rows_of(t, "copy_kernel"), *launch = rows_of(t, "launch");
    size_t largest_copy = largest(copy, "bytes"), best_launch = largest(launch, "time_us");
    if (largest_copy != NO_ROW) {
        begin_or_more(doc, &separator);
        doc_more(doc, "copy %s GB/s (read + written)", number(table_real(copy, largest_copy, "gb_s")));
    }
    if (best_launch != NO_ROW) {
        begin_or_more(doc, &separator);
        doc_more(doc, "launch of an empty kernel %s us", number(table_real(launch, best_launch, "time_us")));
    }
    if (strcmp(separator, ", ") == 0)
        doc_more(doc, ".");
    table_free(launch);
    table_free(copy);
    values_free(&dtypes);
    table_free(gemm);
    table_free(t);
}

static void gemm_table(document *doc, const table *t)
{
    values dtypes = table_values(t, "dtype"), sizes = table_values(t, "size");
    doc_paragraph(doc, "GEMM, TFLOP/s");
    doc_table(doc);
    doc_column(doc, DOC_NUMBER, "n");
    for (size_t d = 0; d < dtypes.n; d++)
        doc_column(doc, DOC_NUMBER, "%s", dtypes.v[d]);
    for (size_t s = 0; s < sizes.n; s++) {
        doc_row(doc, sizes.v[s], NULL);
        for (size_t d = 0; d < dtypes.n; d++) {
            size_t row = table_find(t, "size", sizes.v[s], "dtype", dtypes.v[d], NULL);
            doc_cells(doc, cell_number(t, row, "tflops", 1), NULL);
        }
    }
    values_free(&dtypes);
    values_free(&sizes);
}

static void other_table(document *doc, const table *t)
{
    doc_paragraph(doc, "Copies and launches");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "what", "GPUs", NULL);
    doc_columns(doc, DOC_NUMBER, "bytes", "us", "GB/s", NULL);
    values variants = table_values(t, "variant");
    for (size_t v = 0; v < variants.n; v++) {
        table *of = table_where(t, "variant", variants.v[v], NULL);
        for (size_t i = 0; i < of->n && strcmp(variants.v[v], "gemm") != 0; i++)
            doc_row(doc, variants.v[v], table_text(of, i, "pair"), table_text(of, i, "bytes"),
                    cell_number(of, i, "time_us", 1), cell_number(of, i, "gb_s", 1), NULL);
        table_free(of);
    }
    values_free(&variants);
}

/* The same library behind both: a ratio far from 1 says that one of them is not at its strength. */
static void peer_table(document *doc, const table *t, const csv *c)
{
    bool begun = false;
    for (size_t i = 0; c && i < c->rows; i++) {
        const size_t mine = cell_is(c, i, "bench", "gemm") ? roofline_peers_ours(t, c, i) : NO_ROW;
        if (mine == NO_ROW)
            continue;
        if (!begun) {
            doc_paragraph(doc, "GEMM beside PyTorch's, TFLOP/s. The ratio is theirs over ours.");
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "dtype", NULL);
            doc_columns(doc, DOC_NUMBER, "n", "PyTorch", "ours", "ratio", NULL);
        }
        begun = true;
        doc_row(doc, csv_cell(c, i, "dtype"), csv_cell(c, i, "size"), number(csv_real(c, i, "tflops")),
                cell_number(t, mine, "tflops", 1), NULL);
        doc_cell(doc, "%s", number(csv_real(c, i, "tflops") / table_real(t, mine, "tflops")));
    }
}

static const steady_part parts[] = {{.what = "",
                                     .unit = "us",
                                     .burst = "time_us",
                                     .sustained = "sustained_us",
                                     .sm_mhz = "sustained_sm_mhz",
                                     .power_w = "sustained_power_w",
                                     .burst_j = "energy_j",
                                     .sustained_j = "sustained_j",
                                     .burst_per_j = "tflop_per_j",
                                     .sustained_per_j = "sustained_tflop_per_j",
                                     .per_j = "TFLOP/J"},
                                    {0}};

static void write_section(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_roofline.csv");
    if (!t)
        return;
    table *gemm = table_where(t, "variant", "gemm", NULL);
    doc_heading(doc, 2, "bench_roofline: the ceilings of the machine");
    figures(doc, dir, "roofline");
    if (gemm->n)
        gemm_table(doc, gemm);
    csv *theirs = roofline_peers_open(dir);
    peer_table(doc, t, theirs);
    csv_free(theirs);
    other_table(doc, t);
    steady_tables(doc, t, parts);
    table_free(gemm);
    table_free(t);
}

static void compare(comparisons *to, const char *dir)
{
    table *t = open_result(dir, "bench_roofline.csv");
    if (!t)
        return;
    csv *theirs = roofline_peers_open(dir);
    table *gemm = table_where(t, "variant", "gemm", "status", "ok", NULL);
    values dtypes = table_values(gemm, "dtype");
    for (size_t i = 0; i < dtypes.n; i++)
        roofline_peers_compare(comparisons_begin(to, xasprintf("matrix product, %s", dtypes.v[i])), t, theirs, "gemm",
                               dtypes.v[i]);
    roofline_peers_compare(comparisons_begin(to, xstrdup("copy in memory")), t, theirs, "copy", NULL);
    values_free(&dtypes);
    table_free(gemm);
    csv_free(theirs);
    table_free(t);
}

static const readme_bench benches[] = {{.name = "bench_roofline",
                                        .order = 10,
                                        .question = "What is the most this machine can do?",
                                        .columns = {{"tflops", "", "TFLOP/s"}, {"gb_s", "", "GB/s"}},
                                        .only = {{"variant", "gemm"}, {"dtype", "bf16"}, {"size", "4096"}}},
                                       {.name = NULL}};

const report_section section_roofline = {
    .order = 30, .findings = findings, .write = write_section, .compare = compare, .benches = benches};
