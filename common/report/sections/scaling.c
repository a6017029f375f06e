/* SPDX-License-Identifier: MIT */
/* bench_transformer in the report, one dimension at a time: context, blocks, width, vocabulary, batch, and key
 * and value heads. Each
 * table has the rows that differ in this dimension alone, and the sentence below it is made of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

/* ---- rows of one dimension ---- */

typedef struct points { /* ok rows that may stand in a ratio, ascending in the dimension */
    size_t n, *row;
} points;

static points points_of(const table *t, const char *axis, const char *recompute)
{
    values all = table_values(t, axis);
    points p = {0, xmalloc((t->n + 1) * sizeof *p.row)};
    for (size_t v = 0; v < all.n; v++)
        for (size_t i = 0; i < t->n; i++)
            if (strcmp(table_text(t, i, axis), all.v[v]) == 0 && strcmp(table_text(t, i, "status"), "ok") == 0 &&
                strcmp(table_text(t, i, "recompute"), recompute) == 0 && (!p.n || table_beside(t, p.row[0], t, i)))
                p.row[p.n++] = i;
    values_free(&all);
    return p;
}

static double ratio(const table *t, size_t to, size_t from, const char *column)
{
    return table_real(t, to, column) / table_real(t, from, column);
}

/* "MFU goes from 38.0 % to 51.2 %", where the peak is known. */
static void add_mfu(document *doc, const table *t, size_t from, size_t to)
{
    const double a = table_real(t, from, "mfu_causal_pct"), b = table_real(t, to, "mfu_causal_pct");
    if (isfinite(a) && isfinite(b))
        doc_more(doc, ", and MFU goes from %s %% to %s %%", number(a), number(b));
}

/* ---- sentences ---- */

static void say_context(document *doc, const table *t)
{
    points p = points_of(t, "seq", "none"), blocks = points_of(t, "seq", "block");
    if (p.n > 1) {
        const size_t a = p.row[0], z = p.row[p.n - 1];
        doc_paragraph(doc, "From S %s to S %s (%s times) a step takes %s times as long: %s tokens/s become %s",
                      table_text(t, a, "seq"), table_text(t, z, "seq"), number(ratio(t, z, a, "seq")),
                      number(ratio(t, z, a, "step_ms")), number(table_real(t, a, "tokens_per_s")),
                      number(table_real(t, z, "tokens_per_s")));
        add_mfu(doc, t, a, z);
        doc_more(doc, ".");
        for (size_t i = 0; i < blocks.n; i++)
            if (strcmp(table_text(t, blocks.row[i], "seq"), table_text(t, z, "seq")) == 0 &&
                table_beside(t, z, t, blocks.row[i]))
                doc_more(doc, " There, computing blocks again takes %s of the memory and %s times as long.",
                         number(ratio(t, blocks.row[i], z, "peak_bytes")),
                         number(ratio(t, blocks.row[i], z, "step_ms")));
    }
    if (blocks.n && p.n && table_real(t, blocks.row[blocks.n - 1], "seq") > table_real(t, p.row[p.n - 1], "seq"))
        doc_more(doc, " Longer contexts, up to S %s, fit only where blocks are computed again.",
                 table_text(t, blocks.row[blocks.n - 1], "seq"));
    free(blocks.row);
    free(p.row);
}

typedef struct line { /* y = at + by x by least squares, and its largest deviation as a share of y */
    double at, by, off;
} line;

static line line_of(const table *t, const points *p, const char *x, const char *y)
{
    double sx = 0, sy = 0, xx = 0, xy = 0;
    const double n = (double)p->n;
    for (size_t i = 0; i < p->n; i++) {
        const double a = table_real(t, p->row[i], x), b = table_real(t, p->row[i], y);
        sx += a;
        sy += b;
        xx += a * a;
        xy += a * b;
    }
    line l = {.by = (n * xy - sx * sy) / (n * xx - sx * sx)};
    l.at = (sy - l.by * sx) / n;
    for (size_t i = 0; i < p->n; i++) {
        const double want = table_real(t, p->row[i], y);
        l.off = fmax(l.off, fabs(l.at + l.by * table_real(t, p->row[i], x) - want) / want);
    }
    return l;
}

static void say_depth(document *doc, const table *t)
{
    points p = points_of(t, "layers", "none");
    if (p.n > 2) {
        const line ms = line_of(t, &p, "layers", "step_ms"), bytes = line_of(t, &p, "layers", "peak_bytes");
        doc_paragraph(doc,
                      "A block more takes %s ms and %s: the lines through these depths are off by at most %s %% and "
                      "%s %%. What is no block\ntakes %s ms and %s.",
                      number(ms.by), number_unit(bytes.by, "bytes"), number(100 * ms.off), number(100 * bytes.off),
                      number(ms.at), number_unit(bytes.at, "bytes"));
    }
    free(p.row);
}

