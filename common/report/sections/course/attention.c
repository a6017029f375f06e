/* SPDX-License-Identifier: MIT */
/* Problems about attention, and about what fusion gives. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/sections/course/course.h"
#include "common/report/sections/course/rows.h"
#include "common/report/sentences.h"

static const char *const shapes[] = {"seq", "head_dim", NULL}, *const shapes_dtypes[] = {"seq", "head_dim", "dtype",
                                                                                         NULL};

static size_t at(const table *t, const char *variant, const char *seq, const char *dim)
{
    return table_find(t, "variant", variant, "seq", seq, "head_dim", dim, NULL);
}

static bool ran(const table *t, size_t row)
{
    return row != NO_ROW && strcmp(table_text(t, row, "status"), "ok") == 0;
}

/* ---- pytorch_attention ---- */

/* How memory grows over the last two lengths, and over the head dimensions. */
static void say_growth(document *doc, const table *t, const values *lengths, const values *dims)
{
    const char *widest = dims->v[dims->n - 1], *thinnest = dims->v[0];
    size_t last = lengths->n;
    while (last > 0 && !ran(t, at(t, "unfused", lengths->v[last - 1], widest)))
        last--;
    if (last < 2)
        return;
    const char *seq = lengths->v[last - 1], *shorter = lengths->v[last - 2];
    const size_t row = at(t, "unfused", seq, widest), before = at(t, "unfused", shorter, widest);
    const double grows = table_real(t, row, "mem_before_bwd_bytes") / table_real(t, before, "mem_before_bwd_bytes");
    const double square = pow(strtod(seq, NULL) / strtod(shorter, NULL), 2);
    doc_more(doc, " From S %s to %s the memory held before the backward grows %s times%s.", shorter, seq, number(grows),
             grows > 0.9 * square ? ", with the square of S" : "");
    const size_t thin = at(t, "unfused", seq, thinnest), flash = at(t, "flash", seq, widest);
    if (ran(t, thin) && dims->n > 1)
        doc_more(doc, " From D %s to %s it grows %s times.", thinnest, widest,
                 number(table_real(t, row, "mem_before_bwd_bytes") / table_real(t, thin, "mem_before_bwd_bytes")));
    if (ran(t, flash))
        doc_more(doc, " Attention that never stores the S by S matrix holds %s there instead of %s.",
                 number_unit(table_real(t, flash, "mem_before_bwd_bytes"), "bytes"),
                 number_unit(table_real(t, row, "mem_before_bwd_bytes"), "bytes"));
}

static void pytorch_attention(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_attention.csv");
    if (!all)
        return;
    table *t = table_main_slice(all, shapes, NULL), *unfused = table_where(t, "variant", "unfused", NULL);
    values lengths = table_values(unfused, "seq"), dims = table_values(unfused, "head_dim");
    if (unfused->n) {
        char *shape = table_shape(t, shapes);
        const char *widest = dims.v[dims.n - 1];
        size_t oom = 0, first = NO_ROW;
        for (size_t i = 0; i < unfused->n; i++)
            if (strcmp(table_text(unfused, i, "status"), "oom") == 0) {
                oom++;
                if (first == NO_ROW || table_real(unfused, i, "seq") < table_real(unfused, first, "seq"))
                    first = i;
            }
        doc_table(doc);
        doc_columns(doc, DOC_NUMBER, "D", "S", "forward ms", "backward ms", "MiB before the backward", "peak MiB",
                    NULL);
        for (size_t s = 0; s < lengths.n; s++) {
            const size_t r = at(t, "unfused", lengths.v[s], widest);
            if (r != NO_ROW)
                doc_row(doc, widest, lengths.v[s], cell_number(t, r, "fwd_ms", 1), cell_number(t, r, "bwd_ms", 1),
                        cell_number(t, r, "mem_before_bwd_bytes", MIB), cell_number(t, r, "peak_bytes", MIB), NULL);
        }
        doc_paragraph(doc, "Unfused attention, %s, one head.", shape);
        if (oom)
            doc_more(doc, " %zu of %zu cases are out of memory, the shortest at S %s, D %s.", oom, unfused->n,
                     table_text(unfused, first, "seq"), table_text(unfused, first, "head_dim"));
        else
            doc_more(doc, " None of %zu cases is out of memory.", unfused->n);
        say_growth(doc, t, &lengths, &dims);
        free(shape);
    }
    values_free(&dims);
    values_free(&lengths);
    table_free(unfused);
    table_free(t);
    table_free(all);
}

