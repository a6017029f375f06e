/* SPDX-License-Identifier: MIT */
/* What sections share: numbers as text, grids and figures; see section.h. */
#include "common/report/section.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

static char *next_buffer(void)
{
    enum { BUFFERS = 32, BYTES = 64 };
    static char buffers[BUFFERS][BYTES];
    static unsigned next;
    return buffers[next++ % BUFFERS];
}

const char *hundredths(double value)
{
    char *text = next_buffer();
    snprintf(text, 64, "%.*f", value < 9.995 ? 2 : 1, value);
    return text;
}

const char *ratio_text(peer_ratio r)
{
    if (!isfinite(r.low) || !isfinite(r.high))
        return hundredths(r.is);
    char *text = next_buffer();
    snprintf(text, 64, "%s [%s, %s]", hundredths(r.is), hundredths(r.low), hundredths(r.high));
    return text;
}

const char *number(double value)
{
    char *text = next_buffer();
    double size = fabs(value);
    if (!isfinite(value))
        return "-";
    if (size == 0)
        return "0";
    if (size < 9.995e-4)
        snprintf(text, 64, "%.1e", value);
    else
        snprintf(text, 64, "%.*f",
                 size >= 99.95      ? 0
                 : size >= 9.995    ? 1
                 : size >= 0.9995   ? 2
                 : size >= 0.09995  ? 3
                 : size >= 0.009995 ? 4
                                    : 5,
                 value);
    return text;
}

const char *number_unit(double value, const char *unit)
{
    char *text = next_buffer();
    if (!isfinite(value))
        return "-";
    if (strcmp(unit, "bytes") == 0) {
        unit = value < 0.1 * GIB ? "MiB" : "GiB";
        value /= value < 0.1 * GIB ? MIB : GIB;
    }
    snprintf(text, 64, "%s %s", number(value), unit);
    return text;
}

const char *cell_number(const table *t, size_t row, const char *column, double scale)
{
    const char *status = table_text(t, row, "status");
    if (*status && strcmp(status, "ok") != 0)
        return status;
    return number(table_real(t, row, column) / scale);
}

/* A column of nothing but unsupported cases says nothing; the list of what ran has their reason. */
static void leave_out_skipped(const table *t, const char *column, values *across)
{
    size_t kept = 0;
    for (size_t i = 0; i < across->n; i++) {
        table *all = table_where(t, column, across->v[i], NULL);
        table *skipped = table_where(all, "status", "skip", NULL);
        if (skipped->n < all->n)
            across->v[kept++] = across->v[i];
        table_free(skipped);
        table_free(all);
    }
    across->n = kept;
}

void sequence_by_head_dim(document *doc, const table *t, grid_cell *cell, const void *context)
{
    values down = table_values(t, "seq"), across = table_values(t, "head_dim");
    leave_out_skipped(t, "head_dim", &across);
    doc_table(doc);
    doc_column(doc, DOC_NUMBER, "S");
    for (size_t c = 0; c < across.n; c++)
        doc_column(doc, DOC_NUMBER, "D %s", across.v[c]);
    table **parts = table_split(t, "seq", &down); /* so that a cell looks at few rows */
    for (size_t r = 0; r < down.n; r++) {
        doc_row(doc, down.v[r], NULL);
        for (size_t c = 0; c < across.n; c++) {
            doc_cell(doc, "%s", "");
            cell(doc, parts[r], down.v[r], across.v[c], context);
        }
        table_free(parts[r]);
    }
    free(parts);
    values_free(&down);
    values_free(&across);
}

void figures(document *doc, const char *dir, const char *prefix)
{
    char *machine = realpath(dir, NULL);
    if (!machine)
        return;
    char *relative = xasprintf("../../plots/%s", strrchr(machine, '/') + 1);
    char *folder = xasprintf("%s/%s", machine, relative);
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char *name = entries[i]->d_name, *file = xasprintf("%s/%s", relative, name), *dot = strrchr(name, '.');
        if (strncmp(name, prefix, strlen(prefix)) == 0 && dot && dot != name && strcmp(dot, ".svg") == 0) {
            *dot = '\0';
            doc_figure(doc, file, name, "");
        }
        free(file);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    free(folder);
    free(relative);
    free(machine);
}

size_t largest(const table *t, const char *column)
{
    size_t best = NO_ROW;
    for (size_t i = 0; i < t->n; i++)
        if (table_real(t, i, column) > (best == NO_ROW ? -INFINITY : table_real(t, best, column)))
            best = i;
    return best;
}

bool comes_before(const double *a, const double *b, size_t n)
{
    size_t k = 0;
    while (k < n && a[k] == b[k])
        k++;
    return k < n && a[k] > b[k];
}

void attention_rows(document *doc, const table *t)
{
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "case", NULL);
    doc_columns(doc, DOC_NUMBER, "forward ms", "backward ms", "forward+backward ms", "TFLOP/s forward / backward",
                "peak MiB", NULL);
    for (size_t i = 0; i < t->n; i++) {
        char *name = table_case(t, i);
        doc_row(doc, name, cell_number(t, i, "fwd_ms", 1), cell_number(t, i, "bwd_ms", 1),
                cell_number(t, i, "fwd_bwd_ms", 1), NULL);
        doc_cell(doc, "%s / %s", cell_number(t, i, "fwd_tflops", 1), cell_number(t, i, "bwd_tflops", 1));
        doc_cell(doc, "%s", cell_number(t, i, "peak_bytes", MIB));
        free(name);
    }
}
