/* SPDX-License-Identifier: MIT */
/* Problems about low precision: sums, dtypes under autocast, norms, and what a model gains. */
#include <math.h>
#include <string.h>

#include "common/report/sections/course/course.h"
#include "common/report/sections/course/rows.h"

static table *rows_of(const table *all, const char *variant)
{
    return table_where(all, "variant", variant, "status", "ok", NULL);
}

/* ---- mixed_precision_accumulation ---- */

static void accumulation(document *doc, const char *dir)
{
    static const struct {
        const char *pair, *what;
    } pairs[] = {{"fp32+fp32", "fp32, adding fp32"},
                 {"fp16+fp16", "fp16, adding fp16"},
                 {"fp32+fp16", "fp32, adding fp16"},
                 {"fp32+fp16-cast", "fp32, adding fp16 cast to fp32"}};
    enum { PAIRS = sizeof pairs / sizeof *pairs };
    table *all = open_result(dir, "bench_mixed_precision.csv");
    if (!all)
        return;
    table *sums = rows_of(all, "accumulation");
    table *t = table_where(sums, "sum", value_or_last(sums, "sum", "1000x0.01"), NULL);
    size_t rows[PAIRS], found = 0, worst = NO_ROW;
    for (size_t i = 0; i < PAIRS; i++) {
        rows[i] = table_find(t, "pair", pairs[i].pair, NULL);
        if (rows[i] == NO_ROW)
            continue;
        if (found++ == 0) {
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "the sum's dtype", NULL);
            doc_column(doc, DOC_NUMBER, "sum of %s", table_text(t, rows[i], "sum"));
            doc_columns(doc, DOC_NUMBER, "off by", NULL);
        }
        doc_row(doc, pairs[i].what, table_text(t, rows[i], "value"), number(table_real(t, rows[i], "err_abs")), NULL);
        if (worst == NO_ROW || table_real(t, rows[i], "err_abs") > table_real(t, worst, "err_abs"))
            worst = rows[i];
    }
    if (found == PAIRS) {
        const double fp32 = table_real(t, rows[0], "err_abs"), mixed = table_real(t, rows[2], "err_abs");
        const bool same = strcmp(table_text(t, rows[2], "value"), table_text(t, rows[3], "value")) == 0;
        if (worst == rows[1])
            doc_paragraph(doc, "The fp16 sum is off most: it rounds at every addition.");
        else
            doc_paragraph(doc, "Here the fp16 sum is not the one that is off most.");
        if (mixed > fp32)
            doc_more(doc,
                     " An fp32 sum of fp16 numbers is off %s times as far as one of fp32 numbers, because each "
                     "number was rounded when it was stored.",
                     number(mixed / fp32));
        doc_more(doc, " Casting them to fp32 first %s.",
                 same ? "changes nothing: the addition does that by itself" : "gives another sum");
    }
    table_free(t);
    table_free(sums);
    table_free(all);
}

/* ---- benchmarking_mixed_precision (a) ---- */

/* The dtype that all these tensors have, or "several". */
static const char *dtype_of(const table *t, const char *dtype, const char *const *tensors)
{
    const char *found = NULL;
    for (; *tensors; tensors++) {
        const size_t row = table_find(t, "dtype", dtype, "tensor", *tensors, NULL);
        const char *text = row == NO_ROW ? "-" : table_text(t, row, "tensor_dtype");
        if (found && strcmp(found, text) != 0)
            return "several";
        found = text;
    }
    return found;
}

