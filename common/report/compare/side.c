/* SPDX-License-Identifier: MIT */
/* Reading one side of a comparison: cases, their runs, and which columns are times with a spread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/report/compare/internal.h"

/* Takes over the file. */
static bool take_file(side *s, csv *file)
{
    *s = (side){.file = file};
    if (!file || !file->rows || csv_column(file, "bench") < 0 || csv_column(file, "reason") < 0) {
        side_free(s);
        return false;
    }
    table_rename_columns(file);
    return true;
}

bool side_parse(side *s, const char *text, const char *machine_csv)
{
    const bool taken = take_file(s, csv_parse(text));
    if (taken)
        s->machine = csv_read(machine_csv);
    return taken;
}

bool side_open(side *s, const char *path)
{
    if (!take_file(s, csv_read(path)))
        return false;
    csv_warn_dropped(s->file, path);
    char *folder = xstrdup(path), *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    char *machine = xasprintf("%s/machine.csv", slash ? folder : ".");
    s->machine = csv_read(machine);
    free(machine);
    free(folder);
    return true;
}

void side_free(side *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->groups[i].rows);
    for (size_t i = 0; s->keys && i < s->file->rows; i++)
        free(s->keys[i]);
    free(s->groups);
    free(s->keys);
    csv_free(s->file);
    csv_free(s->machine);
    *s = (side){0};
}

const char *side_cell(const side *s, size_t row, const char *column)
{
    const char *text = csv_cell(s->file, row, column);
    return text ? text : "";
}

const char *side_machine(const side *s, size_t row, const char *what)
{
    const char *run = side_cell(s, row, "run_id");
    for (size_t i = s->machine ? s->machine->rows : 0; i-- > 0;) {
        const char *id = csv_cell(s->machine, i, "run_id"), *key = csv_cell(s->machine, i, "key");
        if (id && key && strcmp(id, run) == 0 && strcmp(key, what) == 0)
            return csv_cell(s->machine, i, "value") ? csv_cell(s->machine, i, "value") : "";
    }
    return "";
}

/* ---- cases ---- */

/* A parameter that the other side lacks had its plain value there: with another one a case is not the same. */
static char *key_of(const side *s, size_t row, const csv *other)
{
    char *text;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    fprintf(out, "%s\t%s", side_cell(s, row, "bench"), side_cell(s, row, "variant"));
    int first, end;
    table_params(s->file, &first, &end);
    for (int c = first; c < end; c++) {
        const char *name = s->file->header[c], *value = s->file->cells[row * s->file->columns + (size_t)c];
        if (csv_column(other, name) >= 0 || param_departs(name, value))
            fprintf(out, " %s=%s", name, value);
    }
    fclose(out);
    return text;
}

static int by_key(const void *a, const void *b, void *keys)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    const int order = strcmp(((char **)keys)[x], ((char **)keys)[y]);
    return order ? order : (x > y) - (x < y);
}

static bool same_params(const csv *file, size_t a, size_t b)
{
    int first, end;
    table_params(file, &first, &end);
    for (int c = first; c < end; c++)
        if (strcmp(file->cells[a * file->columns + (size_t)c], file->cells[b * file->columns + (size_t)c]) != 0)
            return false;
    return true;
}

static bool same_cells(const side *s, size_t a, size_t b, const char *column)
{
    return strcmp(side_cell(s, a, column), side_cell(s, b, column)) == 0;
}

/* Whether runs may stand for each other. */
static bool same_build(const side *s, size_t a, size_t b)
{
    static const char *const columns[] = {"commit", "dirty", "machine"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (!same_cells(s, a, b, columns[i]))
            return false;
    char *why = conditions_differ(s, a, s, b, "");
    free(why);
    return !why;
}

/* rows[0..n) have one key, in the order of the file, in which newer rows are below older ones. */
static group group_of(const side *s, const size_t *rows, size_t n)
{
    group g = {.key = s->keys[rows[0]], .newest = rows[0], .rows = xmalloc(n * sizeof *g.rows)};
    for (size_t i = 1; i < n; i++) {
        g.ambiguous = g.ambiguous || !same_params(s->file, rows[i], g.newest);
        if (strcmp(side_cell(s, rows[i], "utc"), side_cell(s, g.newest, "utc")) >= 0)
            g.newest = rows[i];
    }
    for (size_t i = 0; i < n; i++) {
        size_t k = 0; /* of a run that measured the case twice, the last row stands */
        while (k < g.runs && !same_cells(s, g.rows[k], rows[i], "run_id"))
            k++;
        if (rows[i] == g.newest ||
            (strcmp(side_cell(s, rows[i], "status"), "ok") == 0 && same_build(s, rows[i], g.newest)))
            g.rows[k] = rows[i];
        else
            continue;
        g.runs += k == g.runs;
    }
    return g;
}

void side_group(side *s, const csv *other)
{
    const size_t rows = s->file->rows;
    size_t *order = xmalloc(rows * sizeof *order);
    s->keys = xmalloc(rows * sizeof *s->keys);
    s->groups = xmalloc(rows * sizeof *s->groups);
    for (size_t i = 0; i < rows; i++) {
        order[i] = i;
        s->keys[i] = key_of(s, i, other);
    }
    qsort_r(order, rows, sizeof *order, by_key, s->keys);
    for (size_t i = 0, end; i < rows; i = end) {
        for (end = i + 1; end < rows && strcmp(s->keys[order[i]], s->keys[order[end]]) == 0;)
            end++;
        s->groups[s->n++] = group_of(s, order + i, end - i);
    }
    free(order);
}

/* ---- times ---- */

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
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const size_t length = strlen(name);
        if (length > 3 && strcmp(name + length - 3, units[i]) == 0)
            unit = units[i];
    }
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
        const double clock = csv_real(s->file, g->rows[i], "sm_mhz");
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
