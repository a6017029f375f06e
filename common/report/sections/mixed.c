/* SPDX-License-Identifier: MIT */
/* bench_mixed_precision in the report: sums, dtypes under autocast, norms and speed-ups, with what they say. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/section.h"

static table *rows_of(const table *all, const char *variant)
{
    return table_where(all, "variant", variant, NULL);
}

/* The distinct values of a column, those of `order` first and in that order. */
static values in_order(const table *t, const char *column, const char *const *order)
{
    values list = table_values(t, column);
    for (size_t n = 0; n < list.n && *order; order++)
        for (size_t i = n; i < list.n; i++)
            if (strcmp(list.v[i], *order) == 0) {
                const char *found = list.v[i];
                memmove(&list.v[n + 1], &list.v[n], (i - n) * sizeof *list.v);
                list.v[n++] = found;
                break;
            }
    return list;
}

static const char *const dtype_order[] = {"fp32", "fp16", "bf16", NULL};

/* ---- sums ---- */

static void sum_cell(document *doc, const table *t, const char *pair, const char *sum)
{
    size_t r = table_find(t, "pair", pair, "sum", sum, NULL);
    const char *status = table_text(t, r, "status");
    if (*status && strcmp(status, "ok") != 0) {
        doc_cell(doc, "%s", status);
        return;
    }
    double stalls = table_real(t, r, "stalls_after");
    doc_cell(doc, "%s", r == NO_ROW ? "-" : table_text(t, r, "value"));
    if (isfinite(stalls))
        doc_more(doc, ", stalls after %.0f", stalls);
}

static void add_sums(document *doc, const table *t)
{
    static const char *const order[] = {"fp32+fp32",      "fp16+fp16",  "fp32+fp16",
                                        "fp32+fp16-cast", "bf16+bf16",  "fp32+bf16",
                                        "fp16-kahan",     "bf16-kahan", NULL};
    if (!t->n)
        return;
    values sums = table_values(t, "sum"), pairs = in_order(t, "pair", order);
    doc_heading(doc, 3, "Sums of the same number");
    doc_paragraph(doc,
                  "The dtype of the sum decides. An fp32 sum of 16-bit numbers is off by what each number lost when "
                  "it\nwas stored; a 16-bit sum loses at every addition, and stalls once the number is less than half "
                  "a\nstep of it. Carrying the lost part along (Kahan) fixes that, at four operations instead of one.");
    doc_table(doc);
    doc_column(doc, DOC_TEXT, "sum + addend");
    for (size_t i = 0; i < sums.n; i++)
        doc_column(doc, DOC_NUMBER, "%s", sums.v[i]);
    for (size_t p = 0; p < pairs.n; p++) {
        doc_row(doc, pairs.v[p], NULL);
        for (size_t i = 0; i < sums.n; i++)
            sum_cell(doc, t, pairs.v[p], sums.v[i]);
    }
    values_free(&sums);
    values_free(&pairs);
}

/* ---- autocast ---- */

static void add_autocast(document *doc, const table *t)
{
    static const char *const order[] = {
        "fc1.weight",      "ln.weight",      "ln.bias",      "fc2.weight",      "fc1", "relu", "ln", "logits", "loss",
        "fc1.weight.grad", "ln.weight.grad", "ln.bias.grad", "fc2.weight.grad", NULL};
    if (!t->n)
        return;
    values dtypes = in_order(t, "dtype", dtype_order), tensors = in_order(t, "tensor", order);
    doc_heading(doc, 3, "Dtypes under autocast");
    doc_paragraph(doc,
                  "Linear layers run in the 16-bit dtype, on tensor cores, and ReLU in the dtype it is "
                  "given.\nLayerNorm and the loss stay in fp32, because they subtract, square, sum and exponentiate: "
                  "the table\nbelow this one says what that costs in 16 bits. Parameters stay in fp32, and so do their "
                  "gradients,\nor small updates would be lost. Each cell: dtype, relative error against double.");
    doc_table(doc);
    doc_column(doc, DOC_TEXT, "tensor");
    for (size_t d = 0; d < dtypes.n; d++)
        doc_column(doc, DOC_NUMBER, "%s", dtypes.v[d]);
    for (size_t i = 0; i < tensors.n; i++) {
        doc_row(doc, tensors.v[i], NULL);
        for (size_t d = 0; d < dtypes.n; d++) {
            size_t r = table_find(t, "tensor", tensors.v[i], "dtype", dtypes.v[d], NULL);
            doc_cell(doc, "%s, %s", r == NO_ROW ? "-" : table_text(t, r, "tensor_dtype"),
                     cell_number(t, r, "err_rel", 1));
        }
    }
    values_free(&dtypes);
    values_free(&tensors);
}

