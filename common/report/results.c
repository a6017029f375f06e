/* SPDX-License-Identifier: MIT */
/* Opening files of results; see results.h. */
#include "common/report/results.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

/* Which run on which GPU a row is of, as text to compare. Caller frees. */
static char *run_of_row(const csv *file, size_t row, const csv *machine)
{
    const char *campaign = csv_cell(file, row, "campaign"), *gpu = csv_cell(file, row, "gpu_uuid");
    const char *run = csv_cell(file, row, "run_id"), *commit = csv_cell(file, row, "commit");
    if (!*gpu)
        gpu = run_value(machine, run, "gpu_uuid");
    return xasprintf("%s %s", gpu, *campaign ? campaign : commit);
}

table *open_rows(const char *path)
{
    table *t = table_open(path);
    if (!t)
        return NULL;
    const char *slash = strrchr(path, '/');
    char *dir = slash ? xasprintf("%.*s", (int)(slash - path), path) : xstrdup(".");
    csv *machine = open_peer(dir, "machine.csv");
    t->run_of = xcalloc(t->file->rows, sizeof *t->run_of);
    for (size_t i = 0; i < t->file->rows; i++)
        t->run_of[i] = run_of_row(t->file, i, machine);
    csv_free(machine);
    free(dir);
    return t;
}

table *open_result(const char *dir, const char *name)
{
    char *path = xasprintf("%s/%s", dir, name);
    table *t = open_rows(path);
    free(path);
    return t;
}

csv *open_peer(const char *dir, const char *name)
{
    char *path = xasprintf("%s/%s", dir, name);
    csv *c = csv_read(path);
    free(path);
    return c;
}

static int is_csv(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return *entry->d_name != '.' && dot && strcmp(dot, ".csv") == 0;
}

void results_each_file(const char *dir, results_visit *visit, void *user)
{
    static const char *const folders[] = {"", "memory/", "profile/", "timeline/"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        struct dirent **entries;
        char *folder = xasprintf("%s/%s", dir, folders[f]);
        const int n = scandir(folder, &entries, is_csv, alphasort);
        for (int i = 0; i < n; i++) {
            char *name = xasprintf("%s%s", folders[f], entries[i]->d_name);
            csv *file = open_peer(dir, name);
            if (file)
                visit(user, name, file);
            csv_free(file);
            free(name);
            free(entries[i]);
        }
        if (n >= 0)
            free(entries);
        free(folder);
    }
}

static bool same_case(const csv *c, size_t a, size_t b, int first, int end)
{
    for (int k = first; k < end; k++)
        if (strcmp(c->cells[a * c->columns + (size_t)k], c->cells[b * c->columns + (size_t)k]) != 0)
            return false;
    return true;
}

/* What names neither its GPU nor its run can stand beside nothing. */
static bool has_origin(const csv *c, size_t row)
{
    const char *gpu = csv_cell(c, row, "gpu_uuid"), *run = csv_cell(c, row, "run_id");
    return gpu && *gpu && run && *run;
}

/* Rows are appended: a later one of the same case is newer. */
static void keep_newest(csv *c)
{
    int first, end;
    size_t kept = 0;
    table_params(c, &first, &end);
    for (size_t i = 0; i < c->rows; i++) {
        bool newest = has_origin(c, i);
        for (size_t k = i + 1; newest && k < c->rows; k++)
            newest = !same_case(c, i, k, first, end);
        if (newest)
            memmove(c->cells + kept++ * c->columns, c->cells + i * c->columns, c->columns * sizeof *c->cells);
    }
    c->rows = kept;
}

csv *open_peer_rows(const char *dir, const char *what)
{
    char *name = xasprintf("peer_%s.csv", what);
    csv *c = open_peer(dir, name);
    free(name);
    if (c)
        keep_newest(c);
    return c;
}

const char *main_device(const char *dir)
{
    csv *machine = open_peer(dir, "machine.csv");
    bool gpu = false;
    for (size_t i = 0; machine && i < machine->rows && !gpu; i++)
        gpu = cell_is(machine, i, "key", "gpu_name");
    csv_free(machine);
    return gpu ? "cuda" : "cpu";
}

csv *open_published(const char *dir, const char *name)
{
    char *path = xasprintf("../published/%s", name);
    csv *c = open_peer(dir, path);
    free(path);
    return c;
}

bool cell_is(const csv *c, size_t row, const char *column, const char *want)
{
    return csv_is(c, row, column, want);
}

const char *run_value(const csv *machine, const char *run_id, const char *key)
{
    for (size_t i = 0; machine && i < machine->rows; i++)
        if (cell_is(machine, i, "run_id", run_id) && cell_is(machine, i, "key", key))
            return csv_cell(machine, i, "value");
    return "";
}
