/* SPDX-License-Identifier: MIT */
/* Training runs that others published, as jobs and plans of the planner. Their file (results/published/mesh.csv) is part of the
 * program, so that the planner can be judged anywhere. */
#include "bench/mesh/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/core/text.h"
#include "common/formulas/mesh/mesh.h"

/* What a source reports: tokens/s of a GPU, TFLOP/s of a GPU with all pairs of tokens or the causal half, or seconds of a step. */
typedef enum published_unit { PUBLISHED_TOKENS, PUBLISHED_FULL, PUBLISHED_CAUSAL, PUBLISHED_SECONDS } published_unit;
static const char unit_names[] = "tok/s/GPU|TFLOP/s full|TFLOP/s causal|s";

typedef struct published_run {
    mesh_job job;
    mesh_plan plan;
    const char *machine;
    double reported;
    published_unit unit;
    bool fit; /* its machine's share of the peak is fitted to it, for its width of products */
} published_run;

extern const char published_mesh[] __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\npublished_mesh:\n.incbin \"results/published/mesh.csv\"\n.byte 0\n.popsection\n");

/* The file's rows; read once. */
static const csv *published_table(void)
{
    static csv *table;
    if (!table)
        table = csv_parse(published_mesh);
    return table;
}

/* The place of a word in "a|b|c"; a word that is not there is a mistake in the file. */
static int place_of(const char *names, const char *word)
{
    int at = 0;
    for (const char *from = names; *from; at++) {
        const size_t length = strcspn(from, "|");
        if (strlen(word) == length && strncmp(from, word, length) == 0)
            return at;
        from += length + (from[length] == '|');
    }
    die(EXIT_CODE_FAILURE, "results/published/mesh.csv: \"%s\" is not one of %s", word, names);
}

static published_run published_at(size_t row)
{
    const csv *c = published_table();
    const int gpus = (int)csv_real(c, row, "gpus"), pp = (int)csv_real(c, row, "pp"), cp = (int)csv_real(c, row, "cp");
    const int tp = (int)csv_real(c, row, "tp");
    published_run run = {
        .job = {.vocab = (int64_t)csv_real(c, row, "vocab"),
                .d_model = (int64_t)csv_real(c, row, "d_model"),
                .d_ff = (int64_t)csv_real(c, row, "d_ff"),
                .layers = (int64_t)csv_real(c, row, "layers"),
                .heads = (int64_t)csv_real(c, row, "heads"),
                .heads_kv = (int64_t)csv_real(c, row, "heads_kv"),
                .seq = (int64_t)csv_real(c, row, "seq"),
                .matrices = (int)csv_real(c, row, "matrices"),
                .global_batch = (int64_t)csv_real(c, row, "global_batch"),
                .host = 8,
                .plain_attention = csv_is(c, row, "attention", "plain"),
                .eight_bits = csv_is(c, row, "fp8", "1"),
                .param = 2,
                .grad = 4,
                .state = 12},
        .plan = {.axes = {pp, 1, gpus / (pp * cp * tp), cp, tp},
                 .strategy = (mesh_strategy)place_of(MESH_STRATEGY_NAMES, csv_cell(c, row, "strategy")),
                 .schedule = pipeline_schedule_find(csv_cell(c, row, "schedule")),
                 .chunks = (int)csv_real(c, row, "chunks"),
                 .micro_batch = (int)csv_real(c, row, "micro_batch"),
                 .recompute = (mesh_recompute)place_of(MESH_RECOMPUTE_NAMES, csv_cell(c, row, "recompute")),
                 .overlap = csv_is(c, row, "overlap", "1")},
        .machine = csv_cell(c, row, "machine"),
        .reported = csv_real(c, row, "reported"),
        .unit = (published_unit)place_of(unit_names, csv_cell(c, row, "unit")),
        .fit = csv_is(c, row, "fit", "1")};
    return run;
}

/* A step of `seconds` in the unit of the run. */
static double published_value(const published_run *run, double seconds)
{
    const mesh_job *j = &run->job;
    const double gpus = mesh_world(run->plan.axes);
    switch (run->unit) {
    case PUBLISHED_TOKENS: return (double)j->global_batch * (double)j->seq / seconds / gpus;
    case PUBLISHED_FULL:
    case PUBLISHED_CAUSAL: return mesh_step_flops(j, run->unit == PUBLISHED_CAUSAL) / seconds / gpus / 1e12;
    default: return seconds;
    }
}