/* ---- torch_compile (a) ---- */

/* Ratio of a column of two variants at a shape. */
static double ratio_at(const table *t, const char *slow, const char *fast, const char *seq, const char *dim,
                       const char *column)
{
    const size_t a = at(t, slow, seq, dim), b = at(t, fast, seq, dim);
    return table_beside(t, a, t, b) ? table_real(t, a, column) / table_real(t, b, column) : NAN;
}

static void fused_attention(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_attention.csv");
    if (!all)
        return;
    table *t = table_main_slice(all, shapes, NULL);
    values lengths = table_values(t, "seq"), dims = table_values(t, "head_dim");
    const char *widest = dims.n ? dims.v[dims.n - 1] : "";
    double low[2] = {NAN, NAN}, high[2] = {NAN, NAN};
    bool begun = false;
    for (size_t s = 0; s < lengths.n; s++) {
        const size_t a = at(t, "unfused", lengths.v[s], widest), b = at(t, "fused", lengths.v[s], widest);
        if (a == NO_ROW || b == NO_ROW)
            continue;
        if (!begun) {
            doc_paragraph(doc, "Attention, ms: unfused / fused");
            doc_table(doc);
            doc_columns(doc, DOC_NUMBER, "D", "S", "forward", "backward", NULL);
        }
        begun = true;
        doc_row(doc, widest, lengths.v[s], NULL);
        doc_cell(doc, "%s / %s", cell_number(t, a, "fwd_ms", 1), cell_number(t, b, "fwd_ms", 1));
        doc_cell(doc, "%s / %s", cell_number(t, a, "bwd_ms", 1), cell_number(t, b, "bwd_ms", 1));
    }
    for (size_t i = 0; i < lengths.n * dims.n; i++)
        for (size_t p = 0; p < 2; p++) {
            const double ratio =
                ratio_at(t, "unfused", "fused", lengths.v[i / dims.n], dims.v[i % dims.n], p ? "bwd_ms" : "fwd_ms");
            low[p] = fmin(low[p], ratio);
            high[p] = fmax(high[p], ratio);
        }
    if (begun && isfinite(low[0])) {
        doc_paragraph(doc, "Over all shapes, fused attention is %s times as fast in the forward",
                      range_text(low[0], high[0]));
        if (isfinite(low[1]))
            doc_more(doc, " and %s times in the backward", range_text(low[1], high[1]));
        doc_more(doc, ".");
    }
    values_free(&dims);
    values_free(&lengths);
    table_free(t);
    table_free(all);
}

/* ---- torch_compile (b) ---- */

