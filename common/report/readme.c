/* SPDX-License-Identifier: MIT */
/* The README's tables: the benches of all sections, the question that each answers and its newest row; peers beside ours. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

/* How near a row is to the one that is meant: none to all of the values in `only`, counted from the first on; -1: it did
 * not go well. */
static int nearness(const table *t, size_t row, const readme_bench *b)
{
    int pairs = 0;
    if (strcmp(table_text(t, row, "status"), "ok") != 0)
        return -1;
    while (pairs < README_ONLY && b->only[pairs][0] &&
           strcmp(table_text(t, row, b->only[pairs][0]), b->only[pairs][1]) == 0)
        pairs++;
    return pairs;
}

size_t readme_row(const table *t, const readme_bench *b)
{
    size_t best = NO_ROW;
    for (size_t i = 0; i < t->n; i++) {
        const int near = nearness(t, i, b), than = best == NO_ROW ? -1 : nearness(t, best, b);
        const int newer = near < 0 || near != than ? 0 : strcmp(table_text(t, i, "utc"), table_text(t, best, "utc"));
        if (near > than || newer > 0 || (near >= 0 && near == than && newer == 0 && t->rows[i] > t->rows[best]))
            best = i;
    }
    return best;
}

/* Makes *list "a, b" of what it has not got yet. */
static void add_to_list(char **list, const char *separator, const char *text)
{
    if (*list && strstr(*list, text))
        return;
    char *more = *list ? xasprintf("%s%s%s", *list, separator, text) : xstrdup(text);
    free(*list);
    *list = more;
}

static void add_row(document *doc, const readme_bench *b, const table *t, size_t row)
{
    char *what = table_case(t, row);
    doc_row(doc, NULL);
    doc_cell(doc, "%s", link_to(b->name, "bench/%s.c", b->name));
    doc_cell(doc, "%s", b->question);
    doc_cell(doc, "%s:", code("%s", what));
    const char *separator = " ";
    for (const struct readme_column *c = b->columns; c->column; c++) {
        double value = table_real(t, row, c->column);
        if (value != value)
            continue;
        bool same = strcmp(c->what, "=") == 0;
        doc_more(doc, "%s%s%s%s", same ? " = " : separator, same ? "" : c->what, same || !*c->what ? "" : " ",
                 number_unit(value, c->unit));
        separator = ", ";
    }
    free(what);
}

/* Of the first folder that has a row on this device; not all benches run on every machine, nor again for each commit. */
static bool add_bench(document *doc, char *const *dirs, size_t count, const char *device, const readme_bench *b,
                      char **machines, char **commits)
{
    bool added = false;
    char *name = xasprintf("%s.csv", b->name);
    for (size_t d = 0; d < count && !added; d++) {
        table *all = open_result(dirs[d], name), *t = all ? table_where(all, "device", device, NULL) : NULL;
        if (t)
            table_keep_agreeing(t, b->plain);
        const size_t row = t ? readme_row(t, b) : NO_ROW;
        if (row != NO_ROW) {
            table *one = table_where(t, "run_id", table_text(t, row, "run_id"), "utc", table_text(t, row, "utc"), NULL);
            char *caption = table_caption(one);
            add_row(doc, b, t, row);
            add_to_list(machines, "; ", caption);
            add_to_list(commits, ", ", table_text(one, 0, "commit"));
            free(caption);
            table_free(one);
            added = true;
        }
        table_free(t);
        table_free(all);
    }
    free(name);
    return added;
}

static int by_order(const void *a, const void *b)
{
    return (*(const readme_bench *const *)a)->order - (*(const readme_bench *const *)b)->order;
}

const readme_bench **readme_benches(size_t *n)
{
    const readme_bench **all = NULL;
    *n = 0;
    for (const report_section *const *s = report_sections; *s; s++)
        for (const readme_bench *b = (*s)->benches; b && b->name; b++) {
            all = xrealloc(all, (*n + 1) * sizeof *all);
            all[(*n)++] = b;
        }
    if (*n)
        qsort(all, *n, sizeof *all, by_order);
    return all;
}

static char *text_of(const document *doc)
{
    char *text;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    doc_write(doc, &markdown_writer, &(doc_output){.file = out, .folder = "."});
    fclose(out);
    while (bytes > 1 && text[bytes - 1] == '\n' && text[bytes - 2] == '\n') /* the marker stands right below */
        text[--bytes] = '\0';
    return text;
}

static char *make_table(char *const *dirs, size_t count)
{
    /* Rows of the CPU lie beside those of GPUs for lack of GPUs. */
    static const char *const devices[] = {"cuda", "cpu"};
    char *machines = NULL, *commits = NULL, *text = NULL;
    size_t benches, added = 0;
    const readme_bench **all = readme_benches(&benches);
    document *doc = doc_create("");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "bench", "question", "one row", NULL);
    for (int d = 0; d < 2 && !added; d++)
        for (size_t i = 0; i < benches; i++)
            added += add_bench(doc, dirs, count, devices[d], all[i], &machines, &commits);
    if (added) {
        doc_paragraph(doc, "Newest rows, measured on %s, commit %s.", machines, commits);
        text = text_of(doc);
    }
    doc_free(doc);
    free(all);
    free(machines);
    free(commits);
    return text;
}

static char *read_text(const char *path)
{
    FILE *in = fopen(path, "r");
    char *text = NULL;
    size_t bytes = 0;
    if (in && getdelim(&text, &bytes, '\0', in) < 0) {
        free(text);
        text = NULL;
    }
    if (in)
        fclose(in);
    return text;
}

static char *make_comparison(char *const *dirs, size_t count)
{
    document *doc = doc_create("");
    comparisons all = comparisons_of(dirs, count);
    comparisons_write(doc, &all);
    char *text = text_of(doc);
    comparisons_free(&all);
    doc_free(doc);
    return text;
}

/* The text of `readme` with what stands between the marks of `name` replaced; NULL after a message where it has none. */
static char *replaced(const char *readme, const char *text, const char *name, const char *with)
{
    char *begin = xasprintf("<!-- begin %s -->\n", name), *end = xasprintf("<!-- end %s -->", name), *done = NULL;
    const char *first = strstr(text, begin), *last = first ? strstr(first, end) : NULL;
    if (last)
        done = xasprintf("%.*s%s%s", (int)(first - text + (long)strlen(begin)), text, with, last);
    else
        warn("%s has no lines '<!-- begin %s -->' and '%s'", readme, name, end);
    free(begin);
    free(end);
    return done;
}

static bool write_text(const char *path, const char *text)
{
    char *partial = xasprintf("%s.partial", path);
    FILE *out = fopen(partial, "w");
    bool done = out && fputs(text, out) >= 0;
    done = out && fclose(out) == 0 && done && rename(partial, path) == 0;
    if (!done)
        warn("%s: %s", path, strerror(errno));
    free(partial);
    return done;
}

bool readme_update(char *const *dirs, size_t count, const char *readme)
{
    char *benches = make_table(dirs, count), *peers = make_comparison(dirs, count);
    char *text = benches ? read_text(readme) : NULL, *once = text ? replaced(readme, text, "table", benches) : NULL,
         *twice = once ? replaced(readme, once, "peers", peers) : NULL;
    if (!benches)
        warn("'%s'%s no row of a bench that went well", dirs[0], count > 1 ? " and the others have" : " has");
    else if (!text)
        warn("%s: %s", readme, errno ? strerror(errno) : "empty");
    const bool done = twice && write_text(readme, twice);
    free(twice);
    free(once);
    free(text);
    free(peers);
    free(benches);
    return done;
}
