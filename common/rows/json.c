/* SPDX-License-Identifier: MIT */
/* A row as a line of JSON: an object with the columns of the CSV in their order, and behind them what holds for the run. Numbers that are missing or not finite
 * are null, as JSON has no words for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/rows/rows.h"

static const column_spec *find(const column_spec *columns, const char *name)
{
    while (columns && columns->name && strcmp(columns->name, name) != 0)
        columns++;
    return columns && columns->name ? columns : NULL;
}

static bool is_text(const options *o, const char *name)
{
    const column_spec *of_bench = find(options_bench(o)->columns, name), *first = find(rows_layout.first, name),
                      *last = find(rows_layout.last, name);
    const column_spec *column = of_bench ? of_bench : first ? first : last ? last : find(rows_layout.run, name);
    if (column)
        return column->kind == COLUMN_TEXT;
    for (size_t i = 0; i < options_param_count(o); i++)
        if (strcmp(options_param_name(o, i), name) == 0)
            return options_param_is_text(o, i);
    return true;
}

static void write_number(FILE *out, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    fprintf(out, "%s", *text && !*end && isfinite(value) ? text : "null");
}

void json_write_row(FILE *out, const options *o, const char *header, const char *line)
{
    OWNED char *text = xasprintf("%s\n%s", header, line);
    OWNED_CSV csv *c = csv_parse(text);
    for (size_t i = 0; i < c->columns; i++) {
        const char *name = c->header[i], *cell = c->cells[i];
        fputc(i ? ',' : '{', out);
        text_json(out, name);
        fputc(':', out);
        if (is_text(o, name))
            text_json(out, cell);
        else
            write_number(out, cell);
    }
    fputs("}\n", out);
    fflush(out);
}
