/* SPDX-License-Identifier: MIT */
/* bench_recompute in the report: for each model what every way of recomputation saves, costs and was predicted to. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

/* Rows of one model and shape at a time; `each` gets them with their name. */
typedef void of_model(document *doc, const table *t, const char *name);

static void for_each_model(document *doc, const table *t, of_model *each)
{
    static const char *const keys[] = {"size", "batch", "seq", "precision"};
    enum { KEYS = sizeof keys / sizeof *keys };
    bool *done = xcalloc(t->n + 1, sizeof *done);
    for (size_t r = 0; r < t->n; r++) {
        if (done[r])
            continue;
        const char *v[KEYS];
        for (size_t k = 0; k < KEYS; k++)
            v[k] = table_text(t, r, keys[k]);
        for (size_t i = r; i < t->n; i++) {
            bool same = true;
            for (size_t k = 0; k < KEYS; k++)
                same = same && strcmp(table_text(t, i, keys[k]), v[k]) == 0;
            done[i] = done[i] || same;
        }
        char name[160];
        snprintf(name, sizeof name, "%s, batch %s, S %s, %s", v[0], v[1], v[2], v[3]);
        table *of = table_where_pairs(t, KEYS, keys, v);
        each(doc, of, name);
        table_free(of);
    }
    free(done);
}

static const char *way(const table *t, size_t r)
{
    static char text[64];
    const char *variant = table_text(t, r, "variant");
    const bool group = strncmp(variant, "group", 5) == 0;
    if (group && isfinite(table_real(t, r, "group_used")))
        snprintf(text, sizeof text, "%s (%s)", variant, table_text(t, r, "group_used"));
    else if (strncmp(variant, "plan", 4) == 0)
        snprintf(text, sizeof text, "%s (%s)", variant, number_unit(table_real(t, r, "budget_bytes"), "bytes"));
    else if (strcmp(variant, "offload") == 0)
        snprintf(text, sizeof text, "offload (%s)", table_text(t, r, "offload"));
    else
        snprintf(text, sizeof text, "%s", variant);
    return text;
}

/* ---- in short ---- */

static void add_saved(document *doc, const table *t, size_t none, size_t way, const char *what)
{
    doc_more(doc, "%s %s for ", what, number_unit(table_real(t, way, "saved_bytes"), "bytes"));
    if (table_steps_meet(t, none, way))
        doc_more(doc, "no time that could be told from noise");
    else
        doc_more(doc, "%s %% of time", number(table_real(t, way, "extra_pct")));
}

static void finding(document *doc, const table *t, const char *name)
{
    const size_t none = table_find(t, "variant", "none", "status", "ok", NULL);
    const size_t selective = table_find(t, "variant", "selective", "status", "ok", NULL);
    const size_t block = table_find(t, "variant", "block", "status", "ok", NULL);
    if (none == NO_ROW || block == NO_ROW)
        return;
    doc_bullet(doc, "%s: a step of %s ms takes %s", strong("Recomputation, %s", name),
               number(table_real(t, none, "step_ms")), number_unit(table_real(t, none, "peak_bytes"), "bytes"));
    if (selective != NO_ROW)
        add_saved(doc, t, none, selective, "; selective saves");
    add_saved(doc, t, none, block, "; whole blocks save");
    doc_more(doc, ".");
}

static void findings(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_recompute.csv");
    if (!t)
        return;
    for_each_model(doc, t, finding);
    table_free(t);
}

/* ---- the section ---- */

static void model_table(document *doc, const table *t, const char *name)
{
    const size_t top = largest(t, "peak_bytes");
    const bool big = top == NO_ROW || table_real(t, top, "peak_bytes") > 0.5 * GIB;
    const double unit = big ? GIB : MIB;
    const bool away =
        largest(t, "offloaded_bytes") != NO_ROW && table_real(t, largest(t, "offloaded_bytes"), "offloaded_bytes") > 0;
    doc_heading(doc, 3, "%s", name);
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "way", "what is computed again", NULL);
    doc_columns(doc, DOC_NUMBER, "step ms", "predicted ms", "off by %", "more time %", NULL);
    doc_column(doc, DOC_NUMBER, "peak %s", big ? "GiB" : "MiB");
    doc_columns(doc, DOC_NUMBER, "plan off the driver by %", NULL);
    doc_column(doc, DOC_NUMBER, "saved %s", big ? "GiB" : "MiB");
    doc_columns(doc, DOC_NUMBER, "ms for each GiB saved", NULL);
    if (away)
        doc_column(doc, DOC_NUMBER, "to the host %s", big ? "GiB" : "MiB");
    if (away)
        doc_columns(doc, DOC_NUMBER, "waited for it ms", NULL);
    for (size_t r = 0; r < t->n; r++)
        doc_row(doc, way(t, r), table_text(t, r, "schedule"), cell_number(t, r, "step_ms", 1),
                number(table_real(t, r, "predicted_step_ms")), number(table_real(t, r, "err_step_pct")),
                number(table_real(t, r, "extra_pct")), number(table_real(t, r, "peak_bytes") / unit),
                number(table_real(t, r, "err_bytes_pct")), number(table_real(t, r, "saved_bytes") / unit),
                number(table_real(t, r, "ms_per_gib")),
                away ? number(table_real(t, r, "offloaded_bytes") / unit) : NULL,
                away ? number(table_real(t, r, "offload_exposed_ms")) : NULL, NULL);
}

static void write_section(document *doc, const char *dir)
{
    table *t = open_result(dir, "bench_recompute.csv");
    if (!t)
        return;
    doc_heading(doc, 2, "bench_recompute: activations computed again");
    doc_paragraph(doc,
                  "What backward computes again instead of keeping it. Times are predicted from models of few "
                  "blocks, bytes by the plan of\nthe step before it runs. A group is as many blocks as its number "
                  "says; %s keeps the inputs of about log2 L blocks.\n%s mixes two kinds so that the step fits "
                  "the budget in brackets; %s also moves blocks to the host's memory and back.",
                  code("nested"), code("plan"), code("plan-offload"));
    figures(doc, dir, "recompute");
    for_each_model(doc, t, model_table);
    table_free(t);
}

static const readme_bench benches[] = {{.name = "bench_recompute",
                                        .order = 65,
                                        .question = "What does it save, and cost, to compute activations again?",
                                        .columns = {{"step_ms", "step", "ms"},
                                                    {"peak_bytes", "peak", "bytes"},
                                                    {"saved_bytes", "saved", "bytes"},
                                                    {"extra_pct", "more time", "%"}},
                                        .only = {{"variant", "block"}, {"size", "xl-2026"}}},
                                       {.name = NULL}};

const report_section section_recompute = {
    .order = 85, .findings = findings, .write = write_section, .benches = benches};
