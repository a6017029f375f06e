/* SPDX-License-Identifier: MIT */
/* RFC-4180 reader of a whole file: each record is looked at first, then its cells are unquoted in place. */
#include "common/core/csv.h"

#include "common/core/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No text of ours has one, a terminal obeys it, and the report's documents have marks of their own among them. */
static bool is_control(char c)
{
    return (unsigned char)c < ' ' ? c != '\t' && c != '\n' && c != '\r' : c == 0x7f;
}

static bool ends_cell(char c)
{
    return c == ',' || c == '\r' || c == '\n' || c == '\0';
}

/* The cells of the record, 0 when it is torn: a quote is not closed, or something follows it, or there is a control character. */
static size_t count_cells(const char *at)
{
    for (size_t n = 1;; n++, at++) {
        if (*at == '"') {
            while (*++at != '"' || *++at == '"')
                if (!*at || is_control(*at))
                    return 0;
        } else {
            while (!ends_cell(*at) && !is_control(*at))
                at++;
        }
        if (!ends_cell(*at))
            return 0;
        if (*at != ',')
            return n;
    }
}

/* Unquotes the cell at *at in place, ends it with NUL and returns it; *at moves behind the comma or the line's end. */
static char *read_cell(char **at, size_t *line)
{
    char *cell = *at, *in = *at, *out = *at;
    if (*in == '"')
        for (in++; *in != '"' || *++in == '"'; *out++ = *in++)
            *line += *in == '\n';
    while (!ends_cell(*in))
        *out++ = *in++;
    const char end = *in;
    in += end != '\0';
    in += end == '\r' && *in == '\n';
    *line += end != ',';
    *at = in;
    *out = '\0';
    return cell;
}

static char *next_line(char *at, size_t *line)
{
    at += strcspn(at, "\r\n");
    *line += *at != '\0';
    return at + (*at == '\r' && at[1] == '\n' ? 2 : *at != '\0');
}

static const char *header_problem(const csv *c)
{
    if (c->columns == 1 && c->header[0][strcspn(c->header[0], ";\t")])
        return "cells are separated by semicolons or tabs, not by commas";
    for (size_t i = 0; i < c->columns; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(c->header[i], c->header[k]) == 0)
                return "two columns have the same name";
    return NULL;
}

static char *read_header(csv *c, char *at, size_t *line)
{
    c->columns = count_cells(at);
    c->header = xmalloc((c->columns + 1) * sizeof *c->header);
    for (size_t i = 0; i < c->columns; i++)
        c->header[i] = read_cell(&at, line);
    c->problem = c->columns ? header_problem(c) : "the line with the names of the columns is torn";
    return at;
}

/* After a torn line, reading goes on with the next one: an open quote does not swallow the rows behind it. */
static void read_rows(csv *c, char *at, size_t line)
{
    size_t capacity = 0;
    while (*at && !c->problem) {
        if (*at == '#' || *at == '\n' || *at == '\r') {
            at = next_line(at, &line);
        } else if (!c->header) {
            at = read_header(c, at, &line);
        } else if (count_cells(at) != c->columns) {
            c->first_dropped = c->dropped++ ? c->first_dropped : line;
            at = next_line(at, &line);
        } else {
            if (c->rows == capacity) {
                capacity = capacity ? 2 * capacity : 64;
                c->cells = xrealloc(c->cells, capacity * c->columns * sizeof *c->cells);
            }
            for (size_t i = 0; i < c->columns; i++)
                c->cells[c->rows * c->columns + i] = read_cell(&at, &line);
            c->rows++;
        }
    }
}

static csv *parse(char *text, size_t bytes)
{
    csv *c = xcalloc(1, sizeof *c);
    c->text = text;
    const bool wide = bytes > 1 && (!text[0] || !text[1] || memcmp(text, "\xff\xfe", 2) == 0);
    for (char *nul = text; (nul = memchr(nul, '\0', bytes - (size_t)(nul - text)));)
        *nul = '\1'; /* a control character: the end of the text is behind all of it */
    if (wide || (bytes > 1 && memcmp(text, "\xfe\xff", 2) == 0))
        c->problem = "it is UTF-16, not UTF-8";
    else
        read_rows(c, text + (strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0), 1);
    return c;
}

csv *csv_read(const char *path)
{
    size_t bytes;
    char *text = file_read(path, &bytes);
    return text ? parse(text, bytes) : NULL;
}

csv *csv_parse(const char *text)
{
    return parse(xstrdup(text), strlen(text));
}

char *csv_lost(const csv *c)
{
    if (c && c->problem)
        return xasprintf("no line counts, since %s", c->problem);
    if (c && c->dropped == 1)
        return xasprintf("line %zu is torn and does not count", c->first_dropped);
    return c && c->dropped
               ? xasprintf("%zu lines are torn and do not count; the first is line %zu", c->dropped, c->first_dropped)
               : NULL;
}

void csv_warn_lost(const csv *c, const char *path)
{
    OWNED char *lost = csv_lost(c);
    if (lost)
        warn("%s: %s", path, lost);
}

void csv_free(csv *c)
{
    if (!c)
        return;
    csv_free(c->joined);
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
    return column < 0 ? "" : c->cells[row * c->columns + (size_t)column];
}

bool csv_is(const csv *c, size_t row, const char *name, const char *value)
{
    int column = csv_column(c, name);
    return column >= 0 && strcmp(c->cells[row * c->columns + (size_t)column], value) == 0;
}

double csv_real(const csv *c, size_t row, const char *name)
{
    const char *cell = csv_cell(c, row, name);
    if (!*cell)
        return NAN;
    char *end;
    double value = strtod(cell, &end);
    return *end ? NAN : value;
}

char *csv_quoted(const char *text)
{
    const bool quoted = text[strcspn(text, ",\"\r\n")] != '\0' || *text == '#';
    char *cell = xmalloc(2 * strlen(text) + 3), *at = cell;
    if (quoted)
        *at++ = '"';
    for (; *text; text++) {
        if (*text == '"')
            *at++ = '"';
        *at++ = is_control(*text) ? '?' : *text;
    }
    if (quoted)
        *at++ = '"';
    *at = '\0';
    return cell;
}
