/* SPDX-License-Identifier: MIT */
/* Problems about memory: who holds it in a step, and activations that are computed again. */
#include <math.h>
#include <string.h>

#include "common/report/sections/course/course.h"
#include "common/report/sections/course/rows.h"

/* ---- memory_profiling ---- */

static const char *const precisions[] = {"fp32", "bf16"}, *const modes[] = {"forward", "train-step"};

static size_t memory_row(const table *t, const char *size, const char *seq, const char *precision, const char *mode)
{
    return table_find(t, "size", size, "seq", seq, "precision", precision, "mode", mode, NULL);
}

/* Peaks by context, and what bf16 leaves of those in fp32: the lowest and highest share of each mode. */
static void peaks(document *doc, const table *t, const values *sizes)
{
    double low[2] = {NAN, NAN}, high[2] = {NAN, NAN};
    bool moments_stay = true;
    doc_paragraph(doc, "Peak, GiB");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "size", NULL);
    doc_columns(doc, DOC_NUMBER, "context", "forward, fp32", "full step, fp32", "forward, bf16", "full step, bf16",
                NULL);
    for (size_t i = 0; i < sizes->n; i++) {
        table *of = table_where(t, "size", sizes->v[i], NULL);
        values lengths = table_values(of, "seq");
        for (size_t s = 0; s < lengths.n; s++) {
            double peak[2][2], moments[2];
            doc_row(doc, sizes->v[i], lengths.v[s], NULL);
            for (size_t p = 0; p < 2; p++)
                for (size_t m = 0; m < 2; m++) {
                    const size_t r = memory_row(of, sizes->v[i], lengths.v[s], precisions[p], modes[m]);
                    peak[p][m] = table_real(of, r, "peak_bytes");
                    moments[p] = table_real(of, r, "moment1_bytes") + table_real(of, r, "moment2_bytes");
                    doc_cells(doc, number(peak[p][m] / GIB), NULL);
                }
            moments_stay = moments_stay && moments[0] == moments[1];
            for (size_t m = 0; m < 2; m++) {
                low[m] = fmin(low[m], 100 * peak[1][m] / peak[0][m]);
                high[m] = fmax(high[m], 100 * peak[1][m] / peak[0][m]);
            }
        }
        values_free(&lengths);
        table_free(of);
    }
    if (isfinite(low[0]) && isfinite(low[1])) {
        doc_paragraph(doc, "In bf16 a forward peaks at %s %% of what it takes in fp32, ", range_text(low[0], high[0]));
        doc_more(doc, "a full step at %s %%", range_text(low[1], high[1]));
        if (moments_stay)
            doc_more(doc, ": the moments of AdamW take as much as before");
        doc_more(doc, ".");
    }
}

/* "`d_w13` (grad), 200, 32 times" */
static void largest_cell(document *doc, const table *t, size_t row)
{
    if (row == NO_ROW) {
        doc_blank(doc);
        return;
    }
    doc_cell(doc, "%s (%s), %s, %s times", code("%s", table_text(t, row, "largest")),
             table_text(t, row, "largest_kind"), number(table_real(t, row, "largest_bytes") / MIB),
             table_text(t, row, "largest_count"));
}

/* One tensor of the residual stream, what a block keeps, and the largest allocations, at each size's longest context. */
static void tensors(document *doc, const table *t, const values *sizes)
{
    doc_paragraph(doc, "Tensors at the longest context, MiB");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "size", NULL);
    doc_columns(doc, DOC_NUMBER, "context", NULL);
    doc_columns(doc, DOC_TEXT, "precision", NULL);
    doc_columns(doc, DOC_NUMBER, "residual stream", "kept by a block", NULL);
    doc_columns(doc, DOC_TEXT, "largest allocation of a forward", "of a full step", NULL);
    for (size_t i = 0; i < sizes->n; i++) {
        table *of = table_where(t, "size", sizes->v[i], NULL);
        values lengths = table_values(of, "seq");
        const char *seq = lengths.v[lengths.n - 1];
        for (size_t p = 0; p < 2; p++) {
            const size_t forward = memory_row(of, sizes->v[i], seq, precisions[p], modes[0]);
            const size_t step = memory_row(of, sizes->v[i], seq, precisions[p], modes[1]);
            if (step == NO_ROW)
                continue;
            doc_row(doc, sizes->v[i], seq, precisions[p], number(table_real(of, step, "residual_bytes") / MIB),
                    number(table_real(of, step, "saved_per_block_bytes") / MIB), NULL);
            largest_cell(doc, of, forward);
            largest_cell(doc, of, step);
        }
        values_free(&lengths);
        table_free(of);
    }
}

/* The peaks of the stages of a full step, at each size's longest context. */
static void stages(document *doc, const table *t, const values *sizes)
{
    static const char *const columns[] = {"forward_peak_bytes", "backward_peak_bytes", "optimizer_peak_bytes"};
    doc_paragraph(doc, "Most held in the stages of a full step at the longest context, GiB");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "size", NULL);
    doc_columns(doc, DOC_NUMBER, "context", NULL);
    doc_columns(doc, DOC_TEXT, "precision", NULL);
    doc_columns(doc, DOC_NUMBER, "forward", "backward", "AdamW", "activations at the peak", NULL);
    for (size_t i = 0; i < sizes->n; i++) {
        table *of = table_where(t, "size", sizes->v[i], "mode", "train-step", NULL);
        const char *seq = value_or_last(of, "seq", "");
        for (size_t p = 0; p < 2; p++) {
            const size_t r = memory_row(of, sizes->v[i], seq, precisions[p], "train-step");
            if (r == NO_ROW)
                continue;
            doc_row(doc, sizes->v[i], seq, precisions[p], NULL);
            for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
                doc_cells(doc, number(table_real(of, r, columns[c]) / GIB), NULL);
            doc_cells(doc, number(table_real(of, r, "activation_bytes") / GIB), NULL);
        }
        table_free(of);
    }
}

