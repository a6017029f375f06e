/* SPDX-License-Identifier: MIT */
/* RFC-4180 reader: one pass over the whole file, cells unquoted in place. */
#include "common/core/csv.h"

#include "common/core/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct record {
    char **cells;
    size_t n, capacity;
    bool torn;            /* the file ended inside quotes */
    size_t line, at_line; /* of the file: where the record starts, and how far it is read */
} record;

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    size_t used = 0, capacity = 1 << 16, got;
    char *text = xmalloc(capacity);
    while ((got = fread(text + used, 1, capacity - used - 1, file)) > 0) {
        used += got;
        if (used + 1 == capacity)
            text = xrealloc(text, capacity *= 2);
    }
    int error = ferror(file) ? errno : 0;
    fclose(file);
    if (error) {
        free(text);
        errno = error;
        return NULL;
    }
    text[used] = '\0';
    return text;
}

/* Unquotes the cell at *at in place, ends it with NUL and returns it; *at is left on the character that ended it, and
 * *end holds that character (',', '\n' or NUL). */
static char *read_cell(char **at, char *end, record *r)
{
    char *cell = *at, *in = *at, *out = *at;
    if (*in == '"') {
        bool closed = false;
        for (in++; *in && !closed; in++) {
            r->at_line += *in == '\n';
            if (*in == '"' && in[1] == '"')
                *out++ = *in++;
            else if (*in == '"')
                closed = true;
            else
                *out++ = *in;
        }
        r->torn |= !closed;
    }
    while (*in && *in != ',' && *in != '\n')
        *out++ = *in++;
    *end = *in;
    *at = in;
    if (*end != ',' && out > cell && out[-1] == '\r')
        out--;
    *out = '\0';
    return cell;
}

/* Reads one record from *at, passing over comments and empty lines; false at the end of the text. */
static bool read_record(char **at, record *r)
{
    while (**at == '#' || **at == '\n' || (**at == '\r' && (*at)[1] == '\n')) {
        *at = strchrnul(*at, '\n');
        r->at_line += **at == '\n';
        *at += **at == '\n';
    }
    if (!**at)
        return false;
    r->n = 0;
    r->torn = false;
    r->line = r->at_line;
    for (;;) {
        if (r->n == r->capacity) {
            r->capacity = r->capacity ? 2 * r->capacity : 32;
            r->cells = xrealloc(r->cells, r->capacity * sizeof *r->cells);
        }
        char end;
        r->cells[r->n++] = read_cell(at, &end, r);
        r->at_line += end == '\n';
        if (end)
            ++*at;
        if (end != ',')
            return true;
    }
}

static csv *parse(char *text)
{
    csv *c = xcalloc(1, sizeof *c);
    c->text = text;

    char *at = text;
    record r = {.at_line = 1};
    size_t capacity = 0;
    while (read_record(&at, &r)) {
        if (!c->header) {
            c->columns = r.n;
            c->header = xmalloc(r.n * sizeof *c->header);
            memcpy(c->header, r.cells, r.n * sizeof *c->header);
            continue;
        }
        if (r.n != c->columns || r.torn) {
            c->first_dropped = c->dropped++ ? c->first_dropped : r.line;
            continue;
        }
        if (c->rows == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            c->cells = xrealloc(c->cells, capacity * c->columns * sizeof *c->cells);
        }
        memcpy(c->cells + c->rows++ * c->columns, r.cells, r.n * sizeof *r.cells);
    }
    free(r.cells);
    return c;
}

csv *csv_read(const char *path)
{
    char *text = read_file(path);
    return text ? parse(text) : NULL;
}

csv *csv_parse(const char *text)
{
    return parse(xstrdup(text));
}

void csv_warn_dropped(const csv *c, const char *path)
{
    if (c && c->dropped == 1)
        warn("%s: line %zu is torn and does not count", path, c->first_dropped);
    else if (c && c->dropped)
        warn("%s: %zu lines are torn and do not count; the first is line %zu", path, c->dropped, c->first_dropped);
}

void csv_free(csv *c)
{
    if (!c)
        return;
    free(c->header);
    free(c->cells);
    free(c->text);
    free(c);
}

int csv_column(const csv *c, const char *name)
{
    for (size_t i = 0; i < c->columns; i++)
        if (strcmp(c->header[i], name) == 0)
            return (int)i;
    return -1;
}

const char *csv_cell(const csv *c, size_t row, const char *name)
{
    int column = csv_column(c, name);
    return column < 0 ? NULL : c->cells[row * c->columns + (size_t)column];
}

double csv_real(const csv *c, size_t row, const char *name)
{
    const char *cell = csv_cell(c, row, name);
    if (!cell || !*cell)
        return NAN;
    char *end;
    double value = strtod(cell, &end);
    return *end ? NAN : value;
}

static void put(char *out, size_t out_bytes, size_t *length, char c)
{
    if (*length + 1 < out_bytes)
        out[*length] = c;
    ++*length;
}

size_t csv_quote(const char *text, char *out, size_t out_bytes)
{
    size_t length = 0;
    bool quoted = text[strcspn(text, ",\"\r\n")] != '\0' || *text == '#';
    if (quoted)
        put(out, out_bytes, &length, '"');
    for (; *text; text++) {
        if (*text == '"')
            put(out, out_bytes, &length, '"');
        put(out, out_bytes, &length, *text);
    }
    if (quoted)
        put(out, out_bytes, &length, '"');
    if (out_bytes)
        out[length < out_bytes ? length : out_bytes - 1] = '\0';
    return length;
}
