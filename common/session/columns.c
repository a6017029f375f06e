/* SPDX-License-Identifier: MIT */
/* The columns of a measurement, those of them that the bench declares; measure.h has their names. */
#include <math.h>
#include <stdio.h>

#include "common/session/measure_internal.h"

void columns_real(row *w, const char *name, const char *suffix, double value)
{
    char column[64];
    snprintf(column, sizeof column, "%s%s", name, suffix);
    if (row_has(w, column))
        row_real(w, column, value);
}

void columns_times(row *w, const char *name, const stats *ms, int calls)
{
    const struct {
        const char *suffix_ms, *suffix_us;
        double value;
    } of[] = {{"_ms", "_us", ms->median},
              {"_mean_ms", "_mean_us", ms->mean},
              {"_std_ms", "_std_us", ms->stdev},
              {"_p10_ms", "_p10_us", ms->p10},
              {"_p90_ms", "_p90_us", ms->p90}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        columns_real(w, name, of[i].suffix_ms, of[i].value / calls);
        columns_real(w, name, of[i].suffix_us, of[i].value * (1e3 / calls));
    }
}

/* The column of this name, or the one that a bench with a single measurement has. */
static const char *column_of(const row *w, const char *prefix, const char *name, const char *single, char *out,
                             size_t out_bytes)
{
    snprintf(out, out_bytes, "%s%s", prefix, name);
    return row_has(w, out) ? out : row_has(w, single) ? single : NULL;
}

void columns_count(row *w, const char *name, size_t n)
{
    char text[64];
    const char *column = column_of(w, "n_", name, "n_samples", text, sizeof text);
    if (column)
        row_int(w, column, (int64_t)n);
}

void columns_timer(row *w, const char *name, const char *used)
{
    char text[64];
    const char *column = column_of(w, "timer_", name, "timer", text, sizeof text);
    if (column)
        row_text(w, column, used);
}

/* Calls follow each other without a gap, so one takes its time at the mean power: nothing else was running. */
double columns_joules(const device_window *window, double mean_ms)
{
    return window->energy_w * mean_ms * 1e-3;
}

static void fill_either(row *w, const char *name, const char *suffix, const char *single, double value)
{
    char text[64];
    snprintf(text, sizeof text, "%s%s", name, suffix);
    const char *column = row_has(w, text) ? text : single;
    if (row_has(w, column))
        row_real(w, column, value);
}

void columns_energy(row *w, const char *name, const measure_how *how, double joules)
{
    joules = how->timing.cold_l2 ? NAN : joules; /* the flushes take energy, too */
    fill_either(w, name, "_j", "energy_j", joules);
    if (how->flops > 0)
        fill_either(w, name, "_tflop_per_j", "tflop_per_j", how->flops / (joules * 1e12));
}

/* By how much the second half of the samples is slower than the first. */
static double drift_pct(const samples *x)
{
    const samples first = {x->x, x->n / 2, 0}, second = {x->x + x->n / 2, x->n - x->n / 2, 0};
    return 100 * (stats_of(&second).median / stats_of(&first).median - 1);
}

void columns_sustained(row *w, const char *name, const samples *x, int calls, const device_window *window)
{
    const stats ms = stats_of(x);
    columns_real(w, name, "_ms", ms.median / calls);
    columns_real(w, name, "_us", ms.median * (1e3 / calls));
    columns_real(w, name, "_drift_pct", drift_pct(x));
    columns_real(w, name, "_sm_mhz", window->sm_mhz);
    columns_real(w, name, "_power_w", window->power_w);
}
