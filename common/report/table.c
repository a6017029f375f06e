/* SPDX-License-Identifier: MIT */
/* Newest rows, selections and slices of a CSV; see table.h. */
#include "common/report/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/params.h"

static const char *cell(const table *t, size_t file_row, int column)
{
    return t->file->cells[file_row * t->file->columns + (size_t)column];
}

static bool measured(const char *column)
{
    static const char *const units[] = {"_ms", "_us", "_s", "_bytes", "_gib", "_gb_s", "_tflops", "_pct", "_mhz"};
    size_t length = strlen(column);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i]);
        if (length > n && strcmp(column + length - n, units[i]) == 0)
            return true;
    }
    return false;
}

static bool is_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return *text && !*end;
}

static int compare_cells(const char *a, const char *b)
{
    double x, y;
    if (is_number(a, &x) && is_number(b, &y))
        return (x > y) - (x < y);
    return strcmp(a, b);
}

static int compare_params(const table *t, size_t a, size_t b)
{
    for (int c = t->first_param; c < t->end_param; c++) {
        int order = compare_cells(cell(t, a, c), cell(t, b, c));
        if (order)
            return order;
    }
    return 0;
}

static bool same_cell(const csv *f, size_t a, size_t b, int column)
{
    size_t c = (size_t)column;
    return column < 0 || strcmp(f->cells[a * f->columns + c], f->cells[b * f->columns + c]) == 0;
}

static bool same_case(const table *t, size_t a, size_t b)
{
    static const char *const names[] = {"bench", "variant", "device", "l2", "timer_asked"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!same_cell(t->file, a, b, csv_column(t->file, names[i])))
            return false;
    return compare_params(t, a, b) == 0;
}

static int by_params(const void *a, const void *b, void *t)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    int order = compare_params(t, x, y);
    return order ? order : (x > y) - (x < y);
}

/* Appending puts newer rows below older ones; utc decides where files were joined by hand. */
static bool newer_or_same(const csv *f, size_t a, size_t b)
{
    const char *x = csv_cell(f, a, "utc"), *y = csv_cell(f, b, "utc");
    return strcmp(x, y) >= 0;
}

static bool unverified(const csv *f, size_t row)
{
    return csv_is(f, row, "check", "0");
}

/* Whether row b gives way to row a: a verified row to a verified one alone. */
static bool replaces(const csv *f, size_t a, size_t b)
{
    return unverified(f, a) == unverified(f, b) ? newer_or_same(f, a, b) : unverified(f, b);
}

static void keep_newest(table *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n;) { /* rows of equal parameters are neighbours, in the order of the file */
        size_t end = i + 1;
        while (end < t->n && compare_params(t, t->rows[i], t->rows[end]) == 0)
            end++;
        size_t group = kept;
        for (; i < end; i++) {
            size_t k = group;
            while (k < kept && !same_case(t, t->rows[k], t->rows[i]))
                k++;
            if (k == kept)
                t->rows[kept++] = t->rows[i];
            else if (replaces(t->file, t->rows[i], t->rows[k]))
                t->rows[k] = t->rows[i];
        }
    }
    t->n = kept;
}

/* Values of old CSVs that have another name now. */
static void rename_values(csv *file)
{
    static char split[] = "fp16x3-fast";
    const int column = csv_column(file, "fp32_products");
    for (size_t row = 0; column >= 0 && row < file->rows; row++)
        if (strcmp(file->cells[row * file->columns + (size_t)column], "split") == 0)
            file->cells[row * file->columns + (size_t)column] = split;
}

/* Columns of old CSVs that have another name now. */
void table_rename_columns(csv *file)
{
    static char *const renamed[][2] = {{"twin_ms", "compute_ms"}, {"recorded_hidden_pct", "overlapped_pct"}};
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        const int column = csv_column(file, renamed[i][0]);
        if (column >= 0 && csv_column(file, renamed[i][1]) < 0)
            file->header[column] = renamed[i][1];
    }
    rename_values(file);
}

