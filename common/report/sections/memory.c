/* SPDX-License-Identifier: MIT */
/* bench_memory in the report: who holds the peak, what a block keeps, the largest allocations, next to PyTorch and to the
 * write-ups. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/model_peers.h"
#include "common/report/section.h"
#include "common/report/sentences.h"

static const char *const axes[] = {"seq", "precision", "mode", NULL};

/* What a run without options measures: the CPU has no graphs. */
static table *main_rows(const table *t)
{
    const bool graph = table_find(t, "variant", "graph", "status", "ok", NULL) != NO_ROW;
    return table_where(t, "variant", graph ? "graph" : "kernels", NULL);
}

static double sum_of(const table *t, size_t row, const char *const *columns)
{
    double sum = 0;
    for (; *columns; columns++)
        sum += table_real(t, row, *columns);
    return sum;
}

/* What is shown of the kinds, as in the figures. */
static const struct {
    const char *what, *columns[4];
} shown[] = {{"parameters", {"param_bytes", "master_bytes"}},
             {"moments", {"moment1_bytes", "moment2_bytes"}},
             {"gradients", {"grad_bytes"}},
             {"activations", {"activation_bytes"}},
             {"temporaries", {"temporary_bytes"}},
             {"scratch and other", {"workspace_bytes", "other_bytes"}}};
enum { SHOWN = sizeof shown / sizeof *shown };

/* ---- in short ---- */

/* "51.6 GiB (parameters 25 %, moments 49 %, ...)": every kind with a hundredth of it or more. */
static void add_peak(document *doc, const table *t, size_t row)
{
    const double peak = table_real(t, row, "peak_bytes");
    const char *separator = " (";
    doc_more(doc, "%s", number_unit(peak, "bytes"));
    for (size_t i = 0; i < SHOWN; i++) {
        const double share = 100 * sum_of(t, row, shown[i].columns) / peak;
        if (!(share >= 1))
            continue;
        doc_more(doc, "%s%s %.0f %%", separator, shown[i].what, share);
        separator = ", ";
    }
    doc_more(doc, ")");
}

static void finding(document *doc, const table *of, const char *precision)
{
    table *step = table_where(of, "mode", "train-step", "status", "ok", NULL);
    const size_t row = largest(step, "seq");
    if (row == NO_ROW) {
        table_free(step);
        return;
    }
    const char *seq = table_text(step, row, "seq");
    const size_t forward = table_find(of, "mode", "forward", "status", "ok", "seq", seq, NULL);
    doc_bullet(doc, "%s at S %s, batch %s: at the peak ",
               strong("Memory of a step, %s, %s", table_text(step, row, "size"), precision), seq,
               table_text(step, row, "batch"));
    add_peak(doc, step, row);
    if (forward != NO_ROW)
        doc_more(doc, "; forward alone %s", number_unit(table_real(of, forward, "peak_bytes"), "bytes"));
    doc_more(doc,
             ". A tensor of the residual stream is %s, a block keeps %s for its backward; the largest allocation is ",
             number_unit(table_real(step, row, "residual_bytes"), "bytes"),
             number_unit(table_real(step, row, "saved_per_block_bytes"), "bytes"));
    doc_more(doc, "%s, %s. The closed form is off by %s %%.", code("%s", table_text(step, row, "largest")),
             number_unit(table_real(step, row, "largest_bytes"), "bytes"), number(table_real(step, row, "err_pct")));
    table_free(step);
}

static void findings(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_memory.csv");
    if (!all)
        return;
    table *t = table_main_slice(all, axes, NULL), *rows = main_rows(t);
    values precisions = table_values(rows, "precision");
    for (size_t i = 0; i < precisions.n; i++) {
        table *of = table_where(rows, "precision", precisions.v[i], NULL);
        finding(doc, of, precisions.v[i]);
        table_free(of);
    }
    values_free(&precisions);
    table_free(rows);
    table_free(t);
    table_free(all);
}

/* ---- tables ---- */

static double unit_of(const table *t)
{
    const size_t row = largest(t, "peak_bytes");
    return row != NO_ROW && table_real(t, row, "peak_bytes") < 0.5 * GIB ? MIB : GIB;
}