static void fused_model(document *doc, const char *dir)
{
    static const char *const levels[] = {"none", "kernels", "graph"};
    static const char *const parts[][2] = {{"fwd_ms", "forward"}, {"step_ms", "full step"}};
    table *all = open_result(dir, "bench_transformer.csv");
    if (!all)
        return;
    table *plain = plain_rows(all), *steps = table_where(plain, "mode", "train-step", NULL);
    table *none = table_where(steps, "variant", "none", NULL); /* the sweep with all levels */
    const char *seq = value_or_last(none, "seq", "512"), *precision = value_or_last(none, "precision", "bf16");
    table *t = table_where(steps, "seq", seq, "precision", precision, NULL);
    values sizes = sizes_in_order(t);
    double low[2] = {NAN, NAN}, high[2] = {NAN, NAN};
    const char *best = "";
    bool begun = false;
    for (size_t i = 0; i < sizes.n && none->n; i++) {
        size_t rows[3];
        for (size_t v = 0; v < 3; v++)
            rows[v] = table_find(t, "size", sizes.v[i], "variant", levels[v], NULL);
        const size_t most = rows[2] == NO_ROW ? rows[1] : rows[2];
        if (rows[0] == NO_ROW || most == NO_ROW)
            continue;
        if (!begun) {
            doc_paragraph(doc, "A model, %s, batch 4, context %s, ms: op by op / fused kernels / these as one graph",
                          precision, seq);
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "size", NULL);
            doc_columns(doc, DOC_NUMBER, parts[0][1], parts[1][1], NULL);
        }
        begun = true;
        best = table_text(t, most, "variant");
        doc_row(doc, sizes.v[i], NULL);
        for (size_t p = 0; p < 2; p++) {
            doc_cell(doc, "%s / %s / %s", number(table_real(t, rows[0], parts[p][0])),
                     number(table_real(t, rows[1], parts[p][0])), number(table_real(t, rows[2], parts[p][0])));
            const double ratio = table_real(t, rows[0], parts[p][0]) / table_real(t, most, parts[p][0]);
            if (table_beside(t, rows[0], t, most)) {
                low[p] = fmin(low[p], ratio);
                high[p] = fmax(high[p], ratio);
            }
        }
    }
    if (isfinite(low[0]) && isfinite(low[1])) {
        doc_paragraph(doc, "Against op by op, a forward is %s times as fast with %s", range_text(low[0], high[0]),
                      strcmp(best, "graph") == 0 ? "fused kernels in one graph" : "fused kernels");
        doc_more(doc, " and a full step %s times.", range_text(low[1], high[1]));
    }
    values_free(&sizes);
    table_free(t);
    table_free(none);
    table_free(steps);
    table_free(plain);
    table_free(all);
}

/* ---- flash_forward, flash_backward ---- */

/* The largest, where a row has one. */
static void error_cell(document *doc, const table *t, const char *column)
{
    const size_t row = largest(t, column);
    if (row == NO_ROW)
        doc_blank(doc);
    else
        doc_cell(doc, "%.1e", table_real(t, row, column));
}

/* Each variant and dtype with the largest of these errors over all of its cases. */
static void verified(document *doc, const char *dir, const char *const *errors, const char *const *names)
{
    static const char *const variants[] = {"flash", "flash_portable"};
    table *t = open_result(dir, "bench_flash.csv");
    if (!t)
        return;
    values dtypes = table_values(t, "dtype");
    size_t passed = 0, failed = 0;
    for (size_t v = 0; v < 2; v++)
        for (size_t d = 0; d < dtypes.n; d++) {
            table *of = table_where(t, "variant", variants[v], "dtype", dtypes.v[d], NULL);
            table *ok = table_where(of, "status", "ok", "check", "1", NULL);
            table *bad = table_where(of, "status", "fail", NULL);
            failed += bad->n;
            if (ok->n) {
                if (passed == 0) {
                    doc_table(doc);
                    doc_columns(doc, DOC_TEXT, "variant", "dtype", NULL);
                    doc_columns(doc, DOC_NUMBER, "cases", NULL);
                    for (size_t e = 0; errors[e]; e++)
                        doc_columns(doc, DOC_NUMBER, names[e], NULL);
                }
                passed += ok->n;
                doc_row(doc, variants[v], dtypes.v[d], NULL);
                doc_cell(doc, "%zu", ok->n);
                for (size_t e = 0; errors[e]; e++)
                    error_cell(doc, ok, errors[e]);
            }
            table_free(bad);
            table_free(ok);
            table_free(of);
        }
    if (passed)
        doc_paragraph(doc, "The largest relative L2 error against attention in fp64. %s %zu cases agree with it.",
                      failed ? "Only" : "All", passed);
    if (failed)
        doc_paragraph(doc, "%zu cases do not agree with attention in fp64.", failed);
    values_free(&dtypes);
    table_free(t);
}