void table_params(const csv *file, int *first, int *end)
{
    *first = *end = csv_column(file, "reason") + 1;
    while (*end < (int)file->columns && !measured(file->header[*end]))
        ++*end;
}

table *table_open(const char *path)
{
    csv *file = csv_read(path);
    if (!file || !file->rows) {
        csv_free(file);
        return NULL;
    }
    table_rename_columns(file);
    table *t = xcalloc(1, sizeof *t);
    t->file = file;
    t->owner = true;
    t->alike = xcalloc(1, sizeof *t->alike);
    table_params(file, &t->first_param, &t->end_param);
    t->n = file->rows;
    t->rows = xmalloc(t->n * sizeof *t->rows);
    for (size_t i = 0; i < t->n; i++)
        t->rows[i] = i;
    qsort_r(t->rows, t->n, sizeof *t->rows, by_params, t);
    keep_newest(t);
    return t;
}

void table_free(table *t)
{
    if (!t)
        return;
    for (size_t i = 0; t->owner && t->run_of && i < t->file->rows; i++)
        free(t->run_of[i]);
    if (t->owner) {
        free(t->run_of);
        csv_free(t->file);
    }
    free(t->alike->params);
    free(t->alike);
    free(t->rows);
    free(t);
}

/* With room for so many rows. */
static table *empty_selection(const table *t, size_t rows)
{
    table *s = xmalloc(sizeof *s);
    *s = *t;
    s->owner = false;
    s->alike = xcalloc(1, sizeof *s->alike);
    s->n = 0;
    s->rows = xmalloc((rows ? rows : 1) * sizeof *s->rows);
    return s;
}

const char *table_text(const table *t, size_t row, const char *column)
{
    return row == NO_ROW ? "" : csv_cell(t->file, t->rows[row], column);
}

double table_real(const table *t, size_t row, const char *column)
{
    return row == NO_ROW ? NAN : csv_real(t->file, t->rows[row], column);
}

static bool has(const table *t, size_t row, const char *column, const char *value)
{
    return strcmp(table_text(t, row, column), value) == 0;
}

table *table_where_pairs(const table *t, size_t pairs, const char *const *columns, const char *const *wanted)
{
    table *s = empty_selection(t, t->n);
    for (size_t i = 0; i < t->n; i++) {
        size_t k = 0;
        while (k < pairs && has(t, i, columns[k], wanted[k]))
            k++;
        if (k == pairs)
            s->rows[s->n++] = t->rows[i];
    }
    return s;
}

table *table_without(const table *t, const char *column, const char *value)
{
    table *s = empty_selection(t, t->n);
    for (size_t i = 0; i < t->n; i++)
        if (!has(t, i, column, value))
            s->rows[s->n++] = t->rows[i];
    return s;
}

enum { MAX_PAIRS = 16 };

static size_t read_pairs(va_list args, const char **columns, const char **wanted)
{
    size_t n = 0;
    for (const char *column; (column = va_arg(args, const char *)); n++) {
        if (n == MAX_PAIRS)
            die(EXIT_CODE_FAILURE, "more than %d conditions", MAX_PAIRS);
        columns[n] = column;
        wanted[n] = va_arg(args, const char *);
    }
    return n;
}

table *table_where(const table *t, ...)
{
    const char *columns[MAX_PAIRS], *wanted[MAX_PAIRS];
    va_list args;
    va_start(args, t);
    size_t pairs = read_pairs(args, columns, wanted);
    va_end(args);
    return table_where_pairs(t, pairs, columns, wanted);
}

size_t table_find(const table *t, ...)
{
    const char *columns[MAX_PAIRS], *wanted[MAX_PAIRS];
    va_list args;
    va_start(args, t);
    size_t pairs = read_pairs(args, columns, wanted);
    va_end(args);
    for (size_t i = 0; i < t->n; i++) {
        size_t k = 0;
        while (k < pairs && has(t, i, columns[k], wanted[k]))
            k++;
        if (k == pairs)
            return i;
    }
    return NO_ROW;
}

static const char *run_of(const table *t, size_t row)
{
    return t->run_of ? t->run_of[t->rows[row]] : table_text(t, row, "campaign");
}

