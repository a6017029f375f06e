/* SPDX-License-Identifier: MIT */
/* What ran: how many rows of each bench have which status, and the reasons of those that did not go well. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

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

static void add_reasons(document *doc, const table *t, const char *bench, const char *status)
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
        doc_bullet(doc, "%s %s x %zu: %s (%s%s)", code("%s", bench), strong("%s", status), alike,
                   *reason ? reason : "no reason given", alike > 1 ? "such as " : "", example);
        free(example);
    }
    free(said);
    table_free(s);
}

/* The GPUs of a table's rows, by their runs. */
static size_t gpus_of(const table *t, const csv *machine)
{
    values runs = table_values(t, "run_id");
    const char **uuids = xcalloc(runs.n ? runs.n : 1, sizeof *uuids);
    size_t n = 0;
    for (size_t i = 0; i < runs.n; i++) {
        const char *uuid = run_value(machine, runs.v[i], "gpu_uuid");
        size_t k = 0;
        while (k < n && strcmp(uuids[k], uuid) != 0)
            k++;
        if (*uuid && k == n)
            uuids[n++] = uuid;
    }
    free(uuids);
    values_free(&runs);
    return n;
}

static int is_bench(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return strncmp(entry->d_name, "bench_", 6) == 0 && length > 4 && strcmp(entry->d_name + length - 4, ".csv") == 0;
}

static void count_rows(document *doc, document *reasons, const char *name, const table *t, size_t gpus)
{
    static const char *const status[] = {"ok", "oom", "skip", "fail"};
    char *bench = xstrdup(name), *caption = table_caption(t);
    *strrchr(bench, '.') = '\0';
    doc_row(doc, NULL);
    doc_cell(doc, "%s", link_to(name, "%s", name));
    for (size_t i = 0; i < sizeof status / sizeof *status; i++) {
        table *s = table_where(t, "status", status[i], NULL);
        doc_cell(doc, "%zu", s->n);
        if (i > 0)
            add_reasons(reasons, t, bench, status[i]);
        table_free(s);
    }
    table *throttled = table_where(t, "throttle", "", NULL);
    doc_cell(doc, "%zu", csv_column(t->file, "throttle") < 0 ? 0 : t->n - throttled->n);
    if (gpus)
        doc_cell(doc, "%zu", gpus);
    else
        doc_blank(doc);
    doc_cells(doc, caption, NULL);
    table_free(throttled);
    free(caption);
    free(bench);
}

/* Says on the page and on stderr what of a file does not count. */
static void add_lost(void *doc, const char *name, const csv *file)
{
    char *lost = csv_lost(file);
    csv_warn_lost(file, name);
    if (lost || !file->rows)
        doc_bullet(doc, "%s: %s", code("%s", name), lost ? lost : "no rows");
    free(lost);
}

static void write_section(document *doc, const char *dir)
{
    struct dirent **entries;
    int n = scandir(dir, &entries, is_bench, alphasort);
    if (n < 0)
        die(EXIT_CODE_FAILURE, "can't read the folder %s", dir);
    document *reasons = doc_create("");
    doc_heading(doc, 2, "What ran");
    doc_paragraph(doc, "Counts the newest row of each case. throttled: rows measured while the clocks were held back.");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "rows", NULL);
    doc_columns(doc, DOC_NUMBER, "ok", "oom", "skip", "fail", "throttled", "GPUs", NULL);
    doc_columns(doc, DOC_TEXT, "of", NULL);
    csv *machine = open_peer(dir, "machine.csv");
    size_t most = 0;
    for (int i = 0; i < n; i++) {
        table *t = open_result(dir, entries[i]->d_name);
        const size_t gpus = t ? gpus_of(t, machine) : 0;
        most = gpus > most ? gpus : most;
        if (t) {
            count_rows(doc, reasons, entries[i]->d_name, t, gpus);
        }
        table_free(t);
        free(entries[i]);
    }
    free(entries);
    csv_free(machine);
    if (most > 1)
        doc_paragraph(doc,
                      "GPUs: how many different ones the runs of these rows started on. Where there are several, two "
                      "rows can be of two GPUs.\nRatios of two rows are formed within one run on one GPU only.");
    doc_append(doc, reasons);
    results_each_file(dir, add_lost, doc);
}

const report_section section_ran = {.order = 910, .write = write_section};
