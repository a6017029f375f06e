/* SPDX-License-Identifier: MIT */
/* The problem about the time of an all-reduce. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/sections/course/course.h"

static const char *const sizes[] = {"1000000", "10000000", "100000000", "1000000000", NULL}; /* the handout's */
static const char *const size_names[] = {"1 MB", "10 MB", "100 MB", "1 GB"};
enum { SIZES = sizeof size_names / sizeof *size_names };

/* The library and device of a line of the table. */
static const char *const kinds[][2] = {{"cuda", "NCCL, GPUs"}, {"cpu", "Gloo, CPUs"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static table *rows_of(const table *all, const char *device)
{
    table *t = table_where(all, "variant", "all-reduce", "status", "ok", "dtype", "fp32", "mode", "eager", "in_place",
                           "1", "device", device, NULL);
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++) {
        const char *backend = table_text(t, i, "backend");
        if (names_have(sizes, table_text(t, i, "bytes")) &&
            strncmp(backend, strcmp(device, "cuda") == 0 ? "nccl" : "gloo", 4) == 0)
            t->rows[kept++] = t->rows[i];
    }
    t->n = kept;
    return t;
}

static size_t row_at(const table *t, const char *ranks, size_t size)
{
    return table_find(t, "ranks", ranks, "bytes", sizes[size], NULL);
}

static double ms_at(const table *t, size_t row)
{
    return table_real(t, row, "median_ms");
}

static void add_rows(document *doc, const table *t, const char *name)
{
    values ranks = table_values(t, "ranks");
    for (size_t r = 0; r < ranks.n; r++) {
        doc_row(doc, name, ranks.v[r], NULL);
        for (size_t s = 0; s < SIZES; s++) {
            const size_t row = row_at(t, ranks.v[r], s);
            if (row == NO_ROW)
                doc_blank(doc);
            else
                doc_cell(doc, "%s ± %s, %s", number(ms_at(t, row)), number(table_real(t, row, "std_ms")),
                         number(table_real(t, row, "busbw_gb_s")));
        }
    }
    values_free(&ranks);
}

/* Ten times the bytes take less than ten times as long as long as latency counts. */
static void add_growth_of_size(document *doc, const table *t, const char *ranks)
{
    bool any = false;
    for (size_t s = 1; s < SIZES; s++) {
        const size_t small = row_at(t, ranks, s - 1), large = row_at(t, ranks, s);
        if (!table_beside(t, small, t, large))
            continue;
        if (!any)
            doc_more(doc, " on %s ranks", ranks);
        doc_more(doc, "%s %s takes %s times as long as %s", any ? "," : "", size_names[s],
                 number(ms_at(t, large) / ms_at(t, small)), size_names[s - 1]);
        any = true;
    }
    if (any)
        doc_more(doc, ".");
}

/* More ranks pass on more: 2 (n - 1)/n of the vector. */
static void add_growth_of_ranks(document *doc, const table *t, const values *ranks)
{
    const char *few = ranks->v[0], *many = ranks->v[ranks->n - 1];
    const double n = strtod(few, NULL), m = strtod(many, NULL);
    const size_t a = row_at(t, few, SIZES - 1), b = row_at(t, many, SIZES - 1);
    if (ranks->n > 1 && table_beside(t, a, t, b))
        doc_more(doc, " For %s %s ranks take %s times as long as %s, where a ring sends %s times as much per rank.",
                 size_names[SIZES - 1], many, number(ms_at(t, b) / ms_at(t, a)), few,
                 number((m - 1) / m / ((n - 1) / n)));
}

static void add_growth(document *doc, const table *t, const char *name)
{
    values ranks = table_values(t, "ranks");
    if (ranks.n) {
        document *growth = doc_create("");
        doc_paragraph(growth, "%s:", name);
        add_growth_of_size(growth, t, ranks.v[ranks.n - 1]);
        add_growth_of_ranks(growth, t, &ranks);
        doc_append(doc, growth);
    }
    values_free(&ranks);
}

/* Gloo's time for the largest size over NCCL's, on as many ranks of one run. */
static void add_libraries(document *doc, const table *nccl, const table *gloo)
{
    values ranks = table_values(nccl, "ranks");
    for (size_t r = 0; r < ranks.n; r++) {
        const size_t a = row_at(nccl, ranks.v[r], SIZES - 1), b = row_at(gloo, ranks.v[r], SIZES - 1);
        if (table_beside(nccl, a, gloo, b))
            doc_paragraph(doc, "On %s ranks Gloo takes %s times as long as NCCL for %s.", ranks.v[r],
                          number(ms_at(gloo, b) / ms_at(nccl, a)), size_names[SIZES - 1]);
    }
    values_free(&ranks);
}

static void distributed_communication(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_allreduce.csv");
    if (!all)
        return;
    table *t[KINDS];
    size_t rows = 0;
    for (size_t k = 0; k < KINDS; k++) {
        t[k] = rows_of(all, kinds[k][0]);
        rows += t[k]->n;
    }
    if (rows) {
        doc_paragraph(doc,
                      "All-reduce of fp32, called eagerly and in place: median ms ± standard deviation, GB/s on the "
                      "bus.");
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "library", NULL);
        doc_columns(doc, DOC_NUMBER, "ranks", NULL);
        for (size_t s = 0; s < SIZES; s++)
            doc_columns(doc, DOC_NUMBER, size_names[s], NULL);
    }
    for (size_t k = 0; k < KINDS; k++)
        add_rows(doc, t[k], kinds[k][1]);
    for (size_t k = 0; k < KINDS; k++)
        add_growth(doc, t[k], kinds[k][1]);
    add_libraries(doc, t[0], t[1]);
    for (size_t k = 0; k < KINDS; k++)
        table_free(t[k]);
    table_free(all);
}

const course_problem course_communication[] = {
    {"distributed_communication_single_node", "2025, 2026", "bench_allreduce: collectives", distributed_communication},
    {.name = NULL}};