bool table_beside(const table *a, size_t row_a, const table *b, size_t row_b)
{
    return row_a != NO_ROW && row_b != NO_ROW && strcmp(run_of(a, row_a), run_of(b, row_b)) == 0;
}

bool names_have(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* The columns that are alike in rows of one slice, ended by -1. */
static int *slice_columns(const table *t, const char *const *axes)
{
    int *columns = xmalloc((t->file->columns + 2) * sizeof *columns), n = 0;
    for (int c = t->first_param; c < t->end_param; c++)
        if (!names_have(axes, t->file->header[c]))
            columns[n++] = c;
    const int device = csv_column(t->file, "device");
    if (device >= 0)
        columns[n++] = device;
    columns[n] = -1;
    return columns;
}

typedef struct slices {
    const table *t;
    const int *columns;
} slices;

static int compare_slices(const slices *s, size_t a, size_t b)
{
    int order = 0;
    for (const int *c = s->columns; *c >= 0 && !order; c++)
        order = strcmp(cell(s->t, a, *c), cell(s->t, b, *c));
    return order;
}

/* Of one slice, the earlier row of the table first. */
static int by_slice(const void *a, const void *b, void *user)
{
    const slices *s = user;
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    const int order = compare_slices(s, s->t->rows[x], s->t->rows[y]);
    return order ? order : (x > y) - (x < y);
}

bool table_agrees(const table *t, size_t row, const char *const (*pairs)[2])
{
    for (size_t i = 0; pairs[i][0]; i++)
        if (*table_text(t, row, pairs[i][0]) && !has(t, row, pairs[i][0], pairs[i][1]))
            return false;
    return true;
}

void table_keep_agreeing(table *t, const char *const (*pairs)[2])
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++)
        if (table_agrees(t, i, pairs))
            t->rows[kept++] = t->rows[i];
    t->n = kept;
}

void table_keep_plain_attention(table *t)
{
    static const char *const names[] = {"window", "window_right", "documents", "head_dim_v"};
    size_t kept = 0;
    for (size_t i = 0; t && i < t->n; i++) {
        bool plain = true;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            plain &= !param_departs(names[k], table_text(t, i, names[k]));
        if (plain)
            t->rows[kept++] = t->rows[i];
    }
    if (t)
        t->n = kept;
}