static void memory_profiling(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_memory.csv");
    if (!all)
        return;
    table *plain = plain_rows(all), *t = table_where(plain, "variant", main_level(plain), NULL);
    if (t->n) {
        values sizes = sizes_in_order(t);
        peaks(doc, t, &sizes);
        stages(doc, t, &sizes);
        tensors(doc, t, &sizes);
        figures(doc, dir, "memory_timeline_");
        values_free(&sizes);
    }
    table_free(t);
    table_free(plain);
    table_free(all);
}

/* ---- gradient_checkpointing ---- */

static void say_nested(document *doc, const table *t, size_t none, size_t best, size_t nested)
{
    const double whole = table_real(t, none, "peak_bytes"), peak = table_real(t, nested, "peak_bytes");
    const double single = table_real(t, best, "peak_bytes");
    if (!isfinite(whole) || !isfinite(peak))
        return;
    doc_more(doc, " (a) Nested, a step peaks at %s instead of %s and takes %s %% more time.",
             number_unit(peak, "bytes"), number_unit(whole, "bytes"), number(table_real(t, nested, "extra_pct")));
    if (fabs(peak / single - 1) < 0.001)
        doc_more(doc, " The best groups take as much memory.");
    else if (isfinite(single))
        doc_more(doc, " The best groups take %s.", number_unit(single, "bytes"));
}

static void say_groups(document *doc, const table *t, size_t best)
{
    static const char *const beside[][2] = {{"group-smaller", "smaller"}, {"group-larger", "larger"}};
    if (best == NO_ROW)
        return;
    const double group = table_real(t, best, "group_used");
    doc_more(doc, " (b) The best group has %.0f %s, at %s.", group, group == 1 ? "block" : "blocks",
             number_unit(table_real(t, best, "peak_bytes"), "bytes"));
    for (size_t i = 0; i < 2; i++) {
        const size_t r = table_find(t, "variant", beside[i][0], "status", "ok", NULL);
        if (r != NO_ROW)
            doc_more(doc, " The next %s one, of %.0f, takes %s %% %s.", beside[i][1], table_real(t, r, "group_used"),
                     number(fabs(100 * (table_real(t, r, "peak_bytes") / table_real(t, best, "peak_bytes") - 1))),
                     table_real(t, r, "peak_bytes") < table_real(t, best, "peak_bytes") ? "less" : "more");
        else
            doc_more(doc, " There is no %s one.", beside[i][1]);
    }
}

static void gradient_checkpointing(document *doc, const char *dir)
{
    static const char *const ways[] = {"none", "block", "group-smaller", "group-best", "group-larger", "nested"};
    static const char *const axes[] = {"group", "budget", "offload", NULL};
    table *all = open_result(dir, "bench_recompute.csv");
    if (!all)
        return;
    const char *size = value_or_last(all, "size", "xl-2026");
    table *of = table_where(all, "size", size, "precision", value_or_last(all, "precision", "bf16"), NULL);
    table *at = table_where(of, "seq", value_or_last(of, "seq", "1024"), NULL), *t = table_main_slice(at, axes, NULL);
    const size_t none = table_find(t, "variant", "none", "status", "ok", NULL);
    const size_t best = table_find(t, "variant", "group-best", "status", "ok", NULL);
    const size_t nested = table_find(t, "variant", "nested", "status", "ok", NULL);
    if (none != NO_ROW && (best != NO_ROW || nested != NO_ROW)) {
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "computed again by", NULL);
        doc_columns(doc, DOC_NUMBER, "blocks of a group", "peak GiB", "step ms", "more time %", NULL);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            const size_t r = table_find(t, "variant", ways[w], "status", "ok", NULL);
            if (r == NO_ROW)
                continue;
            doc_row(doc, ways[w], NULL);
            if (table_real(t, r, "group_used") > 0)
                doc_cells(doc, table_text(t, r, "group_used"), NULL);
            else
                doc_blank(doc);
            doc_cells(doc, number(table_real(t, r, "peak_bytes") / GIB), number(table_real(t, r, "step_ms")),
                      number(table_real(t, r, "extra_pct")), NULL);
        }
        doc_paragraph(doc, "%s, batch %s, context %s, %s.", size, table_text(t, none, "batch"),
                      table_text(t, none, "seq"), table_text(t, none, "precision"));
        say_nested(doc, t, none, best, nested);
        say_groups(doc, t, best);
    }
    table_free(t);
    table_free(at);
    table_free(of);
    table_free(all);
}

const course_problem course_memory[] = {
    {"memory_profiling", "2025, 2026", "bench_memory: where every byte goes", memory_profiling},
    {"gradient_checkpointing", "2026", "bench_recompute: activations computed again", gradient_checkpointing},
    {.name = NULL}};
