/* SPDX-License-Identifier: MIT */
/* One row: filled column by column, then turned into a line of CSV. */
#include "common/core/build_info.h"
#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/results.h"
#include "common/rows/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- lines of CSV ---- */

typedef struct line {
    FILE *out;
    char *text;
    size_t bytes;
    bool started;
} line;

static void line_begin(line *l)
{
    *l = (line){0};
    l->out = text_stream(&l->text, &l->bytes);
}

static void put_text(line *l, const char *text)
{
    OWNED char *quoted = csv_quoted(text);
    fprintf(l->out, "%s%s", l->started ? "," : "", quoted);
    l->started = true;
}

static void put_real(line *l, double x)
{
    char text[32] = "nan"; /* printf might write "-nan" */
    if (!isnan(x))
        snprintf(text, sizeof text, "%.9g", x);
    put_text(l, text);
}

static void put_names(line *l, const bench_info *bench, const column_spec *columns)
{
    for (; columns && columns->name; columns++)
        if (row_layout_has(&rows_layout, bench, columns->name))
            put_text(l, columns->name);
}

static void put_timing(line *l, const row *w)
{
    const options *o = w->r->o;
    put_text(l, option_text(o, "l2"));
    put_text(l, option_text(o, "timer"));
}

static void put_conditions(line *l, const row *w)
{
    const row_conditions *c = &w->conditions;
    put_real(l, c->sm_mhz);
    put_real(l, c->sm_min_mhz);
    put_real(l, c->sm_median_mhz);
    put_real(l, c->power_w);
    put_real(l, c->readings);
    put_text(l, c->throttle);
}

char *rows_header(const options *o)
{
    const bench_info *bench = options_bench(o);
    line l;
    line_begin(&l);
    put_names(&l, bench, rows_layout.first);
    for (size_t i = 0; i < options_param_count(o); i++)
        put_text(&l, options_param_name(o, i));
    put_names(&l, bench, bench->columns);
    put_names(&l, bench, rows_layout.last);
    fclose(l.out);
    return l.text;
}

static char *row_line(const row *w)
{
    const row_writer *r = w->r;
    const bool untimed = options_bench(r->o)->untimed;
    char utc_text[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(utc_text, sizeof utc_text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));

    line l;
    line_begin(&l);
    put_real(&l, RESULTS_SCHEMA);
    put_real(&l, ROWS_METHOD);
    put_text(&l, options_bench(r->o)->name);
    put_text(&l, case_variant(w->c));
    put_text(&l, row_status_names[w->status]);
    put_text(&l, w->reason);
    for (size_t i = 0; i < options_param_count(r->o); i++)
        put_text(&l, case_cell(w->c, i));
    for (size_t i = 0; i < r->columns; i++) {
        bool is_text = options_bench(r->o)->columns[i].kind == COLUMN_TEXT;
        put_text(&l, w->cells[i] ? w->cells[i] : is_text ? "" : "nan");
    }
    put_text(&l, r->run_id);
    put_text(&l, r->info.device_name);
    put_text(&l, r->gpu_uuid);
    put_text(&l, option_text(r->o, "check"));
    if (!untimed)
        put_timing(&l, w);
    if (!untimed)
        put_conditions(&l, w);
    put_text(&l, build_commit());
    put_text(&l, utc_text);
    fputc('\n', l.out);
    fclose(l.out);
    return l.text;
}

/* ---- filling ---- */

row *row_begin(row_writer *r, const bench_case *c)
{
    row *w = xcalloc(1, sizeof *w);
    w->r = r;
    w->c = c;
    w->cells = xcalloc(r->columns, sizeof *w->cells);
    w->reason = xstrdup("");
    w->conditions = (row_conditions){NAN, NAN, NAN, NAN, 0, ""};
    return w;
}

/* Its place among the bench's columns; their number where it has no such column. */
static size_t column_find(const row *w, const char *column)
{
    const column_spec *columns = options_bench(w->r->o)->columns;
    size_t i = 0;
    while (i < w->r->columns && strcmp(columns[i].name, column) != 0)
        i++;
    return i;
}

