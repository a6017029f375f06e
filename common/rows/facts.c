/* SPDX-License-Identifier: MIT */
/* What holds for a whole run: lines of machine.csv, and what a row has behind its columns where there is no such file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/build_info.h"
#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/results.h"
#include "common/rows/internal.h"

static char *number(double x)
{
    return isnan(x) ? xstrdup("nan") : xasprintf("%.9g", x);
}

/* The value of a column of rows_layout.run. Caller frees. */
static char *value_of(const row_writer *r, const char *name)
{
    const char *const texts[][2] = {{"campaign", r->campaign},
                                    {"machine", r->info.machine},
                                    {"device", r->info.device},
                                    {"settle_s", option_text(r->o, "settle")},
                                    {"seed", option_text(r->o, "seed")}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(name, texts[i][0]) == 0)
            return xstrdup(texts[i][1]);
    return strcmp(name, "idle_w") == 0 ? number(r->info.idle_w) : number(build_dirty() < 0 ? NAN : build_dirty());
}

static bool has(const row_writer *r, const column_spec *c)
{
    return row_layout_has(&rows_layout, options_bench(r->o), c->name);
}

char *run_facts_lines(const row_writer *r)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    for (const column_spec *c = rows_layout.run; c->name; c++) {
        OWNED char *value = has(r, c) ? value_of(r, c->name) : xstrdup("");
        results_fact(out, r->run_id, c->name, strcmp(value, "nan") == 0 ? "" : value);
    }
    fclose(out);
    return text;
}

void run_facts_fill(row_writer *r)
{
    size_t header_bytes, line_bytes;
    FILE *header = text_stream(&r->run_header, &header_bytes), *line = text_stream(&r->run_line, &line_bytes);
    for (const column_spec *c = rows_layout.run; c->name; c++) {
        if (!has(r, c))
            continue;
        OWNED char *value = value_of(r, c->name), *cell = csv_quoted(value);
        fprintf(header, ",%s", c->name);
        fprintf(line, ",%s", cell);
    }
    fclose(header);
    fclose(line);
}