/* Whether row r of the write-ups is of the same model, context, precision and mode. */
static bool is_published(const csv *c, size_t r, const table *t, size_t row)
{
    char size[32], mode[32];
    snprintf(size, sizeof size, "%s", table_text(t, row, "size"));
    snprintf(mode, sizeof mode, "%s", table_text(t, row, "mode"));
    for (char *at = size; *at; at++)
        *at = *at == 'b' ? 'B' : *at;
    for (char *at = mode; *at; at++)
        *at = *at == '-' ? '_' : *at;
    const char *const wanted[][2] = {
        {"size", size}, {"mode", mode}, {"seq", table_text(t, row, "seq")}, {"dtype", table_text(t, row, "precision")}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!csv_is(c, r, wanted[i][0], wanted[i][1]))
            return false;
    return true;
}

/* "51.2 (answers_a), 51.4 (answers_c)" */
static void published_cell(document *doc, const csv *c, const table *t, size_t row)
{
    size_t found = 0;
    for (size_t r = 0; c && r < c->rows; r++)
        if (is_published(c, r, t, row)) {
            if (!found++)
                doc_cell(doc, "%s", "");
            else
                doc_more(doc, ", ");
            doc_more(doc, "%s (%s)", number(csv_real(c, r, "peak_gib")), csv_cell(c, r, "source"));
        }
    if (!found)
        doc_blank(doc);
}

static bool has_published(const csv *c, const table *t)
{
    for (size_t row = 0; c && row < t->n; row++)
        for (size_t r = 0; r < c->rows; r++)
            if (is_published(c, r, t, row))
                return true;
    return false;
}

static bool has_peer(const csv *c, const table *t, const model_peer *how)
{
    for (size_t row = 0; row < t->n; row++)
        if (isfinite(model_peer_memory(c, t, row, how)))
            return true;
    return false;
}

static void peak_table(document *doc, const table *t, const csv *theirs, const csv *published)
{
    const double unit = unit_of(t);
    const bool write_ups = has_published(published, t);
    doc_paragraph(doc, "Peak, %s", unit == GIB ? "GiB" : "MiB");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "mode", NULL);
    doc_columns(doc, DOC_NUMBER, "S", "peak", "closed form", "error %", "taken", NULL);
    for (size_t i = 0; i < SHOWN; i++)
        doc_columns(doc, DOC_NUMBER, shown[i].what, NULL);
    doc_columns(doc, DOC_NUMBER, "driver beyond it, MiB", NULL);
    for (size_t i = 0; i < MODEL_PEERS; i++)
        if (has_peer(theirs, t, &model_peers[i]))
            doc_column(doc, DOC_NUMBER, "PyTorch %s", model_peers[i].named);
    if (write_ups)
        doc_columns(doc, DOC_TEXT, "write-ups, GiB", NULL);
    for (size_t r = 0; r < t->n; r++) {
        doc_row(doc, table_text(t, r, "mode"), table_text(t, r, "seq"), cell_number(t, r, "peak_bytes", unit),
                number(table_real(t, r, "predicted_bytes") / unit), number(table_real(t, r, "err_pct")),
                number(table_real(t, r, "allocated_bytes") / unit), NULL);
        for (size_t i = 0; i < SHOWN; i++)
            doc_cells(doc, number(sum_of(t, r, shown[i].columns) / unit), NULL);
        doc_cells(doc, number(table_real(t, r, "driver_over_counted_bytes") / MIB), NULL);
        for (size_t i = 0; i < MODEL_PEERS; i++)
            if (has_peer(theirs, t, &model_peers[i])) {
                const double ratio = model_peer_memory(theirs, t, r, &model_peers[i]);
                doc_cell(doc, "%s%s", number(ratio), isfinite(ratio) ? "x" : "");
            }
        if (write_ups)
            published_cell(doc, published, t, r);
    }
}