/* ---- norms ---- */

/* The value nearest to 1, in ratio. */
static const char *nearest_one(const values *list)
{
    const char *best = list->n ? list->v[0] : "";
    for (size_t i = 1; i < list->n; i++)
        if (fabs(log(strtod(list->v[i], NULL))) < fabs(log(strtod(best, NULL))))
            best = list->v[i];
    return best;
}

static void norm_cell(document *doc, const table *t, const char *width, const char *magnitude)
{
    size_t r = table_find(t, "width", width, "magnitude", magnitude, NULL);
    double rows = table_real(t, r, "rows_overflowed");
    doc_cell(doc, "%s", cell_number(t, r, "err_rel", 1));
    if (rows > 0)
        doc_more(doc, ", %.0f rows overflow", rows);
}

/* Every width at one magnitude, then the other magnitudes at the largest width. */
static void norm_table(document *doc, const table *t)
{
    values widths = table_values(t, "width"), magnitudes = table_values(t, "magnitude");
    values dtypes = in_order(t, "dtype", dtype_order), statistics = table_values(t, "statistics");
    const char *one = nearest_one(&magnitudes), *widest = widths.v[widths.n - 1];
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "x", "statistics", NULL);
    for (size_t i = 0; i < widths.n; i++)
        doc_column(doc, DOC_NUMBER, "width %s, magnitude %s", widths.v[i], one);
    for (size_t i = 0; i < magnitudes.n; i++)
        if (magnitudes.v[i] != one)
            doc_column(doc, DOC_NUMBER, "width %s, magnitude %s", widest, magnitudes.v[i]);
    doc_column(doc, DOC_NUMBER, "eps %s as stored; smallest power of ten", table_text(t, 0, "eps"));
    for (size_t d = 0; d < dtypes.n; d++)
        for (size_t s = 0; s < statistics.n; s++) {
            table *of = table_where(t, "dtype", dtypes.v[d], "statistics", statistics.v[s], NULL);
            doc_row(doc, dtypes.v[d], statistics.v[s], NULL);
            for (size_t i = 0; i < widths.n; i++)
                norm_cell(doc, of, widths.v[i], one);
            for (size_t i = 0; i < magnitudes.n; i++)
                if (magnitudes.v[i] != one)
                    norm_cell(doc, of, widest, magnitudes.v[i]);
            doc_cell(doc, "%.5g; %.0e", table_real(of, of->n ? 0 : NO_ROW, "eps_stored"),
                     table_real(of, of->n ? 0 : NO_ROW, "eps_smallest"));
            table_free(of);
        }
    values_free(&widths);
    values_free(&magnitudes);
    values_free(&dtypes);
    values_free(&statistics);
}

static void add_norms(document *doc, const table *all, const char *dir)
{
    static const char *const axes[] = {"norm", "dtype", "statistics", "width", "magnitude", NULL};
    if (!all->n)
        return;
    table *t = table_main_slice(all, axes, NULL);
    values norms = table_values(t, "norm");
    doc_heading(doc, 3, "Norms with statistics in 16 bits");
    doc_paragraph(doc,
                  "Relative error of y against double. %s: squares, their mean and the root are stored in the "
                  "dtype\nof x; %s: they are also summed in it. In fp16 the square of 256 overflows, and the whole row "
                  "is\nlost; an eps of 1e-5 is a subnormal number there, and one of 1e-8 is zero. bf16 has the range "
                  "of fp32,\nwhich fixes both, but fewer digits than fp16: a sum of squares stalls after some hundreds "
                  "of\nterms. So statistics belong in fp32 under bf16, too.",
                  code("own"), code("own-sums"));
    figures(doc, dir, "mixed_norm");
    for (size_t i = 0; i < norms.n; i++) {
        table *of = table_where(t, "norm", norms.v[i], NULL);
        doc_paragraph(doc, "%s", strcmp(norms.v[i], "rms") == 0 ? "RMSNorm" : "LayerNorm");
        norm_table(doc, of);
        table_free(of);
    }
    values_free(&norms);
    table_free(t);
}

/* ---- speed-ups ---- */

static const char *const timing_axes[] = {"size", "seq", "precision", NULL};