/* Percent by which a step of `seconds` is faster than reported; negative: slower. */
static double published_error_pct(const published_run *run, double seconds)
{
    const double ratio = published_value(run, seconds) / run->reported;
    return 100 * ((run->unit == PUBLISHED_SECONDS ? 1 / ratio : ratio) - 1);
}

/* The share of the peak with which the run takes as long as reported, by bisection: more is faster. */
static void fit(const published_run *run, mesh_rates *rates)
{
    double *share = run->job.eight_bits ? &rates->share8 : &rates->share, low = 0.1, high = 1;
    for (int i = 0; i < 50; i++) {
        *share = (low + high) / 2;
        if (published_error_pct(run, mesh_predict(&run->job, &run->plan, rates, true).step_s) > 0)
            high = *share;
        else
            low = *share;
    }
}

/* The rates of a run's machine, with the shares fitted to the runs that are marked. */
static mesh_rates published_rates(const published_run *of)
{
    mesh_rates rates = *mesh_machine_find(of->machine);
    for (int eight_bits = 0; eight_bits <= 1; eight_bits++) /* the head's products are of 16 bits in both */
        for (size_t i = 0; i < published_table()->rows; i++) {
            const published_run run = published_at(i);
            if (run.fit && run.job.eight_bits == eight_bits && text_is(run.machine, of->machine))
                fit(&run, &rates);
        }
    return rates;
}

typedef struct published_errors {
    double median, worst;
} published_errors;

/* Percent, of the absolute errors of the runs that are not fitted and split no sequence over 4 ranks and more; found once. */
static published_errors published_errors_of_all(void)
{
    static published_errors found;
    static bool known;
    if (known)
        return found;
    samples errors = {0};
    for (size_t i = 0; i < published_table()->rows; i++) {
        const published_run run = published_at(i);
        if (run.fit || run.plan.axes.cp >= 4)
            continue;
        const mesh_rates rates = published_rates(&run);
        samples_add(&errors, fabs(published_error_pct(&run, mesh_predict(&run.job, &run.plan, &rates, true).step_s)));
    }
    const stats all = stats_of(&errors);
    samples_free(&errors);
    known = true;
    return found = (published_errors){all.median, all.max};
}

/* ---- the variant ---- */

void planner_run_published(session *s, const bench_case *c, row *w)
{
    const csv *t = published_table();
    const size_t at = (size_t)case_int(c, "run") - 1;
    char text[256], axes[96];
    (void)s;
    if (at >= t->rows) {
        row_status_set(w, ROW_SKIP, "results/published/mesh.csv has %zu runs", t->rows);
        return;
    }
    const published_run run = published_at(at);
    const mesh_rates rates = published_rates(&run);
    const mesh_prediction x = mesh_predict(&run.job, &run.plan, &rates, true);
    const double predicted = published_value(&run, x.step_s), error = published_error_pct(&run, x.step_s);
    planner_plan_columns(w, &run.job, &run.plan, &x, &rates);
    snprintf(text, sizeof text, "%s, %s", csv_cell(t, at, "source"), csv_cell(t, at, "place"));
    row_text(w, "source", text);
    row_int(w, "verified", csv_is(t, at, "verified", "1"));
    row_int(w, "fitted", run.fit);
    row_text(w, "published_model", csv_cell(t, at, "model"));
    row_int(w, "published_gpus", mesh_world(run.plan.axes));
    row_text(w, "published_machine", run.machine);
    row_text(w, "published_unit", csv_cell(t, at, "unit"));
    row_real(w, "reported", run.reported);
    row_real(w, "predicted", predicted);
    row_real(w, "err_pct", fabs(error) < 1e-9 ? 0 : error); /* as close as bisection of a fitted share comes */
    const published_errors all = published_errors_of_all();
    row_real(w, "median_err_pct", all.median);
    row_real(w, "worst_err_pct", all.worst);
    snprintf(text, sizeof text, "%s on %d, %s: %.4g %s, reported %.4g%s%s", csv_cell(t, at, "model"),
             mesh_world(run.plan.axes), mesh_text(run.plan.axes, axes, sizeof axes), predicted, csv_cell(t, at, "unit"),
             run.reported, run.fit ? ", fitted" : "", csv_is(t, at, "verified", "1") ? "" : ", unverified");
    row_text(w, "answer", text);
}
