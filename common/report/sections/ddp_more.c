/* SPDX-License-Identifier: MIT */
/* Data parallelism over numbers of ranks, and beside the write-ups' tables. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/sections/ddp.h"
#include "common/report/sections.h"

/* ---- over ranks ---- */

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
        if (!r->all[i].ok || (at < c.n && c.of[at] == ranks) || c.n == MAX_RANKS)
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

static void scaling_row(FILE *out, const ddp_rows *r, const ddp_entry *like, const char *variant, const counts *c)
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
    fprintf(out, "| %s | %s | %s | %s |", ddp_text(like, "seq"), ddp_text(like, "precision"), like->wire, variant);
    for (size_t i = 0; i < c->n; i++) {
        const double rate = e[i] ? ddp_real(e[i], "tokens_per_s") / ddp_real(e[i], "ranks") : NAN;
        if (!e[i])
            fprintf(out, " |");
        else if (e[i] == least)
            fprintf(out, " %s |", number(ddp_real(e[i], "tokens_per_s")));
        else
            fprintf(out, " %s (%s %%) |", number(ddp_real(e[i], "tokens_per_s")),
                    number(100 * rate * ddp_real(least, "ranks") / ddp_real(least, "tokens_per_s")));
    }
    fprintf(out, "\n");
}

void ddp_scaling(FILE *out, const char *dir, const ddp_rows *r)
{
    static const char *const shown[] = {"naive", "flat", "overlap", "bucketed", "zero1"};
    const counts c = rank_counts(r);
    if (c.n < 2)
        return;
    const char *size = ddp_main_size(r);
    fprintf(out,
            "### Over ranks\n\nTokens a second of all ranks together, %s; in brackets as a share of what as many times "
            "the fewest ranks would make.\nThe batch of a rank stays as it is.\n\n",
            size);
    figures(out, dir, "ddp_scaling_");
    fprintf(out, "| S | precision | gradients | strategy |");
    for (size_t i = 0; i < c.n; i++)
        fprintf(out, " %g %s |", c.of[i], c.of[i] == 1 ? "rank" : "ranks");
    fprintf(out, "\n|---:|---|---|---|");
    for (size_t i = 0; i < c.n; i++)
        fprintf(out, "---:|");
    fprintf(out, "\n");
    for (size_t first = 0, end; first < r->n; first = end) {
        end = ddp_group_end(r, first);
        if (ddp_real(&r->all[first], "ranks") == c.of[0] && strcmp(ddp_text(&r->all[first], "size"), size) == 0)
            for (size_t k = 0; k < sizeof shown / sizeof *shown; k++)
                scaling_row(out, r, &r->all[first], shown[k], &c);
    }
    fprintf(out, "\n");
}

/* ---- write-ups ---- */

static csv *open_published(const char *dir, const char *name)
{
    char *path = xasprintf("%s/../published/%s", dir, name);
    csv *c = csv_read(path);
    free(path);
    return c;
}

static const char *cell(const csv *c, size_t row, const char *column)
{
    const char *text = csv_cell(c, row, column);
    return text ? text : "";
}

static void published_steps(FILE *out, const csv *c)
{
    fprintf(out, "| write-up | GPU | strategy | MB | S | batch | step ms | communication ms | note |\n"
                 "|---|---|---|---:|---:|---|---:|---:|---|\n");
    for (size_t i = 0; i < c->rows; i++)
        if (strcmp(cell(c, i, "strategy"), "unstated") != 0 && strcmp(cell(c, i, "status"), "ambiguous") != 0)
            fprintf(out, "| %s | %s | %s | %s | %s | %s %s | %s | %s | %s |\n", cell(c, i, "source"), cell(c, i, "gpu"),
                    cell(c, i, "strategy"), cell(c, i, "bucket_mb"), cell(c, i, "seq"), cell(c, i, "batch"),
                    cell(c, i, "batch_kind"), *cell(c, i, "step_ms") ? cell(c, i, "step_ms") : cell(c, i, "status"),
                    cell(c, i, "comm_ms"), cell(c, i, "note"));
    fprintf(out, "\n");
}

static void published_sharding(FILE *out, const csv *c)
{
    fprintf(out, "| write-up | sharded | what | GiB | step ms | note |\n|---|---|---|---:|---:|---|\n");
    for (size_t i = 0; i < c->rows; i++)
        fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", cell(c, i, "source"),
                strcmp(cell(c, i, "sharded"), "1") ? "no" : "yes", cell(c, i, "phase"), cell(c, i, "mem_gib"),
                cell(c, i, "step_ms"), cell(c, i, "note"));
    fprintf(out, "\n");
}

void ddp_published(FILE *out, const char *dir)
{
    csv *steps = open_published(dir, "ddp.csv"), *sharding = open_published(dir, "zero1.csv");
    if ((steps && steps->rows) || (sharding && sharding->rows)) {
        fprintf(out,
                "<details><summary>The write-ups' tables: xl on two ranks, fp32</summary>\n\n"
                "Other GPUs and other links, a global batch where it says so, and communication by the host's clock: "
                "context, no baseline\n([sources and cautions](../published/README.md)).\n\n");
        if (steps && steps->rows)
            published_steps(out, steps);
        if (sharding && sharding->rows)
            published_sharding(out, sharding);
        fprintf(out, "</details>\n\n");
    }
    csv_free(steps);
    csv_free(sharding);
}
