/* SPDX-License-Identifier: MIT */
/* Reading one side of a comparison: its files and their cells; see internal.h. */
#include <stdlib.h>

#include "common/core/error.h"
#include "common/core/results.h"
#include "common/compare/internal.h"

/* Takes over the file. */
static bool take_file(side *s, csv *file)
{
    *s = (side){.file = file};
    if (!file || !file->rows || csv_column(file, "bench") < 0 || csv_column(file, "reason") < 0) {
        side_free(s);
        return false;
    }
    return true;
}

/* What rows alone do not say of their run. */
static void join(side *s, const char *machine)
{
    results_join(s->file, machine, (const char *const[]){"machine", "device", "dirty", NULL});
    s->machine = results_read(machine);
}

bool side_parse(side *s, const char *text, const char *machine_csv)
{
    const bool taken = take_file(s, csv_parse(text));
    if (taken)
        join(s, machine_csv);
    return taken;
}

bool side_open(side *s, csv *read, const char *path, bool say)
{
    if (say)
        csv_warn_lost(read, path);
    char *refusal = results_refusal(read, path);
    if (refusal)
        die(EXIT_CODE_USAGE, "%s", refusal);
    if (!take_file(s, read))
        return false;
    OWNED char *machine = results_machine(path);
    join(s, machine);
    return true;
}

void side_free(side *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->groups[i].rows);
    for (size_t i = 0; s->keys && i < s->file->rows; i++)
        free(s->keys[i]);
    free(s->groups);
    free(s->keys);
    csv_free(s->file);
    csv_free(s->machine);
    *s = (side){0};
}

const char *side_cell(const side *s, size_t row, const char *column)
{
    return csv_cell(s->file, row, column);
}

const char *side_machine(const side *s, size_t row, const char *what)
{
    return results_fact_find(s->machine, side_cell(s, row, "run_id"), what);
}
