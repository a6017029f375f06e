/* SPDX-License-Identifier: MIT */
/* See results.h. */
#include "common/core/results.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/error.h"

char *results_refusal(const csv *file, const char *path)
{
    for (size_t i = 0; file && csv_column(file, "schema") >= 0 && i < file->rows; i++) {
        const double schema = csv_real(file, i, "schema"); /* a number: no stranger's text is said */
        if (schema != RESULTS_SCHEMA)
            return xasprintf("%s has rows of schema %g, and this version reads schema %d: %s", path, schema,
                             RESULTS_SCHEMA,
                             schema > RESULTS_SCHEMA ? "a newer version reads them" : "measure them anew");
    }
    return NULL;
}

csv *results_read(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return NULL;
    const bool is_plain = stat(path, &st) != 0 || S_ISREG(st.st_mode);
    csv *file = is_plain ? csv_read(path) : NULL;
    if (!file) {
        file = csv_parse("");
        file->problem = is_plain ? "it can't be read" : "it is no plain file";
    }
    return file;
}

char *results_machine(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? xasprintf("%.*s/machine.csv", (int)(slash - path), path) : xstrdup("machine.csv");
}

void results_fact(FILE *out, const char *run_id, const char *key, const char *value)
{
    if (!*value)
        return;
    OWNED char *cell = csv_quoted(value);
    for (char *c = cell; *c; c++)
        *c = *c == '\n' || *c == '\r' ? ' ' : *c;
    fprintf(out, "%s,%s,%s\n", run_id, key, cell);
}

void results_facts_append(const char *machine, const char *lines)
{
    struct stat st;
    const int fd = open(machine, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    const bool known = fd >= 0 && fstat(fd, &st) == 0, empty = known && st.st_size == 0;
    char last = '\n'; /* else a machine that went down left half a line */
    const bool torn = known && !empty && pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n';
    OWNED char *all = xasprintf("%s%s", empty ? "run_id,key,value\n" : torn ? "\n" : "", lines);
    const ssize_t wrote = fd < 0 ? -1 : write(fd, all, strlen(all));
    if (wrote != (ssize_t)strlen(all))
        warn("cannot write the machine report %s: %m", machine);
    /* A part of it would be glued to the next run's first line. */
    if (wrote > 0 && wrote < (ssize_t)strlen(all) && lseek(fd, -wrote, SEEK_END) >= 0 &&
        ftruncate(fd, lseek(fd, 0, SEEK_CUR)) != 0)
        warn("cannot take back a part of the machine report %s: %m", machine);
    if (fd >= 0)
        close(fd);
}

const char *results_fact_find(const csv *machine, const char *run_id, const char *key)
{
    for (size_t i = machine ? machine->rows : 0; i-- > 0;)
        if (csv_is(machine, i, "run_id", run_id) && csv_is(machine, i, "key", key))
            return csv_cell(machine, i, "value");
    return "";
}

/* Rows of a run follow each other: what the row above has is mostly right. */
static char *fact_of(const csv *file, size_t row, const csv *machine, const char *key, char *above)
{
    const char *run = csv_cell(file, row, "run_id");
    if (row > 0 && strcmp(run, csv_cell(file, row - 1, "run_id")) == 0)
        return above;
    return (char *)results_fact_find(machine, run, key);
}

static void add_column(csv *file, const csv *machine, const char *key)
{
    const size_t columns = file->columns;
    char **cells = xmalloc((file->rows + 1) * (columns + 1) * sizeof *cells), *fact = NULL;
    for (size_t i = 0; i < file->rows; i++) {
        memcpy(cells + i * (columns + 1), file->cells + i * columns, columns * sizeof *cells);
        fact = fact_of(file, i, machine, key, fact);
        cells[i * (columns + 1) + columns] = fact;
    }
    free(file->cells);
    file->cells = cells;
    file->header = xrealloc(file->header, (columns + 1) * sizeof *file->header);
    file->header[columns] = (char *)key;
    file->columns++;
}

void results_join(csv *file, const char *machine, const char *const *keys)
{
    if (!file || file->problem || csv_column(file, "run_id") < 0)
        return;
    if (!file->joined)
        file->joined = results_read(machine);
    for (; *keys; keys++)
        if (csv_column(file, *keys) < 0)
            add_column(file, file->joined, *keys);
}