bool table_is_custom(const table *t, size_t row)
{
    static const char *const names[] = {"d_model", "d_ff", "layers", "heads", "heads_kv", "vocab"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (table_real(t, row, names[i]) > 0)
            return true;
    return false;
}

bool table_steps_meet(const table *t, size_t a, size_t b)
{
    const bool tenth = csv_column(t->file, "step_p10_ms") >= 0;
    const char *low = tenth ? "step_p10_ms" : "step_p5_ms", *high = tenth ? "step_p90_ms" : "step_p95_ms";
    return table_real(t, a, low) <= table_real(t, b, high) && table_real(t, b, low) <= table_real(t, a, high);
}

table *table_main_slice(const table *t, const char *const *axes, table **rest)
{
    int *columns = slice_columns(t, axes);
    slices by = {t, columns};
    size_t *order = xmalloc((t->n + 1) * sizeof *order), best = 0, most = 0;
    for (size_t i = 0; i < t->n; i++)
        order[i] = i;
    qsort_r(order, t->n, sizeof *order, by_slice, &by);
    for (size_t i = 0, end; i < t->n; i = end) {
        for (end = i + 1; end < t->n && compare_slices(&by, t->rows[order[i]], t->rows[order[end]]) == 0;)
            end++;
        if (end - i > most || (end - i == most && order[i] < best)) {
            most = end - i;
            best = order[i];
        }
    }
    table *s = empty_selection(t, t->n), *others = empty_selection(t, t->n);
    for (size_t i = 0; i < t->n; i++) {
        table *to = compare_slices(&by, t->rows[best], t->rows[i]) == 0 ? s : others;
        to->rows[to->n++] = t->rows[i];
    }
    free(order);
    free(columns);
    if (rest)
        *rest = others;
    else
        table_free(others);
    return s;
}

typedef struct seen {
    const char *text;
    size_t at; /* the first row that has it */
} seen;

static int by_text(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    const int order = strcmp(x->text, y->text);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Of a text and a `seen`. */
static int only_text(const void *text, const void *b)
{
    return strcmp(*(const char *const *)text, ((const seen *)b)->text);
}

static int by_row(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_number(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    const int order = compare_cells(x->text, y->text);
    return order ? order : by_row(a, b);
}

values table_values(const table *t, const char *column)
{
    seen *all = xmalloc((t->n + 1) * sizeof *all);
    for (size_t i = 0; i < t->n; i++)
        all[i] = (seen){table_text(t, i, column), i};
    qsort(all, t->n, sizeof *all, by_text);
    size_t n = 0;
    bool numbers = true;
    for (size_t i = 0; i < t->n; i++)
        if (!n || strcmp(all[n - 1].text, all[i].text) != 0) {
            double value;
            numbers = numbers && is_number(all[i].text, &value);
            all[n++] = all[i];
        }
    qsort(all, n, sizeof *all, numbers ? by_number : by_row);
    values list = {n, xmalloc((n + 1) * sizeof *list.v)};
    for (size_t i = 0; i < n; i++)
        list.v[i] = all[i].text;
    free(all);
    return list;
}

table **table_split(const table *t, const char *column, const values *v)
{
    seen *sorted = xmalloc((v->n + 1) * sizeof *sorted);
    const seen **of = xmalloc((t->n + 1) * sizeof *of);
    size_t *count = xcalloc(v->n + 1, sizeof *count);
    table **parts = xmalloc((v->n + 1) * sizeof *parts);
    for (size_t i = 0; i < v->n; i++)
        sorted[i] = (seen){v->v[i], i};
    qsort(sorted, v->n, sizeof *sorted, by_text);
    for (size_t i = 0; i < t->n; i++) {
        const char *text = table_text(t, i, column);
        of[i] = bsearch(&text, sorted, v->n, sizeof *sorted, only_text);
        count[of[i] ? of[i]->at : v->n]++;
    }
    for (size_t i = 0; i < v->n; i++)
        parts[i] = empty_selection(t, count[i]);
    for (size_t i = 0; i < t->n; i++)
        if (of[i])
            parts[of[i]->at]->rows[parts[of[i]->at]->n++] = t->rows[i];
    free(count);
    free(of);
    free(sorted);
    return parts;
}

void values_free(values *v)
{
    free(v->v);
    *v = (values){0};
}

void text_make_drawable(char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:_+-/=()%";
    for (; *(text += strspn(text, letters)); text++)
        *text = '_';
}

void table_make_drawable(table *t)
{
    for (size_t i = 0; i < t->file->columns; i++)
        text_make_drawable(t->file->header[i]);
    for (size_t i = 0; i < t->file->rows * t->file->columns; i++)
        text_make_drawable(t->file->cells[i]);
    for (size_t i = 0; t->run_of && i < t->file->rows; i++)
        text_make_drawable(t->run_of[i]);
}

static void write_cell(FILE *out, const char *text, bool last)
{
    size_t bytes = csv_quote(text, NULL, 0) + 1;
    char *quoted = xmalloc(bytes);
    csv_quote(text, quoted, bytes);
    fprintf(out, "%s%c", quoted, last ? '\n' : ',');
    free(quoted);
}

bool table_write(const table *t, const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out)
        return false;
    size_t columns = t->file->columns;
    for (size_t c = 0; c < columns; c++)
        write_cell(out, t->file->header[c], false);
    write_cell(out, "run_of", true);
    for (size_t i = 0; i < t->n; i++) {
        for (size_t c = 0; c < columns; c++)
            write_cell(out, cell(t, t->rows[i], (int)c), false);
        write_cell(out, run_of(t, i), true);
    }
    bool wrote = !ferror(out);
    return fclose(out) == 0 && wrote;
}
