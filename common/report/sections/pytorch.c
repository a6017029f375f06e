/* SPDX-License-Identifier: MIT */
/* Our times beside those of PyTorch on the same machine in the same run. */
#include <math.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/flash_peers.h"
#include "common/report/section.h"

/* What does the same work as an implementation of the other side. */
static const char *our_variant(const char *impl)
{
    return strcmp(impl, "eager") == 0 ? "unfused" : strcmp(impl, "compile") == 0 ? "fused" : "flash";
}

/* Our row of bench_flash at the shape of row `r` of PyTorch's, which is causal and as plain as the defaults. */
static size_t our_row(const table *ours, const table *theirs, size_t r, const char *variant)
{
    return table_find(ours, "status", "ok", "variant", variant, "dtype", table_text(theirs, r, "dtype"), "batch",
                      table_text(theirs, r, "batch"), "heads", table_text(theirs, r, "heads"), "seq",
                      table_text(theirs, r, "seq"), "head_dim", table_text(theirs, r, "head_dim"), "causal", "1",
                      "heads_kv", "0", "seq_k", "0", "layout", "bhsd", "deterministic", "0", NULL);
}

static double ratio_of(const table *ours, const table *theirs, size_t r, const char *column)
{
    size_t mine = our_row(ours, theirs, r, our_variant(table_text(theirs, r, "impl")));
    return table_real(theirs, r, column) / table_real(ours, mine, column);
}

typedef struct summary {
    size_t n;
    double geometric_mean, least;
} summary;

/* Whether nothing else that PyTorch has for this shape, of what stands beside our flash, takes less time. */
static bool is_best(const table *theirs, size_t r, const char *column)
{
    static const char *const shape[] = {"dtype", "batch", "heads", "seq", "head_dim"};
    const double time = table_real(theirs, r, column);
    if (!(time > 0) || strcmp(our_variant(table_text(theirs, r, "impl")), "flash") != 0)
        return false;
    for (size_t i = 0; i < theirs->n; i++) {
        bool same = strcmp(our_variant(table_text(theirs, i, "impl")), "flash") == 0;
        for (size_t k = 0; k < sizeof shape / sizeof *shape && same; k++)
            same = strcmp(table_text(theirs, i, shape[k]), table_text(theirs, r, shape[k])) == 0;
        if (same && (table_real(theirs, i, column) < time || (table_real(theirs, i, column) == time && i < r)))
            return false;
    }
    return true;
}

static summary summarize(const table *ours, const table *theirs, const char *column, bool best)
{
    summary s = {.least = INFINITY};
    double logs = 0;
    for (size_t r = 0; r < theirs->n; r++) {
        if (best && !is_best(theirs, r, column))
            continue;
        double ratio = ratio_of(ours, theirs, r, column);
        if (!(ratio > 0) || !isfinite(ratio))
            continue;
        s.n++;
        logs += log(ratio);
        s.least = fmin(s.least, ratio);
    }
    s.geometric_mean = s.n ? exp(logs / (double)s.n) : NAN;
    return s;
}

static void summary_row(document *doc, const table *ours, const table *theirs, const char *impl, const char *dtype)
{
    const bool best = !impl;
    table *of =
        best ? table_where(theirs, "dtype", dtype, NULL) : table_where(theirs, "dtype", dtype, "impl", impl, NULL);
    const summary forward = summarize(ours, of, "fwd_ms", best), backward = summarize(ours, of, "bwd_ms", best);
    if (forward.n) {
        doc_row(doc, best ? "the fastest of sdpa" : impl, dtype, best ? "flash" : our_variant(impl), NULL);
        doc_cell(doc, "%zu", forward.n);
        doc_cell(doc, "%sx, %sx", number(forward.geometric_mean), number(forward.least));
        doc_cell(doc, "%sx, %sx", number(backward.geometric_mean), number(backward.least));
    }
    table_free(of);
}

static void summary_table(document *doc, const table *ours, const table *theirs)
{
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "PyTorch", "dtype", "ours", NULL);
    doc_columns(doc, DOC_NUMBER, "shapes", "forward: mean, least", "backward: mean, least", NULL);
    values impls = table_values(theirs, "impl"), dtypes = table_values(theirs, "dtype");
    for (size_t d = 0; d < dtypes.n; d++) {
        for (size_t i = 0; i < impls.n; i++)
            summary_row(doc, ours, theirs, impls.v[i], dtypes.v[d]);
        summary_row(doc, ours, theirs, NULL, dtypes.v[d]);
    }
    values_free(&impls);
    values_free(&dtypes);
}