static void autocast(document *doc, const char *dir)
{
    static const struct {
        const char *what, *tensors[5];
    } groups[] = {{"the parameters", {"fc1.weight", "ln.weight", "ln.bias", "fc2.weight"}},
                  {"output of the first layer", {"fc1"}},
                  {"output of the layer norm", {"ln"}},
                  {"the logits", {"logits"}},
                  {"the loss", {"loss"}},
                  {"the gradients", {"fc1.weight.grad", "ln.weight.grad", "ln.bias.grad", "fc2.weight.grad"}}};
    static const char *const dtypes[] = {"fp16", "bf16"};
    table *all = open_result(dir, "bench_mixed_precision.csv");
    if (!all)
        return;
    table *t = rows_of(all, "autocast");
    size_t expected = 0;
    for (size_t i = 0; i < t->n; i++)
        expected += strcmp(table_text(t, i, "tensor_dtype"), table_text(t, i, "expected_dtype")) == 0;
    if (t->n) {
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "tensor", "autocast to fp16", "to bf16", NULL);
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
            doc_row(doc, groups[g].what, NULL);
            for (size_t d = 0; d < 2; d++)
                doc_cells(doc, dtype_of(t, dtypes[d], groups[g].tensors), NULL);
        }
        doc_paragraph(doc, "%zu of %zu tensors have the dtype that autocast gives them in PyTorch.", expected, t->n);
    }
    table_free(t);
    table_free(all);
}

/* ---- benchmarking_mixed_precision (b) ---- */

/* A norm of x in one dtype, its statistics in fp32 and in that dtype, at the largest width. */
static void norm_row(document *doc, const table *t, const char *dtype, const char *statistics, const char *small,
                     const char *large)
{
    const char *const magnitudes[] = {small, large};
    doc_row(doc, dtype, strcmp(statistics, "fp32") == 0 ? "fp32" : dtype, NULL);
    for (size_t m = 0; m < 2; m++) {
        const size_t r = table_find(t, "dtype", dtype, "statistics", statistics, "magnitude", magnitudes[m], NULL);
        doc_cell(doc, "%s", number(table_real(t, r, "err_rel")));
        if (table_real(t, r, "rows_overflowed") > 0)
            doc_more(doc, ", %.0f rows overflow", table_real(t, r, "rows_overflowed"));
    }
}

static void norm_sentence(document *doc, const table *t, const char *one, const char *large)
{
    const size_t fp16 = table_find(t, "dtype", "fp16", "statistics", "own-sums", "magnitude", large, NULL);
    const size_t bf16 = table_find(t, "dtype", "bf16", "statistics", "own-sums", "magnitude", large, NULL);
    const size_t own = table_find(t, "dtype", "bf16", "statistics", "own-sums", "magnitude", one, NULL);
    const size_t exact = table_find(t, "dtype", "bf16", "statistics", "fp32", "magnitude", one, NULL);
    if (fp16 == NO_ROW || bf16 == NO_ROW || own == NO_ROW || exact == NO_ROW)
        return;
    const double lost = table_real(t, fp16, "rows_overflowed"), kept = table_real(t, bf16, "rows_overflowed");
    const double ratio = table_real(t, own, "err_rel") / table_real(t, exact, "err_rel");
    if (!isfinite(ratio))
        return;
    doc_paragraph(doc, "What is sensitive is the sum of squares.");
    if (lost > 0)
        doc_more(doc, " In fp16 it overflows at magnitude %s, in %.0f rows.", large, lost);
    doc_more(doc, " In bf16 it %s", kept > 0 ? "overflows, too" : "does not overflow");
    doc_more(doc, ", but its sum in 16 bits makes the result %s times less exact than one in fp32.", number(ratio));
    doc_more(doc, " So a norm's statistics %s under bf16.", ratio > 2 ? "stay in fp32" : "may be in 16 bits");
}

