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
    return open_peer_rows(dir, "flash");
}

static bool same_shape(const csv *c, size_t a, size_t b)
{
    for (size_t i = 0; i < SHAPE; i++)
        if (strcmp(csv_cell(c, a, shape[i]), csv_cell(c, b, shape[i])) != 0)
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

/* The row of our own in the same shape, or NO_ROW. */
static size_t ours(const csv *c, size_t row)
{
    for (size_t i = 0; i < c->rows; i++)
        if (cell_is(c, i, "impl", "stepbench") && same_shape(c, i, row))
            return i;
    return NO_ROW;
}

/* Why the ratio of a pass, fwd_ratio or bwd_ratio, counts nowhere; NULL: it counts. */
static const char *refusal(const csv *c, size_t row, const char *ratio)
{
    const size_t mine = ours(c, row);
    return mine == NO_ROW ? "ours was not measured beside it" : peer_refusal(c, row, c, mine, ratio);
}

/* Blocks of 128 queries for each of an H200's 132 processors, twice over: less leaves some of them idle. */
enum { FULL_LOAD_TILES = 2 * 132, TILE = 128 };

static flash_load load_of(const csv *c, size_t row)
{
    const double heads = csv_real(c, row, "heads");
    if (heads == 1)
        return FLASH_ONE_HEAD;
    return csv_real(c, row, "batch") * heads * csv_real(c, row, "seq") / TILE >= FULL_LOAD_TILES ? FLASH_FULL_LOAD
                                                                                                 : FLASH_PART_LOAD;
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
    const char *heads = csv_cell(c, row, "heads"), *heads_kv = csv_cell(c, row, "heads_kv");
    return strcmp(heads, heads_kv) == 0 ? xstrdup(heads) : xasprintf("%s / %s", heads, heads_kv);
}

/* "192 / 128" of 192 columns of q and k and 128 of v. */
static char *widths_of(const csv *c, size_t row)
{
    const char *dim = csv_cell(c, row, "head_dim"), *dim_v = csv_cell(c, row, "head_dim_v");
    return *dim_v && strcmp(dim_v, "0") != 0 ? xasprintf("%s / %s", dim, dim_v) : xstrdup(dim);
}

static char *shape_of(const csv *c, size_t row)
{
    char *heads = heads_of(c, row), *widths = widths_of(c, row);
    char *of = xasprintf("B %s, H %s, S %s, D %s%s", csv_cell(c, row, "batch"), heads, csv_cell(c, row, "seq"), widths,
                         cell_is(c, row, "causal", "1") ? "" : ", full");
    free(heads);
    free(widths);
    return of;
}

static peer_ratio ratio_of(const csv *c, size_t row, const char *ratio)
{
    char *low = xasprintf("%s_lo", ratio), *high = xasprintf("%s_hi", ratio);
    const peer_ratio r = {csv_real(c, row, ratio), csv_real(c, row, low), csv_real(c, row, high)};
    free(low);
    free(high);
    return r;
}

void flash_peers_compare(comparison *to, const csv *c, const char *dtype, const char *causal, flash_load load,
                         const char *ratio)
{
    for (size_t i = 0; c && i < c->rows; i++) {
        if (!cell_is(c, i, "dtype", dtype) || (causal && !cell_is(c, i, "causal", causal)) || !is_first(c, i) ||
            load_of(c, i) != load)
            continue;
        char *where = shape_of(c, i);
        for (size_t k = i; k < c->rows; k++) {
            if (!same_shape(c, i, k) || !isfinite(csv_real(c, k, ratio)))
                continue;
            const char *why = refusal(c, k, ratio), *who = name_of(csv_cell(c, k, "impl"));
            if (why)
                comparison_refuse(to, why, who, where);
            else
                comparison_add(to, ratio_of(c, k, ratio), who, where);
        }
        free(where);
    }
}

/* As a cell that gnuplot reads as one: without commas, and not empty. */
static void put_text(FILE *out, const char *words)
{
    fputs(*words ? "," : ",-", out);
    for (; *words; words++)
        fputc(*words == ',' ? ' ' : *words, out);
}

static const char *const passes[] = {"fwd_ratio", "bwd_ratio"};

/* Which peers of a shape have no ratio of a pass, and why: "FlashAttention-4: its result is wrong". Caller frees. */
static char *refusals_of(const csv *c, size_t first, const char *ratio)
{
    char *all = xstrdup("");
    for (size_t k = first; k < c->rows; k++) {
        const char *why = same_shape(c, first, k) && isfinite(csv_real(c, k, ratio)) ? refusal(c, k, ratio) : NULL;
        if (!why)
            continue;
        char *more = xasprintf("%s%s%s: %s", all, *all ? ", " : "", name_of(csv_cell(c, k, "impl")), why);
        free(all);
        all = more;
    }
    return all;
}

/* A line of peers_flash: the least of a shape's ratios, each peer's, `nan` where there is none that counts, and in words what does
 * not count. */
static void put_shape(FILE *out, const csv *c, size_t first)
{
    static const char *const impls[] = {"sdpa_fa2", "sdpa_cudnn", "fa4"};
    double of[3][2], least = INFINITY;
    for (size_t i = 0; i < 3; i++)
        for (size_t r = 0; r < 2; r++) {
            of[i][r] = NAN;
            for (size_t k = first; k < c->rows; k++)
                if (same_shape(c, first, k) && cell_is(c, k, "impl", impls[i]) && !refusal(c, k, passes[r]))
                    of[i][r] = csv_real(c, k, passes[r]);
            least = fmin(least, of[i][r]);
        }
    if (!isfinite(least))
        return;
    fprintf(out, "%g", least);
    for (size_t i = 0; i < 3; i++)
        fprintf(out, ",%g,%g", of[i][0], of[i][1]);
    char *shape = shape_of(c, first);
    put_text(out, shape);
    free(shape);
    for (size_t r = 0; r < 2; r++) {
        char *refused = refusals_of(c, first, passes[r]);
        put_text(out, refused);
        free(refused);
    }
    fputc('\n', out);
}

bool flash_peers_write_csv(const csv *c, const char *dtype, const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out)
        return false;
    fputs("least,fa2_fwd,fa2_bwd,cudnn_fwd,cudnn_bwd,fa4_fwd,fa4_bwd,shape,refused_fwd,refused_bwd\n", out);
    for (size_t i = 0; c && i < c->rows; i++)
        if (is_first(c, i) && cell_is(c, i, "dtype", dtype))
            put_shape(out, c, i);
    const bool wrote = !ferror(out);
    return fclose(out) == 0 && wrote;
}