static void tensor_table(document *doc, const table *t)
{
    doc_paragraph(doc, "Tensors, MiB");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "mode", NULL);
    doc_columns(doc, DOC_NUMBER, "S", "residual stream", "kept by a block", "bytes kept of a token and block", NULL);
    doc_columns(doc, DOC_TEXT, "largest allocation", NULL);
    doc_columns(doc, DOC_NUMBER, "MiB", NULL);
    doc_columns(doc, DOC_TEXT, "made by", NULL);
    doc_columns(doc, DOC_NUMBER, "times", NULL);
    for (size_t r = 0; r < t->n; r++) {
        const double block = table_real(t, r, "largest_block");
        doc_row(doc, table_text(t, r, "mode"), table_text(t, r, "seq"), cell_number(t, r, "residual_bytes", MIB),
                cell_number(t, r, "saved_per_block_bytes", MIB), cell_number(t, r, "saved_per_token_bytes", 1), NULL);
        doc_cell(doc, "%s (%s)", code("%s", table_text(t, r, "largest")), table_text(t, r, "largest_kind"));
        doc_cells(doc, cell_number(t, r, "largest_bytes", MIB), NULL);
        if (block >= 0)
            doc_cell(doc, "block %.0f first", block);
        else
            doc_cell(doc, "%s", isfinite(block) ? "head or embedding" : "-");
        doc_cells(doc, table_text(t, r, "largest_count"), NULL);
    }
}

static void other_rows(document *doc, const table *t)
{
    const double unit = unit_of(t);
    const char *name = unit == GIB ? "GiB" : "MiB";
    doc_table(doc);
    doc_column(doc, DOC_TEXT, "case");
    doc_column(doc, DOC_NUMBER, "peak %s", name);
    doc_column(doc, DOC_NUMBER, "closed form %s", name);
    doc_column(doc, DOC_NUMBER, "error %%");
    doc_column(doc, DOC_NUMBER, "of it activations %s", name);
    doc_column(doc, DOC_NUMBER, "kept by a block MiB");
    doc_column(doc, DOC_TEXT, "peak in");
    for (size_t r = 0; r < t->n; r++) {
        char *of = table_case(t, r);
        doc_row(doc, of, cell_number(t, r, "peak_bytes", unit), number(table_real(t, r, "predicted_bytes") / unit),
                number(table_real(t, r, "err_pct")), number(table_real(t, r, "activation_bytes") / unit),
                number(table_real(t, r, "saved_per_block_bytes") / MIB), table_text(t, r, "peak_phase"), NULL);
        free(of);
    }
}

/* ---- the section ---- */

static void write_section(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_memory.csv");
    if (!all)
        return;
    csv *theirs = model_peers_open(dir), *published = open_published(dir, "memory_peak.csv");
    table *rest, *t = table_main_slice(all, axes, &rest), *rows = main_rows(t);
    char *shape = table_shape(t, axes);
    doc_heading(doc, 2, "bench_memory: where every byte goes");
    doc_paragraph(doc,
                  "%s. Counted tensor by tensor from the plan that a step runs by; %s has the timelines. Parameters "
                  "include\nwhat extends 16-bit ones to fp32; scratch includes the tokens and tables. %s is the peak "
                  "plus what the planner leaves\nunused between tensors; %s is what the device's driver has handed out "
                  "on top of that once a step is set up.%s",
                  shape, code("memory/"), code("taken"), code("driver beyond it"),
                  theirs ? " The\nPyTorch columns are its peak / ours at the same model, shape and precision: above 1, "
                           "ours is smaller."
                         : "");
    figures(doc, dir, "memory_");
    values precisions = table_values(rows, "precision");
    for (size_t i = 0; i < precisions.n; i++) {
        table *of = table_where(rows, "precision", precisions.v[i], NULL);
        doc_heading(doc, 3, "%s", precisions.v[i]);
        say_memory(doc, of);
        peak_table(doc, of, theirs, published);
        tensor_table(doc, of);
        table_free(of);
    }
    if (rest->n) {
        doc_fold(doc, "Other cases: %zu rows", rest->n);
        other_rows(doc, rest);
        doc_fold_end(doc);
    }
    values_free(&precisions);
    free(shape);
    table_free(rows);
    table_free(rest);
    table_free(t);
    csv_free(published);
    csv_free(theirs);
    table_free(all);
}

static const readme_bench benches[] = {
    {.name = "bench_memory",
     .order = 60,
     .question = "Where does every byte of a step go?",
     .columns = {{"peak_bytes", "peak", "bytes"},
                 {"activation_bytes", "of it activations", "bytes"},
                 {"largest_bytes", "largest allocation", "bytes"}},
     .only = {{"mode", "train-step"}, {"recompute", "none"}, {"precision", "bf16"}, {"size", "2.7b"}, {"seq", "512"}}},
    {.name = NULL}};

const report_section section_memory = {.order = 80, .findings = findings, .write = write_section, .benches = benches};