static void comparison_table(document *doc, const table *ours, const table *theirs)
{
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "dtype", NULL);
    doc_columns(doc, DOC_NUMBER, "B", "H", "S", "D", NULL);
    doc_columns(doc, DOC_TEXT, "PyTorch", NULL);
    doc_columns(doc, DOC_NUMBER, "forward ms: theirs, ours", "ratio", "backward ms: theirs, ours", "ratio", NULL);
    for (size_t r = 0; r < theirs->n; r++) {
        const char *impl = table_text(theirs, r, "impl");
        size_t mine = our_row(ours, theirs, r, our_variant(impl));
        if (mine == NO_ROW)
            continue;
        doc_row(doc, table_text(theirs, r, "dtype"), table_text(theirs, r, "batch"), table_text(theirs, r, "heads"),
                table_text(theirs, r, "seq"), table_text(theirs, r, "head_dim"), impl, NULL);
        static const char *const columns[] = {"fwd_ms", "bwd_ms"};
        for (size_t i = 0; i < 2; i++) {
            doc_cell(doc, "%s, %s", number(table_real(theirs, r, columns[i])),
                     number(table_real(ours, mine, columns[i])));
            doc_cell(doc, "%sx", number(ratio_of(ours, theirs, r, columns[i])));
        }
    }
}

static void add_part(document *doc, const table *ours, const table *theirs)
{
    summary_table(doc, ours, theirs);
    doc_fold(doc, "every shape");
    comparison_table(doc, ours, theirs);
    doc_fold_end(doc);
}

static void write_section(document *doc, const char *dir)
{
    csv *in_turn = flash_peers_open(dir);
    flash_peers_write(doc, in_turn);
    csv_free(in_turn);
    table *theirs = open_result(dir, "pytorch_flash.csv"), *ours = open_result(dir, "bench_flash.csv");
    /* made by bench_flash --timer event --csv, for short calls are replayed from a graph otherwise */
    table *calls = open_result(dir, "bench_flash_calls.csv");
    table_keep_plain_attention(ours);
    table_keep_plain_attention(calls);
    if (theirs && ours) {
        doc_heading(doc, 2, "Next to PyTorch on this machine");
        doc_paragraph(doc,
                      "Causal attention, the same shapes, the newest row of each side. Ratio: PyTorch's time / ours, "
                      "so above 1 ours is\nfaster; mean is the geometric mean over the shapes. Its %s stands beside "
                      "our unfused, %s beside fused,\nthe rest beside flash.",
                      code("eager"), code("compile"));
        values benches = table_values(theirs, "bench");
        for (size_t b = 0; b < benches.n; b++) {
            table *of = table_where(theirs, "bench", benches.v[b], NULL);
            if (strcmp(benches.v[b], "flash_graph") == 0) {
                doc_heading(doc, 3, "GPU time");
                doc_paragraph(
                    doc, "Both are replayed from CUDA graphs where a call is short, so that no launch is included.");
            } else {
                doc_heading(doc, 3, "Time of a call");
                doc_paragraph(doc, "PyTorch is timed by CUDA events around a call, so that on short sequences the time "
                                   "includes its launches. ");
                if (calls)
                    doc_more(doc, "So is ours (%s).", code("--timer event"));
                else
                    doc_more(doc, "Ours excludes launches where a call takes less than 50 us.");
            }
            add_part(doc, calls && strcmp(benches.v[b], "flash_graph") != 0 ? calls : ours, of);
            table_free(of);
        }
        values_free(&benches);
    }
    table_free(theirs);
    table_free(ours);
    table_free(calls);
}

static void compare(comparisons *to, const char *dir)
{
    static const char *const dtypes[] = {"bf16", "fp32"};
    csv *in_turn = flash_peers_open(dir);
    for (size_t i = 0; in_turn && i < sizeof dtypes / sizeof *dtypes; i++) {
        flash_peers_compare(comparisons_begin(to, xasprintf("attention, forward, %s", dtypes[i])), in_turn, dtypes[i],
                            NULL, "fwd_ratio");
        flash_peers_compare(comparisons_begin(to, xasprintf("attention, backward, %s", dtypes[i])), in_turn, dtypes[i],
                            NULL, "bwd_ratio");
    }
    csv_free(in_turn);
}

const report_section section_pytorch = {.order = 130, .write = write_section, .compare = compare};
