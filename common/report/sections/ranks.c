/* SPDX-License-Identifier: MIT */
/* bench_fsdp in the report over numbers of ranks: weak scaling, where each rank's batch stays, and strong scaling, where
 * the batch of all ranks together stays. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

enum { MOST = 32 }; /* rows of a line */

typedef struct kind {
    const char *title, *keeps; /* what stays the same, a column */
    const char *what;
} kind;
static const kind kinds[] = {{"Weak scaling", "batch", "batch per rank"},
                             {"Strong scaling", "global_batch", "batch of all ranks"}};

/* What the batch of all ranks is, also of a row that did not fit. */
static double kept_of(const table *t, size_t row, const kind *k)
{
    const double batch = table_real(t, row, "batch");
    return strcmp(k->keeps, "batch") == 0 ? batch : batch * table_real(t, row, "ranks");
}

static bool same_line(const table *t, size_t a, size_t b, const kind *k)
{
    for (int c = t->first_param; c < t->end_param; c++) {
        const char *name = t->file->header[c];
        if (strcmp(name, "ranks") != 0 && strcmp(name, "batch") != 0 &&
            strcmp(table_text(t, a, name), table_text(t, b, name)) != 0)
            return false;
    }
    return kept_of(t, a, k) == kept_of(t, b, k) &&
           strcmp(table_text(t, a, "variant"), table_text(t, b, "variant")) == 0 &&
           strcmp(table_text(t, a, "device"), table_text(t, b, "device")) == 0;
}

static bool fits(const table *t, size_t row)
{
    return strcmp(table_text(t, row, "status"), "ok") == 0;
}

/* Rows of one line by their ranks. */
typedef struct line {
    size_t row[MOST], n;
    size_t first; /* that with the fewest ranks that fits, else NO_ROW */
} line;

static line line_of(const table *t, size_t like, const kind *k)
{
    line l = {.n = 0, .first = NO_ROW};
    for (size_t i = 0; i < t->n && l.n < MOST; i++) {
        if (strcmp(table_text(t, i, "status"), "skip") == 0 || !same_line(t, like, i, k))
            continue;
        size_t at = l.n++;
        for (; at > 0 && table_real(t, l.row[at - 1], "ranks") > table_real(t, i, "ranks"); at--)
            l.row[at] = l.row[at - 1];
        l.row[at] = i;
    }
    for (size_t i = 0; i < l.n && l.first == NO_ROW; i++)
        l.first = fits(t, l.row[i]) ? l.row[i] : NO_ROW;
    return l;
}

/* Tokens a second and rank against those on the fewest ranks; NAN for these themselves. */
static double efficiency(const table *t, const line *l, size_t row)
{
    if (row == l->first || l->first == NO_ROW || !fits(t, row) || !table_beside(t, row, t, l->first))
        return NAN;
    return table_real(t, row, "tokens_per_s") / table_real(t, row, "ranks") * table_real(t, l->first, "ranks") /
           table_real(t, l->first, "tokens_per_s");
}

static void begin_table(document *doc, const kind *k)
{
    doc_paragraph(doc,
                  "%s: the %s stays the same. In %% of linear: tokens a second of each rank against those on the "
                  "fewest ranks.",
                  strong("%s", k->title), k->what);
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "variant", "size", "precision", "sums", NULL);
    doc_columns(doc, DOC_NUMBER, "S", "ranks", "batch per rank", "batch of all", "step ms", "tokens/s", "% of linear",
                "exposed ms", "MFU %", "peak GiB", NULL);
}

static void add_line(document *doc, const table *t, const line *l)
{
    for (size_t i = 0; i < l->n; i++) {
        const size_t row = l->row[i];
        doc_row(doc, table_text(t, row, "variant"), table_text(t, row, "size"), table_text(t, row, "precision"),
                table_text(t, row, "wire_dtype"), table_text(t, row, "seq"), table_text(t, row, "ranks"),
                table_text(t, row, "batch"), NULL);
        doc_cell(doc, "%g", table_real(t, row, "ranks") * table_real(t, row, "batch"));
        doc_cells(doc, cell_number(t, row, "step_ms", 1), cell_number(t, row, "tokens_per_s", 1),
                  number(100 * efficiency(t, l, row)), cell_number(t, row, "exposed_ms", 1),
                  cell_number(t, row, "mfu_causal_pct", 1), cell_number(t, row, "peak_bytes", GIB), NULL);
    }
}

/* What the most ranks make of a line. */
static void say_line(document *doc, const table *t, const line *l, const kind *k)
{
    const size_t last = l->row[l->n - 1];
    if (!isfinite(efficiency(t, l, last)))
        return;
    doc_bullet(doc, "%s, %s %s, %s %g: from %s to %s ranks a step of %s ms becomes one of %s ms, %s %% of linear",
               table_text(t, last, "variant"), table_text(t, last, "size"), table_text(t, last, "precision"), k->what,
               kept_of(t, last, k), table_text(t, l->first, "ranks"), table_text(t, last, "ranks"),
               number(table_real(t, l->first, "step_ms")), number(table_real(t, last, "step_ms")),
               number(100 * efficiency(t, l, last)));
    doc_more(doc, "; the memory of a rank goes from %s to %s.",
             number_unit(table_real(t, l->first, "peak_bytes"), "bytes"),
             number_unit(table_real(t, last, "peak_bytes"), "bytes"));
}

static bool has_several_ranks(const table *t, const line *l)
{
    return l->n > 1 && table_real(t, l->row[0], "ranks") < table_real(t, l->row[l->n - 1], "ranks");
}

static void write_kind(document *doc, const table *t, const kind *k)
{
    bool begun = false;
    document *said = doc_create("");
    for (size_t i = 0; i < t->n; i++) {
        const line l = line_of(t, i, k);
        if (!has_several_ranks(t, &l) || l.row[0] != i)
            continue;
        if (!begun)
            begin_table(doc, k);
        begun = true;
        add_line(doc, t, &l);
        say_line(said, t, &l, k);
    }
    doc_append(doc, said);
}

static void write_section(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_fsdp.csv");
    if (!all)
        return;
    table *t = table_where(all, "mode", "train-step", NULL);
    document *parts = doc_create("");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        write_kind(parts, t, &kinds[i]);
    if (doc_empty(parts)) {
        doc_free(parts);
    } else {
        doc_heading(doc, 2, "Weak and strong scaling");
        figures(doc, dir, "ranks_");
        doc_append(doc, parts);
    }
    table_free(t);
    table_free(all);
}

const report_section section_ranks = {.order = 115, .write = write_section};