enum { GOOD_WIDTH = 128 }; /* a tile of a product has so many columns or a multiple */

static bool is_good(const table *t, size_t row)
{
    return fmod(table_real(t, row, "d_model"), GOOD_WIDTH) == 0;
}

/* The nearest good width below or above, else NO_ROW. */
static size_t neighbour(const table *t, const points *p, size_t row, bool above)
{
    size_t best = NO_ROW;
    const double at = table_real(t, row, "d_model");
    for (size_t i = 0; i < p->n; i++) {
        const double d = table_real(t, p->row[i], "d_model");
        if (is_good(t, p->row[i]) && (above ? d > at : d < at) &&
            (best == NO_ROW || fabs(d - at) < fabs(table_real(t, best, "d_model") - at)))
            best = p->row[i];
    }
    return best;
}

static double rate_at(const table *t, size_t row)
{
    return table_real(t, row, "tflops");
}

/* How far the rate of a width is from the line, over the logarithm of the width, between its good neighbours. */
static double off_neighbours(const table *t, const points *p, size_t row)
{
    const size_t a = neighbour(t, p, row, false), b = neighbour(t, p, row, true);
    if (a == NO_ROW || b == NO_ROW)
        return NAN;
    const double x = log(table_real(t, row, "d_model") / table_real(t, a, "d_model")) /
                     log(table_real(t, b, "d_model") / table_real(t, a, "d_model"));
    return rate_at(t, row) / (rate_at(t, a) + x * (rate_at(t, b) - rate_at(t, a))) - 1;
}

static void say_width(document *doc, const table *t)
{
    points p = points_of(t, "d_model", "none");
    size_t first = NO_ROW, last = NO_ROW;
    bool begun = false;
    for (size_t i = 0; i < p.n; i++)
        if (is_good(t, p.row[i])) {
            first = first == NO_ROW ? p.row[i] : first;
            last = p.row[i];
        }
    if (first != last) {
        doc_paragraph(doc, "From width %s to width %s a step does %s TFLOP/s and then %s",
                      table_text(t, first, "d_model"), table_text(t, last, "d_model"), number(rate_at(t, first)),
                      number(rate_at(t, last)));
        add_mfu(doc, t, first, last);
        doc_more(doc, ".");
    }
    for (size_t i = 0; i < p.n; i++) {
        const double off = 100 * off_neighbours(t, &p, p.row[i]);
        if (is_good(t, p.row[i]) || !isfinite(off))
            continue;
        if (!begun)
            doc_more(doc, " Widths that are no multiple of %d, against the line between their neighbours that are:",
                     GOOD_WIDTH);
        doc_more(doc, "%s %s: %s %% %s", begun ? ";" : "", table_text(t, p.row[i], "d_model"), number(fabs(off)),
                 off < 0 ? "slower" : "faster");
        begun = true;
    }
    if (begun)
        doc_more(doc, ".");
    free(p.row);
}

static void say_batch(document *doc, const table *t)
{
    points p = points_of(t, "batch", "none");
    if (p.n > 1) {
        const size_t a = p.row[0], z = p.row[p.n - 1];
        doc_paragraph(doc, "Batch %s instead of %s makes %s times as many tokens/s", table_text(t, z, "batch"),
                      table_text(t, a, "batch"), number(ratio(t, z, a, "tokens_per_s")));
        add_mfu(doc, t, a, z);
        doc_more(doc, ".");
    }
    free(p.row);
}

static void say_heads(document *doc, const table *t)
{
    static const char *const columns[] = {"params", "step_ms", "peak_bytes"};
    static const char *const names[] = {"parameters", "time", "memory"};
    points p = points_of(t, "heads_kv", "none");
    if (p.n > 1) {
        const size_t few = p.row[0], many = p.row[p.n - 1];
        doc_paragraph(doc, "%s key and value heads instead of %s:", table_text(t, few, "heads_kv"),
                      table_text(t, many, "heads_kv"));
        for (size_t i = 0; i < 3; i++) {
            const double change = 100 * (ratio(t, few, many, columns[i]) - 1);
            doc_more(doc, "%s %s %s%s %%", i ? "," : "", names[i], change > 0 ? "+" : "", number(change));
        }
        doc_more(doc, ".");
    }
    free(p.row);
}

