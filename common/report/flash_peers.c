/* SPDX-License-Identifier: MIT */
/* Attention of others in turn with ours; see flash_peers.h. */
#include "common/report/flash_peers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

static const char *const shape[] = {"dtype", "batch", "heads", "heads_kv", "seq", "head_dim", "head_dim_v", "causal"};
enum { SHAPE = sizeof shape / sizeof *shape };

csv *flash_peers_open(const char *dir)
{
    return open_peer_rows(dir, "flash", "peer_flash.csv");
}

static const char *text(const csv *c, size_t row, const char *column)
{
    const char *cell = csv_cell(c, row, column);
    return cell ? cell : "";
}

static bool same_shape(const csv *c, size_t a, size_t b)
{
    for (size_t i = 0; i < SHAPE; i++)
        if (strcmp(text(c, a, shape[i]), text(c, b, shape[i])) != 0)
            return false;
    return true;
}

/* The first row of its shape. */
static bool is_first(const csv *c, size_t row)
{
    for (size_t i = 0; i < row; i++)
        if (same_shape(c, i, row))
            return false;
    return true;
}

/* The row of our own in the same shape and the same run, or NO_ROW. */
static size_t ours(const csv *c, size_t row)
{
    for (size_t i = 0; i < c->rows; i++)
        if (cell_is(c, i, "impl", "stepbench") && same_shape(c, i, row) &&
            cell_is(c, i, "run_id", text(c, row, "run_id")) && cell_is(c, i, "gpu_uuid", text(c, row, "gpu_uuid")))
            return i;
    return NO_ROW;
}

