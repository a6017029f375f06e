/* SPDX-License-Identifier: MIT */
/* Opening files of results; see results.h. */
#include "common/report/results.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

table *open_result(const char *dir, const char *name)
{
    char *path = xasprintf("%s/%s", dir, name);
    table *t = table_open(path);
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

csv *open_published(const char *dir, const char *name)
{
    char *path = xasprintf("../published/%s", name);
    csv *c = open_peer(dir, path);
    free(path);
    return c;
}

bool cell_is(const csv *c, size_t row, const char *column, const char *want)
{
    const char *cell = csv_cell(c, row, column);
    return cell && strcmp(cell, want) == 0;
}

const char *run_value(const csv *machine, const char *run_id, const char *key)
{
    for (size_t i = 0; machine && i < machine->rows; i++)
        if (cell_is(machine, i, "run_id", run_id) && cell_is(machine, i, "key", key))
            return csv_cell(machine, i, "value") ? csv_cell(machine, i, "value") : "";
    return "";
}
