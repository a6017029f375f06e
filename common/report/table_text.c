/* SPDX-License-Identifier: MIT */
/* What the rows of a table are called in titles and lists; see table.h. */
#include <stdio.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/params.h"
#include "common/report/table.h"

/* Rows of variants that the parameter means nothing to have no value of it and do not count. */
static bool alike(const table *t, const char *column)
{
    const char *known = "";
    for (size_t i = 0; i < t->n; i++) {
        const char *text = table_text(t, i, column);
        if (*text && *known && strcmp(text, known) != 0)
            return false;
        known = *text ? text : known;
    }
    return true;
}

/* The same for a parameter, found out once: a list of many rows calls each by what tells it from the others. */
static bool alike_param(const table *t, int c)
{
    if (!t->alike->params || t->alike->n != t->n) {
        t->alike->params = xrealloc(t->alike->params, (size_t)(t->end_param - t->first_param) + 1);
        t->alike->n = t->n;
        for (int k = t->first_param; k < t->end_param; k++)
            t->alike->params[k - t->first_param] = alike(t, t->file->header[k]);
    }
    return t->alike->params[c - t->first_param];
}

FILE *text_stream(char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    FILE *out = open_memstream(text, bytes);
    if (!out)
        die(EXIT_CODE_FAILURE, "no host memory left for the report");
    return out;
}

/* How a parameter reads in a title; what is a plain default is left out. */
static void print_param(FILE *out, const char *name, const char *value, const char *separator)
{
    bool zero = strcmp(value, "0") == 0, one = strcmp(value, "1") == 0;
    if (!*value || param_is_plain(name, value))
        return;
    if (strcmp(name, "causal") == 0)
        fprintf(out, "%s%s", separator, zero ? "not causal" : "causal");
    else if (strcmp(name, "heads") == 0)
        fprintf(out, "%s%s %s", separator, value, one ? "head" : "heads");
    else if (strcmp(name, "deterministic") == 0)
        fprintf(out, "%s%s", zero ? "" : separator, zero ? "" : "deterministic");
    else if (strcmp(name, "layout") != 0 || strcmp(value, "bhsd") != 0)
        fprintf(out, "%s%s %s", separator, name, value);
}

char *table_shape(const table *t, const char *const *axes)
{
    char *text;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    for (int c = t->first_param; t->n && c < t->end_param; c++) {
        const char *name = t->file->header[c];
        if (names_have(axes, name) || !alike(t, name))
            continue;
        fflush(out); /* brings bytes up to date */
        print_param(out, name, table_text(t, 0, name), bytes ? ", " : "");
    }
    fclose(out);
    return text;
}

char *table_caption(const table *t)
{
    const char *first = "", *last = "";
    for (size_t i = 0; i < t->n; i++) {
        const char *utc = table_text(t, i, "utc");
        first = !i || strcmp(utc, first) < 0 ? utc : first;
        last = !i || strcmp(utc, last) > 0 ? utc : last;
    }
    const char *machine = t->n ? table_text(t, 0, "machine") : "", *gpu = t->n ? table_text(t, 0, "gpu") : "";
    enum { DATE = 10 }; /* characters of 2026-11-21 */
    if (strncmp(first, last, DATE) == 0)
        return xasprintf("%s, %s, %.*s", machine, gpu, DATE, last);
    return xasprintf("%s, %s, %.*s to %.*s", machine, gpu, DATE, first, DATE, last);
}

char *table_case(const table *t, size_t row)
{
    char *text;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    fputs(table_text(t, row, "variant"), out);
    for (int c = t->first_param; c < t->end_param; c++) {
        const char *name = t->file->header[c], *value = table_text(t, row, name);
        if (!alike_param(t, c) && *value && !param_is_unset(name, value))
            fprintf(out, " %s=%s", name, value);
    }
    fclose(out);
    return text;
}