static void norms(document *doc, const char *dir)
{
    static const char *const dtypes[] = {"fp16", "bf16"};
    table *all = open_result(dir, "bench_mixed_precision.csv");
    if (!all)
        return;
    table *every = rows_of(all, "norm"), *layer = table_where(every, "norm", "layer", NULL);
    values widths = table_values(layer, "width"), magnitudes = table_values(layer, "magnitude");
    if (layer->n && magnitudes.n > 1) {
        const char *one = value_or_last(layer, "magnitude", "1"), *large = magnitudes.v[magnitudes.n - 1];
        const char *width = "";
        for (size_t w = 0; w < widths.n; w++) /* the widest that has every magnitude */
            if (table_find(layer, "width", widths.v[w], "magnitude", large, NULL) != NO_ROW)
                width = widths.v[w];
        table *t = table_where(layer, "width", width, NULL);
        doc_paragraph(doc, "LayerNorm of width %s: relative error of the result", width);
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "x", "statistics", NULL);
        doc_column(doc, DOC_NUMBER, "magnitude %s", one);
        doc_column(doc, DOC_NUMBER, "magnitude %s", large);
        for (size_t d = 0; d < 2; d++) {
            norm_row(doc, t, dtypes[d], "fp32", one, large);
            norm_row(doc, t, dtypes[d], "own-sums", one, large);
        }
        norm_sentence(doc, t, one, large);
        table_free(t);
    }
    values_free(&magnitudes);
    values_free(&widths);
    table_free(layer);
    table_free(every);
    table_free(all);
}

/* ---- benchmarking_mixed_precision (c) ---- */

static void speedups(document *doc, const char *dir)
{
    static const struct {
        const char *what, *time, *speedup;
    } parts[] = {{"forward", "fwd_ms", "speedup_fwd"},
                 {"backward", "bwd_ms", "speedup_bwd"},
                 {"full step", "step_ms", "speedup_step"}};
    table *all = open_result(dir, "bench_mixed_precision.csv");
    if (!all)
        return;
    table *timing = rows_of(all, "timing"), *t = plain_rows(timing);
    values sizes = sizes_in_order(t), lengths = table_values(t, "seq");
    double before = NAN, least = NAN, most = NAN;
    bool begun = false, grows = true;
    size_t compared = 0; /* sizes at the longest context */
    for (size_t i = 0; i < sizes.n * lengths.n; i++) {
        const char *size = sizes.v[i / lengths.n], *seq = lengths.v[i % lengths.n];
        const size_t a = table_find(t, "size", size, "seq", seq, "precision", "fp32", NULL);
        const size_t b = table_find(t, "size", size, "seq", seq, "precision", "bf16", NULL);
        if (a == NO_ROW || b == NO_ROW)
            continue;
        if (!begun) {
            doc_paragraph(doc, "fp32 ms / bf16 ms = speed-up");
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "size", NULL);
            doc_columns(doc, DOC_NUMBER, "context", NULL);
            for (size_t p = 0; p < 3; p++)
                doc_columns(doc, DOC_NUMBER, parts[p].what, NULL);
        }
        begun = true;
        doc_row(doc, size, seq, NULL);
        for (size_t p = 0; p < 3; p++)
            doc_cell(doc, "%s / %s = %s", number(table_real(t, a, parts[p].time)),
                     number(table_real(t, b, parts[p].time)), number(table_real(t, b, parts[p].speedup)));
        const double step = table_real(t, b, "speedup_step");
        if (i % lengths.n == lengths.n - 1) {
            grows = grows && !(step < before);
            before = step;
            compared++;
        }
        least = fmin(least, step);
        most = fmax(most, step);
    }
    if (begun)
        doc_paragraph(doc, "A bf16 step is %s times as fast as one of fp32 with fused multiply-adds%s.",
                      range_text(least, most),
                      compared < 2 ? ""
                      : grows      ? "; the speed-up grows with the size"
                                   : "; the speed-up does not always grow with the size");
    values_free(&sizes);
    values_free(&lengths);
    table_free(t);
    table_free(timing);
    table_free(all);
}

const course_problem course_precision[] = {
    {"mixed_precision_accumulation", "2025, 2026", "Sums of the same number", accumulation},
    {"benchmarking_mixed_precision (a)", "2025, 2026", "Dtypes under autocast", autocast},
    {"benchmarking_mixed_precision (b)", "2025, 2026", "Norms with statistics in 16 bits", norms},
    {"benchmarking_mixed_precision (c)", "2025, 2026", "Speed-up over fp32", speedups},
    {.name = NULL}};