static size_t column_need(const row *w, const char *column)
{
    const size_t i = column_find(w, column);
    if (i == w->r->columns)
        die(EXIT_CODE_FAILURE, "bug: %s has no column '%s'", options_bench(w->r->o)->name, column);
    return i;
}

bool row_has(const row *w, const char *column)
{
    return column_find(w, column) < w->r->columns;
}

const bench_case *row_case(const row *w)
{
    return w->c;
}

/* Takes over `text`. */
static void set_cell(row *w, const char *column, bool is_text, char *text)
{
    size_t i = column_need(w, column);
    if ((options_bench(w->r->o)->columns[i].kind == COLUMN_TEXT) != is_text)
        die(EXIT_CODE_FAILURE, "bug: column %s is given %s", column, is_text ? "text" : "a number");
    free(w->cells[i]);
    w->cells[i] = text;
}

void row_real(row *w, const char *column, double value)
{
    bool whole = options_bench(w->r->o)->columns[column_need(w, column)].kind == COLUMN_INT;
    set_cell(w, column, false, isnan(value) ? NULL : xasprintf(whole ? "%.0f" : "%.9g", value));
}

void row_int(row *w, const char *column, int64_t value)
{
    set_cell(w, column, false, xasprintf("%" PRId64, value));
}

/* One row is one line, also with the message of a library in it. */
static char *one_line(char *text)
{
    for (char *c = text; *c; c++)
        *c = *c == '\n' || *c == '\r' ? ' ' : *c;
    return text;
}

void row_text(row *w, const char *column, const char *value)
{
    set_cell(w, column, true, one_line(xstrdup(value)));
}

void row_numbers(row *w, const char *column, const double *values, int n, int digits)
{
    char *text = xstrdup("");
    for (int i = 0; i < n; i++) {
        char *longer = xasprintf("%s%s%.*g", text, i ? " " : "", digits, values[i]);
        free(text);
        text = longer;
    }
    set_cell(w, column, true, text);
}

void row_state(row *w, const row_conditions *c)
{
    w->conditions = *c;
}

void row_status_set(row *w, row_status status, const char *reason_fmt, ...)
{
    char *reason;
    va_list args;
    va_start(args, reason_fmt);
    int length = vasprintf(&reason, reason_fmt, args);
    va_end(args);
    if (length < 0)
        die(EXIT_CODE_FAILURE, "no host memory left for a reason");
    free(w->reason);
    w->reason = one_line(reason);
    w->status = status;
}

row_status row_status_get(const row *w)
{
    return w->status;
}

const char *row_reason(const row *w)
{
    return w->reason;
}

/* Counts the row, and keeps the first trouble of each kind for the end. */
static void count(const row *w)
{
    row_writer *r = w->r;
    const bool fail = w->status == ROW_FAIL, missing = w->status == ROW_OOM || w->status == ROW_SKIP;
    char **first = fail ? &r->first_fail : &r->first_missing;
    r->rows++;
    r->fails += fail;
    r->missing += missing;
    if ((fail || missing) && !*first)
        *first = xasprintf("%s: %s", case_name(w->c), w->reason);
}

void row_drop(row *w)
{
    for (size_t i = 0; i < w->r->columns; i++)
        free(w->cells[i]);
    free(w->cells);
    free(w->reason);
    free(w);
}

void row_commit(row *w)
{
    row_writer *r = w->r;
    const column_spec *columns = options_bench(r->o)->columns;
    for (size_t i = 0; i < r->columns && w->status != ROW_OK; i++)
        if (w->status != ROW_FAIL || strncmp(columns[i].name, "err_", 4) != 0) {
            free(w->cells[i]); /* whatever was timed before the trouble showed is no result */
            w->cells[i] = NULL;
        }
    OWNED char *text = row_line(w);
    if (r->info.csv_path)
        rows_append(r->info.csv_path, r->header, text);
    count(w);
    if (!r->info.quiet) {
        progress_clear();
        console_row(w);
        r->table_started = true;
    }
    if (r->info.written) {
        OWNED char *header = xasprintf("%s%s", r->header, r->run_header),
                   *whole = xasprintf("%.*s%s\n", (int)strcspn(text, "\n"), text, r->run_line);
        r->info.written(r->info.user, header, whole);
    }
    row_drop(w);
}