static void flash_forward(document *doc, const char *dir)
{
    static const char *const errors[] = {"err_fwd", NULL}, *const names[] = {"error of o"};
    verified(doc, dir, errors, names);
}

static void flash_backward(document *doc, const char *dir)
{
    static const char *const errors[] = {"err_dq", "err_dk", "err_dv", NULL};
    static const char *const names[] = {"error of dq", "of dk", "of dv"};
    verified(doc, dir, errors, names);
}

/* ---- flash_benchmarking ---- */

static void flash_benchmarking(document *doc, const char *dir)
{
    static const char *const parts[][2] = {
        {"fwd_ms", "forward"}, {"bwd_ms", "backward"}, {"fwd_bwd_ms", "forward and backward"}};
    table *all = open_result(dir, "bench_flash.csv");
    if (!all)
        return;
    table *t = table_main_slice(all, shapes_dtypes, NULL);
    const char *main_dtype = value_or_last(t, "dtype", "bf16");
    table *of = table_where(t, "dtype", main_dtype, NULL);
    values lengths = table_values(of, "seq"), dims = table_values(of, "head_dim"), dtypes = table_values(t, "dtype");
    const char *widest = dims.n ? dims.v[dims.n - 1] : "";
    bool begun = false;
    table **of_length = table_split(of, "seq", &lengths);
    for (size_t s = 0; s < lengths.n; table_free(of_length[s++])) {
        const table *here = of_length[s];
        const size_t unfused = at(here, "unfused", lengths.v[s], widest),
                     flash = at(here, "flash", lengths.v[s], widest);
        if (unfused == NO_ROW || flash == NO_ROW)
            continue;
        if (!begun) {
            char *shape = table_shape(t, shapes_dtypes);
            doc_paragraph(doc, "%s, D %s, %s, ms: unfused / flash", main_dtype, widest, shape);
            free(shape);
            doc_table(doc);
            doc_columns(doc, DOC_NUMBER, "S", parts[0][1], parts[1][1], parts[2][1], "speed-up of both", NULL);
        }
        begun = true;
        doc_row(doc, lengths.v[s], NULL);
        for (size_t p = 0; p < 3; p++)
            doc_cell(doc, "%s / %s", cell_number(here, unfused, parts[p][0], 1),
                     cell_number(here, flash, parts[p][0], 1));
        doc_cells(doc, number(table_real(here, flash, "speedup_fwd_bwd")), NULL);
    }
    for (size_t d = 0; begun && d < dtypes.n; d++) {
        table *each = table_where(t, "dtype", dtypes.v[d], NULL);
        document *said = doc_create("");
        say_flash(said, each);
        if (!doc_empty(said))
            doc_paragraph(doc, "%s, over all shapes:", dtypes.v[d]);
        doc_append(doc, said);
        table_free(each);
    }
    free(of_length);
    values_free(&dtypes);
    values_free(&dims);
    values_free(&lengths);
    table_free(of);
    table_free(t);
    table_free(all);
}

const course_problem course_attention[] = {
    {"pytorch_attention", "2025, 2026", "bench_attention: what unfused attention costs", pytorch_attention},
    {"torch_compile (a)", "2025, 2026", "bench_attention: what unfused attention costs", fused_attention},
    {"torch_compile (b)", "2025, 2026", "bench_transformer: a whole training step", fused_model},
    {"flash_forward", "2025, 2026", "bench_flash: FlashAttention against unfused attention", flash_forward},
    {"flash_backward", "2025, 2026", "bench_flash: FlashAttention against unfused attention", flash_backward},
    {"flash_benchmarking", "2025, 2026", "bench_flash: FlashAttention against unfused attention", flash_benchmarking},
    {.name = NULL}};