static void timing_table(document *doc, const table *t)
{
    static const char *const size_order[] = {"tiny", "small", "medium", "large", "xl", "2.7b", NULL};
    static const char *const order[] = {"fp32", "tf32", "bf16", "bf16-pure", "fp16", NULL};
    values sizes = in_order(t, "size", size_order), lengths = table_values(t, "seq");
    values precisions = in_order(t, "precision", order);
    doc_table(doc);
    doc_column(doc, DOC_TEXT, "size");
    doc_column(doc, DOC_NUMBER, "S");
    for (size_t p = 0; p < precisions.n; p++)
        doc_column(doc, DOC_NUMBER, "%s", precisions.v[p]);
    for (size_t z = 0; z < sizes.n; z++)
        for (size_t s = 0; s < lengths.n; s++) {
            doc_row(doc, sizes.v[z], lengths.v[s], NULL);
            for (size_t p = 0; p < precisions.n; p++) {
                size_t r = table_find(t, "size", sizes.v[z], "seq", lengths.v[s], "precision", precisions.v[p], NULL);
                doc_cell(doc, "%s ms: %s / %s / %s", cell_number(t, r, "step_ms", 1),
                         cell_number(t, r, "speedup_fwd", 1), cell_number(t, r, "speedup_bwd", 1),
                         cell_number(t, r, "speedup_step", 1));
            }
        }
    values_free(&sizes);
    values_free(&lengths);
    values_free(&precisions);
}

static void add_timing(document *doc, const table *all, const char *dir)
{
    if (!all->n)
        return;
    table *t = table_main_slice(all, timing_axes, NULL);
    doc_heading(doc, 3, "Speed-up over fp32");
    doc_paragraph(doc,
                  "Each cell: time of a step, then how many times faster than fp32 (matrix products by fused "
                  "multiply-adds)\nforward, backward and "
                  "the whole step are. On a GPU, work that is bound by matrix products can gain most;\nnorms and "
                  "AdamW move bytes, and gain only as far as those shrink. Batch %s, %s attention.",
                  table_text(t, 0, "batch"), table_text(t, 0, "attention"));
    figures(doc, dir, "mixed_speedup");
    timing_table(doc, t);
    table_free(t);
}

/* ---- the bench ---- */

static void findings(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_mixed_precision.csv");
    if (!all)
        return;
    table *timing = rows_of(all, "timing"), *t = table_main_slice(timing, timing_axes, NULL);
    table *bf16 = table_where(t, "precision", "bf16", "status", "ok", NULL);
    const size_t best = largest(bf16, "speedup_step");
    size_t least = best;
    for (size_t i = 0; i < bf16->n; i++)
        if (table_real(bf16, i, "speedup_step") < table_real(bf16, least, "speedup_step"))
            least = i;
    if (best != NO_ROW) {
        const bool fma = strcmp(table_text(bf16, best, "fp32_products"), "fma") == 0;
        doc_bullet(doc, "%s: in this bench's cases a bf16 step is ", strong("Mixed precision"));
        if (least != best)
            doc_more(doc, "at least %s (%s, S %s) and at most ", number(table_real(bf16, least, "speedup_step")),
                     table_text(bf16, least, "size"), table_text(bf16, least, "seq"));
        doc_more(doc, "%s times as fast as fp32%s (%s, S %s; forward %s times, backward %s times).",
                 number(table_real(bf16, best, "speedup_step")), fma ? " by fused multiply-adds" : "",
                 table_text(bf16, best, "size"), table_text(bf16, best, "seq"),
                 number(table_real(bf16, best, "speedup_fwd")), number(table_real(bf16, best, "speedup_bwd")));
    }
    table_free(bf16);
    table_free(t);
    table_free(timing);
    table_free(all);
}

static void write_section(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_mixed_precision.csv");
    if (!all)
        return;
    table *sums = rows_of(all, "accumulation"), *autocast = rows_of(all, "autocast");
    table *norms = rows_of(all, "norm"), *timing = rows_of(all, "timing");
    doc_heading(doc, 2, "bench_mixed_precision: what low precision costs and gives");
    add_sums(doc, sums);
    add_autocast(doc, autocast);
    add_norms(doc, norms, dir);
    add_timing(doc, timing, dir);
    table_free(sums);
    table_free(autocast);
    table_free(norms);
    table_free(timing);
    table_free(all);
}

static const readme_bench benches[] = {{.name = "bench_mixed_precision",
                                        .order = 50,
                                        .question = "What does low precision cost and give?",
                                        .columns = {{"step_ms", "step", "ms"},
                                                    {"speedup_fwd", "forward", "times as fast as fp32"},
                                                    {"speedup_bwd", "backward", "times"}},
                                        .only = {{"variant", "timing"}, {"precision", "bf16"}, {"size", "xl"}}},
                                       {.name = NULL}};

const report_section section_mixed = {.order = 70, .findings = findings, .write = write_section, .benches = benches};