static const char *name_of(const char *impl)
{
    static const char *const names[][2] = {{"fa4", "FlashAttention-4"},
                                           {"sdpa_cudnn", "cuDNN"},
                                           {"sdpa_fa2", "FlashAttention-2"},
                                           {"sdpa_efficient", "PyTorch's efficient attention"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(impl, names[i][0]) == 0)
            return names[i][1];
    return impl;
}

/* "4 / 2" of 4 query heads and 2 of keys and values. */
static char *heads_of(const csv *c, size_t row)
{
    const char *heads = text(c, row, "heads"), *heads_kv = text(c, row, "heads_kv");
    return strcmp(heads, heads_kv) == 0 ? xstrdup(heads) : xasprintf("%s / %s", heads, heads_kv);
}

/* "192 / 128" of 192 columns of q and k and 128 of v. */
static char *widths_of(const csv *c, size_t row)
{
    const char *dim = text(c, row, "head_dim"), *dim_v = text(c, row, "head_dim_v");
    return *dim_v && strcmp(dim_v, "0") != 0 ? xasprintf("%s / %s", dim, dim_v) : xstrdup(dim);
}

static char *shape_of(const csv *c, size_t row)
{
    char *heads = heads_of(c, row), *widths = widths_of(c, row);
    char *of = xasprintf("B %s, H %s, S %s, D %s%s", text(c, row, "batch"), heads, text(c, row, "seq"), widths,
                         cell_is(c, row, "causal", "1") ? "" : ", full");
    free(heads);
    free(widths);
    return of;
}

void flash_peers_compare(comparison *to, const csv *c, const char *dtype, const char *causal, const char *ratio)
{
    for (size_t i = 0; c && i < c->rows; i++) {
        if (!cell_is(c, i, "dtype", dtype) || (causal && !cell_is(c, i, "causal", causal)) || !is_first(c, i))
            continue;
        char *where = shape_of(c, i);
        for (size_t k = i; k < c->rows; k++)
            if (same_shape(c, i, k) && ours(c, k) != NO_ROW)
                comparison_add(to, csv_real(c, k, ratio), name_of(text(c, k, "impl")), where);
        free(where);
    }
}

/* ---- the section ---- */

static void add_pass(document *doc, const csv *c, size_t row, size_t mine, const char *pass)
{
    char *ms = xasprintf("%s_ms", pass), *ratio = xasprintf("%s_ratio", pass);
    char *low = xasprintf("%s_lo", ratio), *high = xasprintf("%s_hi", ratio), *diff = xasprintf("%s_diff", pass);
    doc_cell(doc, "%s, %s", number(csv_real(c, row, ms)), number(csv_real(c, mine, ms)));
    doc_cell(doc, "%s [%s, %s]", number(csv_real(c, row, ratio)), number(csv_real(c, row, low)),
             number(csv_real(c, row, high)));
    if (cell_is(c, row, "reference", "fp64"))
        doc_cell(doc, "%s, %s", number(csv_real(c, row, diff)), number(csv_real(c, mine, diff)));
    else
        doc_blank(doc);
    free(ms);
    free(ratio);
    free(low);
    free(high);
    free(diff);
}

static void add_row(document *doc, const csv *c, size_t row)
{
    const size_t mine = ours(c, row);
    if (mine == NO_ROW)
        return;
    doc_row(doc, text(c, row, "impl"), text(c, row, "dtype"), text(c, row, "batch"), NULL);
    char *heads = heads_of(c, row), *widths = widths_of(c, row);
    doc_cells(doc, heads, text(c, row, "seq"), widths, NULL);
    free(heads);
    free(widths);
    doc_cell(doc, "%s", cell_is(c, row, "causal", "1") ? "causal" : "full");
    add_pass(doc, c, row, mine, "fwd");
    add_pass(doc, c, row, mine, "bwd");
}

/* The peers of a shape, the strongest forward first. */
static void add_shape(document *doc, const csv *c, size_t first)
{
    size_t *rows = xmalloc(c->rows * sizeof *rows), n = 0;
    for (size_t i = first; i < c->rows; i++) {
        const double ratio = csv_real(c, i, "fwd_ratio");
        if (!same_shape(c, first, i) || !isfinite(ratio))
            continue;
        size_t at = n++;
        for (; at > 0 && csv_real(c, rows[at - 1], "fwd_ratio") > ratio; at--)
            rows[at] = rows[at - 1];
        rows[at] = i;
    }
    for (size_t i = 0; i < n; i++)
        add_row(doc, c, rows[i]);
    free(rows);
}

static void add_lead(document *doc, const csv *c, const char *dtype)
{
    comparison forward = {0}, backward = {0};
    flash_peers_compare(&forward, c, dtype, NULL, "fwd_ratio");
    flash_peers_compare(&backward, c, dtype, NULL, "bwd_ratio");
    const compared *least = comparison_least(&forward), *least_backward = comparison_least(&backward);
    if (least) {
        doc_bullet(doc, "%s: forward, the strongest peer takes at least %s times as long as ours (%s; %zu shape%s)",
                   strong("%s", dtype), number(least->ratio), least->who, forward.n, forward.n == 1 ? "" : "s");
        if (least_backward)
            doc_more(doc, "; backward %s (%s)", number(least_backward->ratio), least_backward->who);
        doc_more(doc, ".");
    }
    comparison_free(&forward);
    comparison_free(&backward);
}

void flash_peers_write(document *doc, const csv *c)
{
    if (!c || !c->rows)
        return;
    const size_t last = c->rows - 1;
    doc_heading(doc, 2, "Attention in turn with its peers");
    doc_paragraph(doc,
                  "CUDA graphs of each implementation are replayed one after the other in one process, on the same "
                  "tensors: no launch is\nincluded, and clocks are the same for all. Ratio: the peer's time / ours in "
                  "the same round, median [least, largest], so\nabove 1 ours is faster. Error: relative L2 from fp64. "
                  "PyTorch %s, CUDA %s, cuDNN %s, driver %s, %s.",
                  text(c, last, "torch"), text(c, last, "cuda"), text(c, last, "cudnn"), text(c, last, "driver"),
                  text(c, last, "gpu"));
    if (*text(c, last, "commit"))
        doc_more(doc, " Ours is of commit %s.", text(c, last, "commit"));
    add_lead(doc, c, "bf16");
    add_lead(doc, c, "fp32");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "peer", "dtype", NULL);
    doc_columns(doc, DOC_NUMBER, "B", "H", "S", "D", NULL);
    doc_columns(doc, DOC_TEXT, "mask", NULL);
    doc_columns(doc, DOC_NUMBER, "forward ms: theirs, ours", "ratio", "error: theirs, ours",
                "backward ms: theirs, ours", "ratio", "error: theirs, ours", NULL);
    for (size_t i = 0; i < c->rows; i++)
        if (is_first(c, i))
            add_shape(doc, c, i);
}
