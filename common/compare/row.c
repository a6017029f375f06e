/* SPDX-License-Identifier: MIT */
/* One row beside the baseline's rows of its case, as a line of text; see compare.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/compare/internal.h"

/* "fwd_ms 0.981 [0.970, 0.992] FASTER": the time of the row over the baseline's. */
static void add_time(FILE *out, const compare_entry *e)
{
    const judgement *j = &e->judged;
    fprintf(out, "%s %.3f", e->metric, exp(j->ratio));
    if (isfinite(j->lo))
        fprintf(out, " [%.3f, %.3f]", exp(j->lo), exp(j->hi));
    fprintf(out, " %s", compare_word(e));
}

/* Times first; of what has none, why. */
static char *text_of(const comparison *c)
{
    char *text;
    size_t bytes, said = 0;
    FILE *out = text_stream(&text, &bytes);
    for (size_t i = 0; i < c->n; i++)
        if (c->entries[i].kind == COMPARE_TIME) {
            fprintf(out, "%s", said++ ? ", " : "");
            add_time(out, &c->entries[i]);
        }
    for (size_t i = 0; i < c->n; i++) {
        const compare_entry *e = &c->entries[i];
        if (e->kind != COMPARE_TIME && !(said && e->kind == COMPARE_UNMATCHED))
            fprintf(out, "%s%s%s%s%s%s", said++ ? ", " : "", e->metric, *e->metric ? " " : "", compare_word(e),
                    *e->why ? ": " : "", e->why);
    }
    if (!said)
        fprintf(out, "no time to compare");
    fclose(out);
    return text;
}

/* Without the rows of this run, which are there if it writes to the baseline itself. */
static void drop_run(csv *file, const char *run)
{
    size_t kept = 0;
    for (size_t i = 0; i < file->rows; i++) {
        if (!csv_is(file, i, "run_id", run))
            memmove(file->cells + kept++ * file->columns, file->cells + i * file->columns,
                    file->columns * sizeof *file->cells);
    }
    file->rows = kept;
}

char *compare_row(const char *baseline_csv, const char *row, const char *machine_csv)
{
    const compare_options o = {.margin = log(1.03), .noise = NAN, .across = ""};
    side a = {0}, b = {0};
    char *text;
    if (!side_parse(&b, row, machine_csv) || !side_open(&a, csv_read(baseline_csv), baseline_csv, false)) {
        side_free(&b);
        return xstrdup("has no rows");
    }
    drop_run(a.file, side_cell(&b, 0, "run_id"));
    comparison *c = compare_one(&a, &b, &o);
    text = c ? text_of(c) : xstrdup("has no such case");
    comparison_free(c);
    side_free(&a);
    side_free(&b);
    return text;
}
