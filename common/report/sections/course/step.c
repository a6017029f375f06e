/* SPDX-License-Identifier: MIT */
/* Problems about the time of a training step. */
#include <math.h>

#include "common/report/sections/course/course.h"

/* Mean and standard deviation in percent of it; nothing where there is no mean. */
static void mean_cell(document *doc, const table *t, size_t row, const char *part)
{
    char mean[32], std[32];
    snprintf(mean, sizeof mean, "%s_mean_ms", part);
    snprintf(std, sizeof std, "%s_std_ms", part);
    const double ms = table_real(t, row, mean);
    if (isfinite(ms) && ms > 0)
        doc_cell(doc, "%s ± %.1f %%", number(ms), 100 * table_real(t, row, std) / ms);
    else
        doc_blank(doc);
}

/* Forward, backward and update of each size at the context that most sizes have, 512 where there is a choice. */
static void benchmarking_script(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_transformer.csv");
    if (!t)
        return;
    table *plain = table_where(t, "variant", "graph", "status", "ok", "mode", "train-step", "recompute", "none", "seq",
                               "512", "cold", "0", "layers", "0", "d_model", "0", "heads_kv", "0", NULL);
    double worst = 0;
    for (size_t r = 0; r < plain->n; r++) {
        if (r == 0) {
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "size", "precision", NULL);
            doc_columns(doc, DOC_NUMBER, "batch", "forward ms", "backward ms", "AdamW ms", NULL);
        }
        doc_row(doc, table_text(plain, r, "size"), table_text(plain, r, "precision"), table_text(plain, r, "batch"),
                NULL);
        mean_cell(doc, plain, r, "fwd");
        mean_cell(doc, plain, r, "bwd");
        mean_cell(doc, plain, r, "opt");
        worst = fmax(worst, table_real(plain, r, "step_std_ms") / table_real(plain, r, "step_mean_ms"));
    }
    if (plain->n > 0)
        doc_paragraph(doc,
                      "Context 512, mean and standard deviation of the measured steps, which vary by at most %.1f %%.",
                      100 * worst);
    table_free(plain);
    table_free(t);
}

const course_problem course_step[] = {{"benchmarking_script", "2025, 2026",
                                       "bench_transformer: a whole training step, with Warm-up", benchmarking_script},
                                      {.name = NULL}};
