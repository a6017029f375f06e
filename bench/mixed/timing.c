/* SPDX-License-Identifier: MIT */
/* The benchmarking_mixed_precision problem, part (c): how much faster is a model in lower precision? Forward, backward
 * and AdamW of one policy, and its speed-up over fp32 without tensor cores at the same shape. */
#include "bench/mixed/mixed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/case.h"
#include "bench/model/context.h"
#include "bench/model/verify.h"
#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/profile/nvtx.h"
#include "common/session/watchdog.h"

static const char *const phases[] = {"fwd", "bwd", "opt", "step"};
enum { PHASES = sizeof phases / sizeof *phases };

static void phase_real(row *w, const char *prefix, int phase, const char *suffix, double value)
{
    char *column = xasprintf("%s%s%s", prefix, phases[phase], suffix);
    row_real(w, column, value);
    free(column);
}

/* ---- fp32 of the same shape ---- */

/* What speed-ups refer to; a case that failed in this run is not replaced by an older one. */
static struct baseline {
    char *shape;
    double ms[PHASES];
} baseline;

/* Whether a parameter column tells what speed-ups compare, and so is no part of the shape. */
static bool compared(const char *column)
{
    return strcmp(column, "precision") == 0 || strcmp(column, "fp32_products") == 0;
}

static char *shape_of(const options *o, const bench_case *c)
{
    char *key = xstrdup("");
    for (size_t i = 0; i < options_param_count(o); i++)
        if (!compared(options_param_name(o, i))) {
            char *longer = xasprintf("%s %s", key, case_param(c, i));
            free(key);
            key = longer;
        }
    return key;
}

/* Takes over `shape`. */
static void baseline_set(char *shape, const double ms[PHASES])
{
    free(baseline.shape);
    baseline.shape = shape;
    for (int i = 0; i < PHASES; i++)
        baseline.ms[i] = ms ? ms[i] : NAN;
}

static bool cell_is(const csv *t, size_t r, const char *column, const char *want)
{
    const char *cell = csv_cell(t, r, column);
    return cell && strcmp(cell, want) == 0;
}

static bool is_baseline_of(const csv *t, size_t r, const options *o, const bench_case *c)
{
    bool is = cell_is(t, r, "variant", "timing") && cell_is(t, r, "status", "ok") &&
              cell_is(t, r, "device", option_text(o, "device")) && cell_is(t, r, "precision", "fp32") &&
              cell_is(t, r, "fp32_products", "fma");
    for (size_t i = 0; is && i < options_param_count(o); i++)
        is = compared(options_param_name(o, i)) || cell_is(t, r, options_param_name(o, i), case_param(c, i));
    return is;
}

/* When fp32 was not part of this run, its newest stored row of the same shape serves. Takes over `shape`. */
static void baseline_load(const session *s, const bench_case *c, char *shape)
{
    if (baseline.shape && strcmp(baseline.shape, shape) == 0) {
        free(shape);
        return;
    }
    baseline_set(shape, NULL);
    csv *t = s->csv_path ? csv_read(s->csv_path) : NULL;
    size_t r = t ? t->rows : 0;
    while (r > 0 && !is_baseline_of(t, r - 1, s->opt, c))
        r--;
    for (int i = 0; r > 0 && i < PHASES; i++) {
        char *column = xasprintf("%s_ms", phases[i]);
        baseline.ms[i] = csv_real(t, r - 1, column);
        free(column);
    }
    csv_free(t);
}

/* ---- steps ---- */

/* False with sb_last_message. */
static bool measure(session *s, trainer *t, samples x[PHASES])
{
    const int most = s->timing.warmup + s->timing.iters;
    double measured_ms = 0;
    for (int i = 0; i < most; i++) {
        if (!trainer_step(t))
            return false;
        if (i == most - 1)
            device_state_note(s->dev); /* while the step runs */
        const step_times times = trainer_times(t);
        const double ms[PHASES] = {times.forward, times.backward, times.optimizer, times.step};
        watchdog_beat();
        for (int k = 0; i >= s->timing.warmup && k < PHASES; k++)
            samples_add(&x[k], ms[k]);
        measured_ms += i >= s->timing.warmup ? times.step : 0;
        if (s->timing.max_s > 0 && measured_ms > s->timing.max_s * 1e3 && x[0].n >= 3)
            break;
    }
    return true;
}

static void fill(mixed *m, trainer *t, const samples x[PHASES])
{
    const trainer_options *o = trainer_options_of(t);
    const bool is_fp32 = strcmp(o->precision->name, "fp32") == 0 && !o->split;
    const bool has[PHASES] = {true, o->mode != STEP_FORWARD, o->mode == STEP_TRAIN, true};
    double ms[PHASES];
    for (int i = 0; i < PHASES; i++)
        ms[i] = has[i] ? stats_of(&x[i]).median : NAN;
    char *shape = shape_of(m->s->opt, m->c);
    if (is_fp32)
        baseline_set(shape, ms);
    else
        baseline_load(m->s, m->c, shape);
    for (int i = 0; i < PHASES; i++) {
        stats st = stats_of(&x[i]);
        phase_real(m->w, "", i, "_ms", ms[i]);
        phase_real(m->w, "", i, "_p10_ms", has[i] ? st.p10 : NAN);
        phase_real(m->w, "", i, "_p90_ms", has[i] ? st.p90 : NAN);
        phase_real(m->w, "speedup_", i, "", baseline.ms[i] / ms[i]);
    }
    row_int(m->w, "n_samples", (int64_t)x[0].n);
    row_int(m->w, "peak_bytes", trainer_memory_of(t).allocated);
}

static void time_steps(mixed *m, trainer *t)
{
    samples x[PHASES] = {0};
    phase_set("timing of %s", case_key(m->c));
    range_push("steps");
    bool ok = measure(m->s, t, x);
    range_pop();
    double loss = ok ? trainer_loss(t) : NAN;
    if (!ok)
        row_status_set(m->w, ROW_FAIL, "step: %s", sb_last_message());
    else if (option_flag(m->s->opt, "check") && !isfinite(loss))
        row_status_set(m->w, ROW_FAIL, "the loss is %g after the last step", loss);
    else
        fill(m, t, x);
    for (int i = 0; i < PHASES; i++)
        samples_free(&x[i]);
}

void mixed_run_timing(mixed *m)
{
    session *s = m->s;
    trainer_options o;
    char why[256];
    if (!model_case_options(m->c, &o, why, sizeof why)) {
        row_status_set(m->w, ROW_SKIP, "%s", why);
        return;
    }
    o.fusion = device_kind_of(s->dev) == DEVICE_CPU ? FUSION_KERNELS : FUSION_GRAPH;
    if (strcmp(o.precision->name, "fp32") == 0 && !o.split)
        baseline_set(shape_of(s->opt, m->c), NULL); /* until it has been measured */
    if (!model_verify(s, &o, m->w))
        return;
    phase_set("setup of %s", case_key(m->c));
    trainer *t = model_trainer(s, &o, m->w);
    if (!t)
        return;
    time_steps(m, t);
    trainer_free(t);
}
