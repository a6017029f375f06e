/* SPDX-License-Identifier: MIT */
/* Which columns are times with a spread, and what the runs of a case say in them; see internal.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/stats.h"
#include "common/core/text.h"
#include "common/compare/internal.h"

static bool column_exists(const csv *file, const char *name)
{
    return *name && csv_column(file, name) >= 0;
}

static bool spread_is(const csv *file, time_column *c, const char *lo, const char *hi, double normal_distance)
{
    if (!column_exists(file, lo) || (*hi && !column_exists(file, hi)))
        return false;
    snprintf(c->lo, sizeof c->lo, "%s", lo);
    snprintf(c->hi, sizeof c->hi, "%s", hi);
    c->normal_distance = normal_distance;
    return true;
}

bool time_column_of(const csv *file, size_t column, time_column *out)
{
    static const char *const units[] = {"_ms", "_us"}, *const counts[] = {"n_samples", "n_steps"};
    const char *name = file->header[column], *unit = NULL;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        unit = text_ends(name, units[i]) ? units[i] : unit;
    if (!unit || strlen(name) > 40)
        return false;
    *out = (time_column){.name = name};
    const int stem = (int)strlen(name) - 3;
    char lo[64], hi[64], deviation[64];
    snprintf(out->n, sizeof out->n, "n_%.*s", stem, name);
    for (size_t i = 0; !column_exists(file, out->n) && i < sizeof counts / sizeof *counts; i++)
        snprintf(out->n, sizeof out->n, "%s", counts[i]);
    snprintf(lo, sizeof lo, "%.*s_p10%s", stem, name, unit);
    snprintf(hi, sizeof hi, "%.*s_p90%s", stem, name, unit);
    if (spread_is(file, out, lo, hi, 2.563))
        return true;
    snprintf(lo, sizeof lo, "%.*s_p5%s", stem, name, unit);
    snprintf(hi, sizeof hi, "%.*s_p95%s", stem, name, unit);
    if (spread_is(file, out, lo, hi, 3.290))
        return true;
    snprintf(deviation, sizeof deviation, "%.*s_std%s", stem, name, unit);
    if (strcmp(name, "median_ms") == 0)
        snprintf(deviation, sizeof deviation, "std_ms");
    return spread_is(file, out, deviation, "", 1);
}

static double error_of(const side *s, size_t row, const time_column *c)
{
    const double median = csv_real(s->file, row, c->name), lo = csv_real(s->file, row, c->lo);
    const double distance = *c->hi ? csv_real(s->file, row, c->hi) - lo : lo;
    return median_error(median, distance, c->normal_distance, csv_real(s->file, row, c->n),
                        csv_real(s->file, row, "lag1"));
}

timed group_timed(const side *s, const group *g, const time_column *c)
{
    samples medians = {0}, errors = {0}, clocks = {0};
    timed t = {.runs_deviation = NAN};
    for (size_t i = 0; i < g->runs; i++) {
        const double median = csv_real(s->file, g->rows[i], c->name), error = error_of(s, g->rows[i], c);
        const double seen = csv_real(s->file, g->rows[i], "sm_median_mhz"); /* in old rows, sm_mhz is one reading */
        const double clock = seen > 0 ? seen : csv_real(s->file, g->rows[i], "sm_mhz");
        if (!isfinite(median))
            continue;
        samples_add(&medians, median);
        if (isfinite(error))
            samples_add(&errors, error);
        if (clock > 0)
            samples_add(&clocks, clock);
        t.throttled = t.throttled || *side_cell(s, g->rows[i], "throttle");
    }
    const stats m = stats_of(&medians), e = stats_of(&errors);
    t.runs = m.n;
    t.median = m.median;
    t.standard_error = e.n == m.n ? e.median : NAN;
    t.runs_deviation = m.n >= 3 ? m.stdev / m.median : NAN;
    t.sm_mhz = stats_of(&clocks).median;
    samples_free(&medians);
    samples_free(&errors);
    samples_free(&clocks);
    return t;
}
