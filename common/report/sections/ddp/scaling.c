/* SPDX-License-Identifier: MIT */
/* Data parallelism over numbers of ranks. */
#include <math.h>
#include <string.h>

#include "common/report/section.h"
#include "common/report/sections/ddp/ddp.h"

enum { MAX_RANKS = 16 };
typedef struct counts { /* of ranks, ascending */
    double of[MAX_RANKS];
    size_t n;
} counts;

static counts rank_counts(const ddp_rows *r)
{
    counts c = {.n = 0};
    for (size_t i = 0; i < r->n; i++) {
        const double ranks = ddp_real(&r->all[i], "ranks");
        size_t at = 0;
        while (at < c.n && c.of[at] < ranks)
            at++;
        if (!r->all[i].ok || !isfinite(ranks) || (at < c.n && c.of[at] == ranks) || c.n == MAX_RANKS)
            continue;
        memmove(&c.of[at + 1], &c.of[at], (c.n - at) * sizeof *c.of);
        c.of[at] = ranks;
        c.n++;
    }
    return c;
}

/* The row that stands for a strategy on so many ranks, with the model, batch, context and dtypes of `like`. */
static const ddp_entry *on_ranks(const ddp_rows *r, const ddp_entry *like, const char *variant, double ranks)
{
    static const char *const alike[] = {"size",      "batch",         "seq",     "precision", "attention",
                                        "recompute", "fp32_products", "d_model", "d_ff",      "layers",
                                        "heads",     "heads_kv",      "vocab",   "device"};
    for (size_t first = 0, end; first < r->n; first = end) {
        const ddp_entry *e = &r->all[first];
        bool same = ddp_real(e, "ranks") == ranks && strcmp(e->wire, like->wire) == 0;
        end = ddp_group_end(r, first);
        for (size_t k = 0; same && k < sizeof alike / sizeof *alike; k++)
            same = ddp_same(e, like, alike[k]);
        if (same)
            return ddp_best(r, first, end, variant, NULL);
    }
    return NULL;
}

static void scaling_row(document *doc, const ddp_rows *r, const ddp_entry *like, const char *variant, const counts *c)
{
    const ddp_entry *e[MAX_RANKS], *least = NULL;
    size_t found = 0;
    for (size_t i = 0; i < c->n; i++) {
        e[i] = on_ranks(r, like, variant, c->of[i]);
        found += e[i] != NULL;
        least = least ? least : e[i];
    }
    if (found < 2)
        return;
    doc_row(doc, ddp_text(like, "seq"), ddp_text(like, "precision"), like->wire, variant, NULL);
    for (size_t i = 0; i < c->n; i++) {
        const double rate = e[i] ? ddp_real(e[i], "tokens_per_s") / ddp_real(e[i], "ranks") : NAN;
        if (!e[i])
            doc_blank(doc);
        else if (e[i] == least || !ddp_beside(e[i], least))
            doc_cells(doc, number(ddp_real(e[i], "tokens_per_s")), NULL);
        else
            doc_cell(doc, "%s (%s %%)", number(ddp_real(e[i], "tokens_per_s")),
                     number(100 * rate * ddp_real(least, "ranks") / ddp_real(least, "tokens_per_s")));
    }
}

void ddp_scaling(document *doc, const char *dir, const ddp_rows *r)
{
    static const char *const shown[] = {"naive", "flat", "overlap", "bucketed", "zero1"};
    const counts c = rank_counts(r);
    if (c.n < 2)
        return;
    const char *size = ddp_main_size(r);
    doc_heading(doc, 3, "Over ranks");
    doc_paragraph(doc,
                  "Tokens per second of all ranks together, %s; in brackets the share of what linear scaling from the "
                  "fewest ranks would\ngive. The batch per rank stays the same.",
                  size);
    figures(doc, dir, "ddp_scaling_");
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "S", NULL);
    doc_columns(doc, DOC_TEXT, "precision", "gradients", "strategy", NULL);
    for (size_t i = 0; i < c.n; i++)
        doc_column(doc, DOC_NUMBER, "%g %s", c.of[i], c.of[i] == 1 ? "rank" : "ranks");
    for (size_t first = 0, end; first < r->n; first = end) {
        end = ddp_group_end(r, first);
        if (ddp_real(&r->all[first], "ranks") == c.of[0] && strcmp(ddp_text(&r->all[first], "size"), size) == 0)
            for (size_t k = 0; k < sizeof shown / sizeof *shown; k++)
                scaling_row(doc, r, &r->all[first], shown[k], &c);
    }
}
