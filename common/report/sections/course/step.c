/* SPDX-License-Identifier: MIT */
/* Problems about the time of a training step. */
#include <math.h>
#include <string.h>

#include "common/report/sections/course/course.h"
#include "common/report/sections/course/rows.h"

/* "12.3 ± 0.4 %": the mean, and the standard deviation in percent of it. */
static void mean_cell(document *doc, const table *t, size_t row, const char *part)
{
    char mean[32], std[32];
    snprintf(mean, sizeof mean, "%s_mean_ms", part);
    snprintf(std, sizeof std, "%s_std_ms", part);
    const double ms = table_real(t, row, mean), deviation = table_real(t, row, std);
    if (isfinite(ms) && ms > 0 && isfinite(deviation))
        doc_cell(doc, "%s ± %.1f %%", number(ms), 100 * deviation / ms);
    else if (isfinite(ms) && ms > 0)
        doc_cell(doc, "%s", number(ms));
    else
        doc_blank(doc);
}

/* ---- benchmarking_script (b) ---- */

/* The extremes of what the table shows, for the sentence below it. */
typedef struct spread {
    double worst, least_ratio, most_ratio; /* of the step's deviation; of backward over forward */
    char where[64];
} spread;

static void note_row(spread *s, const table *t, size_t row)
{
    const double deviation = table_real(t, row, "step_std_ms") / table_real(t, row, "step_mean_ms");
    const double ratio = table_real(t, row, "bwd_mean_ms") / table_real(t, row, "fwd_mean_ms");
    s->least_ratio = fmin(s->least_ratio, ratio);
    s->most_ratio = fmax(s->most_ratio, ratio);
    if (deviation > s->worst || isnan(s->worst)) {
        s->worst = deviation;
        snprintf(s->where, sizeof s->where, "%s, %s", table_text(t, row, "size"), table_text(t, row, "precision"));
    }
}

static void times(document *doc, const table *t)
{
    static const char *const precisions[] = {"bf16", "fp32"};
    const char *seq = value_or_last(t, "seq", "512"), *steps = value_or_last(t, "warmup", "5");
    values sizes = sizes_in_order(t);
    spread s = {NAN, NAN, NAN, ""};
    bool begun = false;
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < sizes.n; i++) {
            const size_t row =
                table_find(t, "size", sizes.v[i], "precision", precisions[p], "seq", seq, "warmup", steps, NULL);
            if (row == NO_ROW)
                continue;
            if (!begun) {
                doc_table(doc);
                doc_columns(doc, DOC_TEXT, "size", "precision", NULL);
                doc_columns(doc, DOC_NUMBER, "forward ms", "backward ms", "full step ms", NULL);
            }
            begun = true;
            doc_row(doc, sizes.v[i], precisions[p], NULL);
            mean_cell(doc, t, row, "fwd");
            mean_cell(doc, t, row, "bwd");
            mean_cell(doc, t, row, "step");
            note_row(&s, t, row);
        }
    if (begun) {
        doc_paragraph(
            doc,
            "Batch 4, context %s: mean and standard deviation of the measured steps, after %s of warm-up. The "
            "backward takes %s times as long as the forward.",
            seq, *steps ? steps : "some", range_text(s.least_ratio, s.most_ratio));
        if (isfinite(s.worst))
            doc_more(doc, " The deviation of a step is %s: at most %.1f %% of its mean (%s).",
                     s.worst < 0.05 ? "small" : "not small", 100 * s.worst, s.where);
    }
    values_free(&sizes);
}

/* ---- benchmarking_script (c) ---- */

static void warmup_rows(document *doc, const table *of)
{
    const size_t most = largest(of, "warmup");
    for (size_t r = 0; r < of->n; r++) {
        doc_row(doc, table_text(of, r, "size"), table_text(of, r, "warmup"), NULL);
        mean_cell(doc, of, r, "host_step");
        doc_cells(doc, number(table_real(of, r, "host_step_ms")), number(table_real(of, r, "first_step_ms")), NULL);
        if (r != most)
            doc_cells(doc, number(table_real(of, r, "host_step_mean_ms") / table_real(of, most, "host_step_mean_ms")),
                      NULL);
        else
            doc_blank(doc);
    }
}

/* What so many steps of warm-up leave in the mean, over all sizes. */
static void say_less(document *doc, const table *t, const values *sizes, const char *steps, const char *words)
{
    double low = NAN, high = NAN, least_first = NAN;
    for (size_t i = 0; i < sizes->n; i++) {
        table *of = table_where(t, "size", sizes->v[i], NULL);
        const size_t row = table_find(of, "warmup", steps, NULL), most = largest(of, "warmup");
        const double mean = table_real(of, row, "host_step_mean_ms"), usual = table_real(of, most, "host_step_mean_ms");
        const double first = (table_real(of, row, "first_step_ms") - usual) / table_real(of, row, "n_steps");
        if (row != most && isfinite(mean / usual)) {
            low = fmin(low, mean / usual);
            high = fmax(high, mean / usual);
            least_first = fmin(least_first, first / (mean - usual));
        }
        table_free(of);
    }
    if (!isfinite(low))
        return;
    doc_more(doc, " %s the mean step takes %s times as long as after the most", words, range_text(low, high));
    if (strcmp(steps, "0") == 0 && least_first > 0.5)
        doc_more(doc, "; the first step alone explains %.0f %% of that or more", fmin(100, 100 * least_first));
    else if (low > 0.98 && high < 1.02)
        doc_more(doc, ": no difference");
    doc_more(doc, ".");
}

static void warmup(document *doc, const table *all)
{
    table *cold = table_where(all, "cold", "1", "status", "ok", NULL);
    const char *seq = value_or_last(cold, "seq", "128");
    table *t = table_where(cold, "seq", seq, "precision", value_or_last(cold, "precision", "bf16"), "variant",
                           main_level(cold), NULL);
    if (t->n > 1) {
        values sizes = sizes_in_order(t);
        doc_paragraph(doc, "Warm-up, each row a new process; context %s, by the host's clock", seq);
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "size", NULL);
        doc_columns(doc, DOC_NUMBER, "warm-up steps", "step ms", "median ms", "first step ms", "mean / that after most",
                    NULL);
        for (size_t i = 0; i < sizes.n; i++) {
            table *of = table_where(t, "size", sizes.v[i], NULL);
            warmup_rows(doc, of);
            table_free(of);
        }
        doc_paragraph(doc, "The first step of a process also loads kernels%s.",
                      strcmp(table_text(t, 0, "variant"), "graph") == 0
                          ? ", the second one captures the graph that later ones launch"
                          : "");
        say_less(doc, t, &sizes, "0", "Without warm-up");
        say_less(doc, t, &sizes, "1", "After 1 step");
        say_less(doc, t, &sizes, "2", "After 2 steps");
        values_free(&sizes);
    }
    table_free(t);
    table_free(cold);
}

static void benchmarking_script(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_transformer.csv");
    if (!all)
        return;
    table *plain = plain_rows(all), *t = table_where(plain, "variant", main_level(plain), "mode", "train-step", NULL);
    times(doc, t);
    warmup(doc, all);
    table_free(t);
    table_free(plain);
    table_free(all);
}

const course_problem course_step[] = {
    {"benchmarking_script", "2025, 2026", "bench_transformer: a whole training step; Warm-up", benchmarking_script},
    {.name = NULL}};
