/* SPDX-License-Identifier: MIT */
/* bench_memory in the report: who holds the peak, what a block keeps, the largest allocations, next to PyTorch and to the
 * write-ups. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/sections/model_peers.h"
#include "common/report/sections.h"

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
static void print_peak(FILE *out, const table *t, size_t row)
{
    const double peak = table_real(t, row, "peak_bytes");
    const char *separator = " (";
    fprintf(out, "%s", number_unit(peak, "bytes"));
    for (size_t i = 0; i < SHOWN; i++) {
        const double share = 100 * sum_of(t, row, shown[i].columns) / peak;
        if (share < 1)
            continue;
        fprintf(out, "%s%s %.0f %%", separator, shown[i].what, share);
        separator = ", ";
    }
    fprintf(out, ")");
}

static void finding(FILE *out, const table *of, const char *precision)
{
    table *step = table_where(of, "mode", "train-step", "status", "ok", NULL);
    const size_t row = largest(step, "seq");
    if (row == NO_ROW) {
        table_free(step);
        return;
    }
    const char *seq = table_text(step, row, "seq");
    const size_t forward = table_find(of, "mode", "forward", "status", "ok", "seq", seq, NULL);
    fprintf(out, "- **Memory of a step, %s, %s** at S %s, batch %s: at the peak ", table_text(step, row, "size"),
            precision, seq, table_text(step, row, "batch"));
    print_peak(out, step, row);
    if (forward != NO_ROW)
        fprintf(out, "; forward alone %s", number_unit(table_real(of, forward, "peak_bytes"), "bytes"));
    fprintf(out,
            ". A tensor of the residual stream is %s, a block keeps %s for its backward; the largest allocation is ",
            number_unit(table_real(step, row, "residual_bytes"), "bytes"),
            number_unit(table_real(step, row, "saved_per_block_bytes"), "bytes"));
    fprintf(out, "`%s`, %s. The closed form is off by %s %%.\n", table_text(step, row, "largest"),
            number_unit(table_real(step, row, "largest_bytes"), "bytes"), number(table_real(step, row, "err_pct")));
    table_free(step);
}

void memory_findings(FILE *out, const char *dir)
{
    table *all = open_result(dir, "bench_memory.csv");
    if (!all)
        return;
    table *t = table_main_slice(all, axes, NULL), *rows = main_rows(t);
    values precisions = table_values(rows, "precision");
    for (size_t i = 0; i < precisions.n; i++) {
        table *of = table_where(rows, "precision", precisions.v[i], NULL);
        finding(out, of, precisions.v[i]);
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
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const char *cell = csv_cell(c, r, wanted[i][0]);
        if (!cell || strcmp(cell, wanted[i][1]) != 0)
            return false;
    }
    return true;
}

/* " 51.2 (answers_a), 51.4 (answers_c)" */
static void print_published(FILE *out, const csv *c, const table *t, size_t row)
{
    size_t found = 0;
    for (size_t r = 0; c && r < c->rows; r++)
        if (is_published(c, r, t, row)) {
            fprintf(out, "%s%s (%s)", found ? ", " : " ", number(csv_real(c, r, "peak_gib")), csv_cell(c, r, "source"));
            found++;
        }
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

static void peak_table(FILE *out, const table *t, const csv *theirs, const csv *published)
{
    const double unit = unit_of(t);
    const bool write_ups = has_published(published, t);
    size_t columns = 6 + SHOWN;
    fprintf(out, "Peak, %s\n\n| mode | S | peak | closed form | error %% | taken |", unit == GIB ? "GiB" : "MiB");
    for (size_t i = 0; i < SHOWN; i++)
        fprintf(out, " %s |", shown[i].what);
    fprintf(out, " driver beyond it, MiB |");
    for (size_t i = 0; i < MODEL_PEERS; i++)
        if (has_peer(theirs, t, &model_peers[i])) {
            fprintf(out, " PyTorch %s |", model_peers[i].named);
            columns++;
        }
    fprintf(out, "%s\n|---|", write_ups ? " write-ups, GiB |" : "");
    for (size_t i = 0; i < columns; i++)
        fprintf(out, "---:|");
    fprintf(out, "%s\n", write_ups ? "---|" : "");
    for (size_t r = 0; r < t->n; r++) {
        fprintf(out, "| %s | %s | %s | %s | %s | %s |", table_text(t, r, "mode"), table_text(t, r, "seq"),
                cell_number(t, r, "peak_bytes", unit), number(table_real(t, r, "predicted_bytes") / unit),
                number(table_real(t, r, "err_pct")), number(table_real(t, r, "allocated_bytes") / unit));
        for (size_t i = 0; i < SHOWN; i++)
            fprintf(out, " %s |", number(sum_of(t, r, shown[i].columns) / unit));
        fprintf(out, " %s |", number(table_real(t, r, "driver_over_counted_bytes") / MIB));
        for (size_t i = 0; i < MODEL_PEERS; i++)
            if (has_peer(theirs, t, &model_peers[i])) {
                const double ratio = model_peer_memory(theirs, t, r, &model_peers[i]);
                fprintf(out, isfinite(ratio) ? " %sx |" : " %s |", number(ratio));
            }
        if (write_ups) {
            print_published(out, published, t, r);
            fprintf(out, " |");
        }
        fprintf(out, "\n");
    }
    fprintf(out, "\n");
}

static void tensor_table(FILE *out, const table *t)
{
    fprintf(
        out,
        "Tensors, MiB\n\n| mode | S | residual stream | kept by a block | bytes kept of a token and block | largest "
        "allocation | MiB | made by | times |\n|---|---:|---:|---:|---:|---|---:|---|---:|\n");
    for (size_t r = 0; r < t->n; r++) {
        const double block = table_real(t, r, "largest_block");
        fprintf(out, "| %s | %s | %s | %s | %s | `%s` (%s) | %s |", table_text(t, r, "mode"), table_text(t, r, "seq"),
                cell_number(t, r, "residual_bytes", MIB), cell_number(t, r, "saved_per_block_bytes", MIB),
                cell_number(t, r, "saved_per_token_bytes", 1), table_text(t, r, "largest"),
                table_text(t, r, "largest_kind"), cell_number(t, r, "largest_bytes", MIB));
        if (block >= 0)
            fprintf(out, " block %.0f first |", block);
        else
            fprintf(out, " %s |", isfinite(block) ? "head or embedding" : "-");
        fprintf(out, " %s |\n", table_text(t, r, "largest_count"));
    }
    fprintf(out, "\n");
}

static void other_rows(FILE *out, const table *t)
{
    const double unit = unit_of(t);
    const char *name = unit == GIB ? "GiB" : "MiB";
    fprintf(out,
            "| case | peak %s | closed form %s | error %% | of it activations %s | kept by a block MiB | peak in |\n"
            "|---|---:|---:|---:|---:|---:|---|\n",
            name, name, name);
    for (size_t r = 0; r < t->n; r++) {
        char *of = table_case(t, r);
        fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", of, cell_number(t, r, "peak_bytes", unit),
                number(table_real(t, r, "predicted_bytes") / unit), number(table_real(t, r, "err_pct")),
                number(table_real(t, r, "activation_bytes") / unit),
                number(table_real(t, r, "saved_per_block_bytes") / MIB), table_text(t, r, "peak_phase"));
        free(of);
    }
    fprintf(out, "\n");
}

