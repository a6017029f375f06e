/* SPDX-License-Identifier: MIT */
/* What was measured on and what ran: the machine's facts and the statuses of every bench. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/sections.h"

/* A cell of a Markdown table may hold neither '|' nor a line break. */
static void print_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '|')
            fputs("\\|", out);
        else
            fputc(*text == '\n' || *text == '\r' ? ' ' : *text, out);
}

void machine_section(FILE *out, const char *dir)
{
    char *path = xasprintf("%s/machine.csv", dir);
    csv *c = csv_read(path);
    free(path);
    if (!c || csv_column(c, "run_id") < 0 || csv_column(c, "key") < 0 || csv_column(c, "value") < 0 || !c->rows) {
        csv_free(c);
        return;
    }
    const char *newest = "";
    for (size_t r = 0; r < c->rows; r++)
        if (strcmp(csv_cell(c, r, "run_id"), newest) > 0)
            newest = csv_cell(c, r, "run_id");
    fprintf(out, "## Machine\n\n| what | value |\n|---|---|\n");
    for (size_t r = 0; r < c->rows; r++) {
        const char *value = csv_cell(c, r, "value");
        const char *key = csv_cell(c, r, "key");
        bool of_the_run = strcmp(key, "bench") == 0 || strcmp(key, "command") == 0 || strcmp(key, "options") == 0;
        if (strcmp(csv_cell(c, r, "run_id"), newest) != 0 || !*value || of_the_run)
            continue;
        fprintf(out, "| %s | ", key);
        print_escaped(out, value);
        fprintf(out, " |\n");
    }
    fprintf(out, "\nOf the newest run, %s; [machine.csv](machine.csv) has every run and its command.\n\n", newest);
    csv_free(c);
}

/* Reasons that differ in nothing but sizes are one reason. */
static bool same_reason(const char *a, const char *b)
{
    static const char digits[] = "0123456789.";
    for (;;) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (*a != *b)
            return false;
        if (!*a)
            return true;
        a++;
        b++;
    }
}

static void print_reasons(FILE *out, const table *t, const char *bench, const char *status)
{
    table *s = table_where(t, "status", status, NULL);
    bool *said = xcalloc(s->n ? s->n : 1, sizeof *said);
    for (size_t i = 0; i < s->n; i++) {
        const char *reason = table_text(s, i, "reason");
        size_t alike = 0;
        for (size_t k = i; k < s->n && !said[i]; k++)
            if (same_reason(reason, table_text(s, k, "reason"))) {
                alike++;
                said[k] = k > i;
            }
        if (!alike)
            continue;
        char *example = table_case(t, table_find(t, "status", status, "reason", reason, NULL));
        fprintf(out, "- `%s` **%s** x %zu: ", bench, status, alike);
        print_escaped(out, *reason ? reason : "no reason given");
        fprintf(out, " (%s%s)\n", alike > 1 ? "such as " : "", example);
        free(example);
    }
    free(said);
    table_free(s);
}

static int is_bench(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return strncmp(entry->d_name, "bench_", 6) == 0 && length > 4 && strcmp(entry->d_name + length - 4, ".csv") == 0;
}

static void count_rows(FILE *out, FILE *reasons, const char *name, const table *t)
{
    static const char *const status[] = {"ok", "oom", "skip", "fail"};
    fprintf(out, "| [%s](%s) |", name, name);
    char *bench = xstrdup(name);
    *strrchr(bench, '.') = '\0';
    for (size_t i = 0; i < sizeof status / sizeof *status; i++) {
        table *s = table_where(t, "status", status[i], NULL);
        fprintf(out, " %zu |", s->n);
        if (i > 0)
            print_reasons(reasons, t, bench, status[i]);
        table_free(s);
    }
    table *throttled = table_where(t, "throttle", "", NULL);
    size_t watched = csv_column(t->file, "throttle") < 0 ? 0 : t->n - throttled->n;
    char *caption = table_caption(t);
    fprintf(out, " %zu | %s |\n", watched, caption);
    free(caption);
    free(bench);
    table_free(throttled);
}

void ran_section(FILE *out, const char *dir)
{
    struct dirent **entries;
    int n = scandir(dir, &entries, is_bench, alphasort);
    char *text;
    size_t bytes;
    if (n < 0)
        die(EXIT_CODE_FAILURE, "can't read the folder %s", dir);
    FILE *reasons = text_stream(&text, &bytes);
    fprintf(out, "## What ran\n\nThe newest row of each case. throttled: rows whose clocks were held back.\n\n"
                 "| rows | ok | oom | skip | fail | throttled | of |\n|---|---:|---:|---:|---:|---:|---|\n");
    for (int i = 0; i < n; i++) {
        table *t = open_result(dir, entries[i]->d_name);
        if (t)
            count_rows(out, reasons, entries[i]->d_name, t);
        table_free(t);
        free(entries[i]);
    }
    free(entries);
    fclose(reasons);
    fprintf(out, "\n%s%s", text, bytes ? "\n" : "");
    free(text);
}