/* Each against the next larger one: a vocabulary is padded to a multiple of what a tile has. */
static void say_vocabulary(document *doc, const table *t)
{
    points p = points_of(t, "vocab", "none");
    for (size_t i = 0; i + 1 < p.n; i++) {
        const size_t a = p.row[i], b = p.row[i + 1];
        const double change = 100 * (ratio(t, b, a, "step_ms") - 1);
        if (!i)
            doc_paragraph(doc, "%s", "");
        doc_more(doc, "%s%s words instead of %s: a step takes %s %% %s time.", i ? " " : "", table_text(t, b, "vocab"),
                 table_text(t, a, "vocab"), number(fabs(change)), change < 0 ? "less" : "more");
    }
    free(p.row);
}

/* ---- tables ---- */

typedef struct sweep {
    const char *axis, *title, *column;
    const char *beside; /* a column in which its rows may differ, too, or NULL */
    bool given;         /* rows where it is 0 have what the size has, and do not count */
    size_t least;       /* values; with fewer there is no table */
    void (*say)(document *doc, const table *t);
} sweep;

static const sweep sweeps[] = {{"seq", "Context", "S", "recompute", false, 5, say_context},
                               {"layers", "Depth", "blocks", NULL, true, 3, say_depth},
                               {"d_model", "Width", "d-model", "heads", true, 3, say_width},
                               {"vocab", "Vocabulary", "words", NULL, true, 2, say_vocabulary},
                               {"batch", "Batch", "batch", NULL, false, 3, say_batch},
                               {"heads_kv", "Key and value heads", "heads", NULL, true, 3, say_heads}};

static void sweep_table(document *doc, const table *t, const sweep *s)
{
    const size_t top = largest(t, "peak_bytes");
    const bool big = top != NO_ROW && table_real(t, top, "peak_bytes") > 0.5 * GIB;
    const double unit = big ? GIB : MIB;
    const bool known = csv_column(t->file, "init_bytes") >= 0;
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, s->column, NULL);
    if (s->beside)
        doc_columns(doc, DOC_TEXT, s->beside, NULL);
    doc_columns(doc, DOC_NUMBER, "parameters, millions", "step ms", "tokens/s", "TFLOP/s", "MFU %", "HFU %", NULL);
    if (known)
        doc_column(doc, DOC_NUMBER, "at first %s", big ? "GiB" : "MiB");
    doc_column(doc, DOC_NUMBER, "peak %s", big ? "GiB" : "MiB");
    for (size_t i = 0; i < t->n; i++) {
        doc_row(doc, table_text(t, i, s->axis), NULL);
        const char *beside = s->beside ? table_text(t, i, s->beside) : "";
        if (s->beside)
            doc_cells(doc, strcmp(beside, "0") ? beside : "", NULL); /* 0: as the size has it */
        doc_cells(doc, cell_number(t, i, "params", 1e6), cell_number(t, i, "step_ms", 1),
                  cell_number(t, i, "tokens_per_s", 1), cell_number(t, i, "tflops", 1),
                  cell_number(t, i, "mfu_causal_pct", 1), cell_number(t, i, "hfu_pct", 1), NULL);
        if (known)
            doc_cells(doc, cell_number(t, i, "init_bytes", unit), NULL);
        doc_cells(doc, cell_number(t, i, "peak_bytes", unit), NULL);
    }
}

/* Those that say what the dimension is, where 0 stands for what the size has. */
static table *rows_of(const table *all, const sweep *s)
{
    return s->given ? table_without(all, s->axis, "0") : table_where(all, NULL);
}

static void write_sweep(document *doc, const table *all, const sweep *s)
{
    const char *const axes[] = {s->axis, s->beside, NULL};
    table *rows = rows_of(all, s), *t = table_main_slice(rows, axes, NULL);
    values v = table_values(t, s->axis);
    if (v.n >= s->least) {
        char *shape = table_shape(t, axes);
        doc_heading(doc, 3, "%s (%s)", s->title, shape);
        sweep_table(doc, t, s);
        s->say(doc, t);
        free(shape);
    }
    values_free(&v);
    table_free(t);
    table_free(rows);
}

static void write_section(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_transformer.csv");
    if (!all)
        return;
    const char *level = table_find(all, "variant", "graph", "status", "ok", NULL) != NO_ROW ? "graph" : "kernels";
    table *t = table_where(all, "mode", "train-step", "variant", level, NULL);
    document *parts = doc_create("");
    for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps; i++)
        write_sweep(parts, t, &sweeps[i]);
    if (doc_empty(parts)) {
        doc_free(parts);
    } else {
        doc_heading(doc, 2, "One dimension at a time");
        figures(doc, dir, "scaling_");
        figures(doc, dir, "width");
        doc_append(doc, parts);
    }
    table_free(t);
    table_free(all);
}

const report_section section_scaling = {.order = 62, .write = write_section};