/* ---- the section ---- */

static csv *open_published(const char *dir)
{
    char *path = xasprintf("%s/../published/memory_peak.csv", dir);
    csv *c = csv_read(path);
    free(path);
    return c;
}

void memory_section(FILE *out, const char *dir)
{
    table *all = open_result(dir, "bench_memory.csv");
    if (!all)
        return;
    csv *theirs = model_peers_open(dir), *published = open_published(dir);
    table *rest, *t = table_main_slice(all, axes, &rest), *rows = main_rows(t);
    char *shape = table_shape(t, axes);
    fprintf(out,
            "## bench_memory: where every byte goes\n\n"
            "%s. Counted from the plan that a step runs by, tensor by tensor; `memory/` has the timelines. Parameters "
            "include\nwhat makes 16-bit ones fp32, scratch the tokens and tables. `taken` is the peak and what the "
            "planner leaves unused\nbetween tensors, `driver beyond it` what the device's driver has given out above "
            "that when a step is set up.%s\n\n",
            shape,
            theirs ? " The columns of PyTorch are its peak / ours for the same\nmodel, shape and precision: above 1 "
                     "ours is smaller."
                   : "");
    figures(out, dir, "memory_");
    values precisions = table_values(rows, "precision");
    for (size_t i = 0; i < precisions.n; i++) {
        table *of = table_where(rows, "precision", precisions.v[i], NULL);
        fprintf(out, "### %s\n\n", precisions.v[i]);
        peak_table(out, of, theirs, published);
        tensor_table(out, of);
        table_free(of);
    }
    if (rest->n) {
        fprintf(out, "<details><summary>Other cases: %zu rows</summary>\n\n", rest->n);
        other_rows(out, rest);
        fprintf(out, "</details>\n\n");
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