/* ---- the section ---- */

static void add_pass(document *doc, const csv *c, size_t row, size_t mine, const char *pass)
{
    char *ms = xasprintf("%s_ms", pass), *ratio = xasprintf("%s_ratio", pass), *diff = xasprintf("%s_diff", pass);
    const char *why = refusal(c, row, ratio);
    doc_cell(doc, "%s, %s", number(csv_real(c, row, ms)), number(csv_real(c, mine, ms)));
    doc_cell(doc, "%s", why ? why : ratio_text(ratio_of(c, row, ratio)));
    if (cell_is(c, row, "reference", "fp64"))
        doc_cell(doc, "%s, %s", number(csv_real(c, row, diff)), number(csv_real(c, mine, diff)));
    else
        doc_blank(doc);
    free(ms);
    free(ratio);
    free(diff);
}

/* Memory is no time: what refuses even its ratio is another GPU or run. */
static bool other_origin(const csv *c, size_t row, size_t mine)
{
    return peer_refusal(c, row, c, mine, "peak_gib");
}

static void add_row(document *doc, const csv *c, size_t row)
{
    const size_t mine = ours(c, row);
    if (mine == NO_ROW || other_origin(c, row, mine))
        return;
    doc_row(doc, csv_cell(c, row, "impl"), csv_cell(c, row, "dtype"), csv_cell(c, row, "batch"), NULL);
    char *heads = heads_of(c, row), *widths = widths_of(c, row);
    doc_cells(doc, heads, csv_cell(c, row, "seq"), widths, NULL);
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
    flash_peers_compare(&forward, c, dtype, NULL, FLASH_FULL_LOAD, "fwd_ratio");
    flash_peers_compare(&backward, c, dtype, NULL, FLASH_FULL_LOAD, "bwd_ratio");
    const compared *least = comparison_least(&forward), *least_backward = comparison_least(&backward);
    if (least) {
        doc_bullet(
            doc,
            "%s, full loads: forward, the strongest peer takes at least %s times as long as ours (%s; %zu shape%s)",
            strong("%s", dtype), ratio_text(least->ratio), least->who, forward.n, forward.n == 1 ? "" : "s");
        if (least_backward)
            doc_more(doc, "; backward %s (%s)", ratio_text(least_backward->ratio), least_backward->who);
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
                  csv_cell(c, last, "torch"), csv_cell(c, last, "cuda"), csv_cell(c, last, "cudnn"),
                  csv_cell(c, last, "driver"), csv_cell(c, last, "gpu"));
    if (*csv_cell(c, last, "commit"))
        doc_more(doc, " Ours is of commit %s.", csv_cell(c, last, "commit"));
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
