/* SPDX-License-Identifier: MIT */
/* Rows on stdout, and ratios to a baseline; see row_output.h. */
#include "common/session/row_output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/compare/compare.h"
#include "common/core/output.h"
#include "common/core/results.h"
#include "common/rows/rows.h"

/* The file with the rows of this bench, or NULL. Caller frees. */
static char *baseline_of(const options *o)
{
    const char *folder = option_text(o, "baseline");
    return strcmp(folder, "none") == 0 ? NULL : xasprintf("%s/%s.csv", folder, options_bench(o)->name);
}

void row_output_check(const options *o)
{
    OWNED char *baseline = baseline_of(o);
    OWNED_CSV csv *file = baseline ? csv_read(baseline) : NULL;
    if (baseline && !file)
        die(EXIT_CODE_USAGE, "--baseline %s has no rows of %s: %s: %s", option_text(o, "baseline"),
            options_bench(o)->name, baseline, strerror(errno));
    if (file && file->problem)
        die(EXIT_CODE_USAGE, "--baseline %s: no line counts, since %s", baseline, file->problem);
    char *refusal = results_refusal(file, baseline);
    if (refusal)
        die(EXIT_CODE_USAGE, "--baseline: %s", refusal);
    csv_warn_lost(file, baseline);
}

row_output row_output_begin(const options *o, FILE *rows, const char *csv)
{
    row_output out = {.o = o, .rows = rows};
    out.baseline = baseline_of(o);
    if (!out.baseline)
        return out;
    out.machine = results_machine(csv ? csv : "");
    return out;
}

void row_output_write(void *output, const char *header, const char *line)
{
    row_output *out = output;
    if (out->rows && option_flag(out->o, "json")) {
        json_write_row(out->rows, out->o, header, line);
    } else if (out->rows) {
        fprintf(out->rows, out->begun ? "%.0s%s" : "%s\n%s", header, line);
        fflush(out->rows);
        out->begun = true;
    }
    if (!out->baseline)
        return;
    OWNED char *row = xasprintf("%s\n%s", header, line), *said = compare_row(out->baseline, row, out->machine);
    say("    baseline: %s\n", said);
}

void row_output_end(row_output *out)
{
    free(out->baseline);
    free(out->machine);
}
