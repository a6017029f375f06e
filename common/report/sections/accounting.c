/* SPDX-License-Identifier: MIT */
/* bench_accounting in the report: answers of communication_accounting, closed forms, buckets, memory by strategy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/section.h"

#define GB 1e9
#define MB 1e6

/* The rows of a variant, in the largest group that differs in nothing but the axes. */
static table *rows_of(const table *all, const char *variant, const char *const *axes)
{
    table *of = table_where(all, "variant", variant, "status", "ok", NULL), *t = table_main_slice(of, axes, NULL);
    table_free(of);
    return t;
}

static const char *const memory_axes[] = {"device_memory", "tokens", NULL};
static const char *const bound_axes[] = {"batch", NULL};
static const char *const way_axes[] = {"way", NULL};
static const char *const form_axes[] = {"form", "batch", NULL};
static const char *const hide_axes[] = {"model", "ranks", "grad_bits", NULL};
static const char *const bucket_axes[] = {"ranks", "grad_bits", "kappa", "bucket", NULL};
static const char *const zero_axes[] = {"ranks", "recipe", "strategy", NULL};

static const char *device_text(const char *bytes)
{
    return number_unit(strtod(bytes, NULL) / GB, "GB");
}

/* ---- (a) and (b) ---- */

static void devices_cell(document *doc, const table *t, const char *device, const char *tokens)
{
    const size_t r = table_find(t, "device_memory", device, "tokens", tokens, NULL);
    const double devices = table_real(t, r, "devices");
    if (isfinite(devices))
        doc_cell(doc, "%.0f", devices);
    else
        doc_cell(doc, "%s", r == NO_ROW ? "-" : "none");
}

static void memory_part(document *doc, const table *all)
{
    table *t = rows_of(all, "memory", memory_axes), *sharded = rows_of(all, "fsdp", memory_axes);
    if (t->n) {
        values devices = table_values(t, "device_memory"), tokens = table_values(t, "tokens");
        doc_heading(doc, 3, "(a), (b): devices that hold the training state");
        doc_paragraph(
            doc,
            "P = %.0f parameters of d %s, F %s, %s blocks of %s matrices. Weights, gradients and both moments in "
            "fp32\nare 16 P = %.2f GB (%.1f GiB); a token leaves %.2f MB (%.2f MiB) for the backward. The first number "
            "is with\neverything sharded, the second with half of the activations whole on each device (FSDP).",
            table_real(t, 0, "parameters"), table_text(t, 0, "d_model"), table_text(t, 0, "d_ff"),
            table_text(t, 0, "blocks"), table_text(t, 0, "matrices"), table_real(t, 0, "state_bytes") / GB,
            table_real(t, 0, "state_bytes") / GIB, table_real(t, 0, "saved_per_token_bytes") / MB,
            table_real(t, 0, "saved_per_token_bytes") / MIB);
        doc_table(doc);
        doc_column(doc, DOC_TEXT, "device");
        for (size_t i = 0; i < tokens.n; i++) {
            doc_column(doc, DOC_NUMBER, "%s tokens", tokens.v[i]);
            doc_column(doc, DOC_NUMBER, "FSDP");
        }
        doc_column(doc, DOC_NUMBER, "most tokens");
        for (size_t d = 0; d < devices.n; d++) {
            doc_row(doc, device_text(devices.v[d]), NULL);
            for (size_t i = 0; i < tokens.n; i++) {
                devices_cell(doc, t, devices.v[d], tokens.v[i]);
                devices_cell(doc, sharded, devices.v[d], tokens.v[i]);
            }
            const size_t r = table_find(sharded, "device_memory", devices.v[d], NULL);
            const double most = table_real(sharded, r, "tokens_most");
            if (isfinite(most))
                doc_cell(doc, "%.0f", most);
            else
                doc_cell(doc, "-");
        }
        values_free(&tokens);
        values_free(&devices);
    }
    table_free(sharded);
    table_free(t);
}

/* ---- (c) and (d) ---- */

static void ways_table(document *doc, const table *t)
{
    static const char *const order[] = {"as-given",    "overlap-axes", "more-axes", "best-whole-split",
                                        "best-split",  "8bit-weights", "8bit-all",  "keep-weights",
                                        "faster-link", "pipeline",     "context",   NULL};
    doc_heading(doc, 3, "(d): ways to a smaller batch");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "way", NULL);
    doc_columns(doc, DOC_NUMBER, "tokens per device", "of as given", NULL);
    doc_columns(doc, DOC_TEXT, "what it is", NULL);
    for (const char *const *way = order; *way; way++) {
        const size_t r = table_find(t, "way", *way, NULL);
        const double tokens = table_real(t, r, "tokens_per_device");
        if (r == NO_ROW)
            continue;
        doc_row(doc, *way, NULL);
        if (isfinite(tokens))
            doc_cell(doc, "%.1f", tokens);
        else
            doc_cell(doc, "-");
        doc_cells(doc, number(table_real(t, r, "of_given")), table_text(t, r, "what"), NULL);
        if (!isfinite(tokens))
            doc_more(doc, ": %s", table_text(t, r, "answer"));
    }
}

static void bound_table(document *doc, const table *t)
{
    doc_heading(doc, 3, "(c): compute-bound from which batch?");
    doc_paragraph(doc, "X %s, Y %s, M_X %s, M_Y %s, C %s TFLOP/s, W %s GB/s: alpha = C / W = %.1f.\n",
                  table_text(t, 0, "x"), table_text(t, 0, "y"), table_text(t, 0, "mesh_x"), table_text(t, 0, "mesh_y"),
                  number(table_real(t, 0, "used_flops") / 1e12), number(table_real(t, 0, "used_bandwidth") / GB),
                  table_real(t, 0, "alpha"));
    const double n = strtod(table_text(t, 0, "x"), NULL) * strtod(table_text(t, 0, "y"), NULL);
    if (isfinite(table_real(t, 0, "tokens_least")))
        doc_more(
            doc,
            "T_math > T_FSDP + T_TP from B > %.1f tokens on, %s. With both axes' collectives at once\n%.1f per device; "
            "with rings' (k - 1)/k of the bytes %.1f; at the best X, %.1f, %.1f; with FSDP alone on\nall axes %.0f.",
            table_real(t, 0, "tokens_least"), strong("%.1f per device", table_real(t, 0, "tokens_per_device")),
            table_real(t, 0, "tokens_overlapped") / n, table_real(t, 0, "tokens_rings") / n, table_real(t, 0, "best_x"),
            table_real(t, 0, "best_per_device"), table_real(t, 0, "pure_fsdp_per_device"));
    else
        doc_more(doc, "%s.", table_text(t, 0, "answer"));
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "B", "T_math us", "T_FSDP us", "T_TP us", "T_FSDP + T_TP us", NULL);
    doc_columns(doc, DOC_TEXT, "bound by", NULL);
    for (size_t r = 0; r < t->n; r++) {
        static const char *const times[] = {"math_us", "fsdp_us", "tp_us", "comm_us"};
        if (!isfinite(table_real(t, r, "at_tokens")))
            continue;
        doc_row(doc, NULL);
        doc_cell(doc, "%.0f", table_real(t, r, "at_tokens"));
        for (size_t i = 0; i < sizeof times / sizeof *times; i++)
            doc_cell(doc, "%.1f", table_real(t, r, times[i]));
        doc_cells(doc, table_text(t, r, "bound_by"), NULL);
    }
}

static void bound_part(document *doc, const table *all)
{
    table *t = rows_of(all, "compute_bound", bound_axes), *ways = rows_of(all, "batch", way_axes);
    if (t->n)
        bound_table(doc, t);
    if (ways->n)
        ways_table(doc, ways);
    table_free(ways);
    table_free(t);
}

/* ---- the forms of 2026 ---- */

static void forms_part(document *doc, const table *all)
{
    table *t = rows_of(all, "closed_forms", form_axes);
    if (t->n) {
        values forms = table_values(t, "form"), batches = table_values(t, "batch");
        doc_heading(doc, 3, "The forms of 2026: the most devices that stay bound by compute");
        doc_paragraph(doc, "SwiGLU's three matrices, rho = W / C. Least B is that of X %s, Y %s.",
                      table_text(t, 0, "x"), table_text(t, 0, "y"));
        doc_table(doc);
        doc_column(doc, DOC_TEXT, "form");
        doc_column(doc, DOC_NUMBER, "least B");
        for (size_t b = 0; b < batches.n; b++)
            if (strcmp(batches.v[b], "0") != 0)
                doc_column(doc, DOC_NUMBER, "N at B %s", batches.v[b]);
        for (size_t f = 0; f < forms.n; f++) {
            if (strcmp(forms.v[f], "all-reduce") == 0)
                continue;
            const size_t any = table_find(t, "form", forms.v[f], NULL);
            doc_row(doc, forms.v[f], number(table_real(t, any, "tokens_least")), NULL);
            for (size_t b = 0; b < batches.n; b++) {
                const size_t r = table_find(t, "form", forms.v[f], "batch", batches.v[b], NULL);
                if (strcmp(batches.v[b], "0") != 0)
                    doc_cells(doc, number(table_real(t, r, "devices_most")), NULL);
            }
        }
        const size_t ring = table_find(t, "form", "all-reduce", NULL);
        if (ring != NO_ROW)
            doc_paragraph(doc, "An all-reduce of one block's gradients: %s.", table_text(t, ring, "answer"));
        values_free(&batches);
        values_free(&forms);
    }
    table_free(t);
}

/* ---- GPUs ---- */

static void hide_part(document *doc, const table *all)
{
    table *t = rows_of(all, "data_parallel", hide_axes);
    if (t->n) {
        doc_heading(doc, 3, "Tokens of a GPU that hide the gradients");
        doc_paragraph(doc, "C %s TFLOP/s, W %s GB/s of the bus: alpha = %.0f.",
                      number(table_real(t, 0, "used_flops") / 1e12), number(table_real(t, 0, "used_bandwidth") / GB),
                      table_real(t, 0, "alpha"));
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "model", NULL);
        doc_columns(doc, DOC_NUMBER, "ranks", "bits", "all-reduce ms", "tokens per GPU", NULL);
        for (size_t r = 0; r < t->n; r++) {
            doc_row(doc, table_text(t, r, "model"), table_text(t, r, "ranks"), table_text(t, r, "grad_bits"),
                    number(table_real(t, r, "comm_us") / 1e3), NULL);
            doc_cell(doc, "%.0f", table_real(t, r, "tokens_per_device"));
        }
    }
    table_free(t);
}

static void bucket_part(document *doc, const table *all, const char *dir)
{
    table *t = rows_of(all, "buckets", bucket_axes);
    if (t->n) {
        doc_heading(doc, 3, "Buckets");
        doc_paragraph(doc,
                      "o = %s us per call, w = W n / (2 (n - 1)) of W = %s GB/s. The handout's model n o + s / (n w) "
                      "is best at\nsqrt(s o w); where collectives are hidden, but slow compute by kappa of their time, "
                      "sqrt(kappa s o w).",
                      table_text(t, 0, "overhead"), number(table_real(t, 0, "used_bandwidth") / GB));
        figures(doc, dir, "accounting_buckets");
        doc_table(doc);
        doc_columns(doc, DOC_NUMBER, "ranks", "bits", "w GB/s", "handout: b MB", "buckets", "kappa", "b MB",
                    "ms over backward", NULL);
        table *best = table_where(t, "bucket", "0", NULL);
        for (size_t r = 0; r < best->n; r++) {
            doc_row(doc, table_text(best, r, "ranks"), table_text(best, r, "grad_bits"),
                    number(table_real(best, r, "algbw_gb_s")), NULL);
            doc_cell(doc, "%.0f", table_real(best, r, "best_bytes") / MB);
            doc_cell(doc, "%.1f", table_real(best, r, "best_buckets"));
            doc_cells(doc, table_text(best, r, "kappa"), NULL);
            doc_cell(doc, "%.0f", table_real(best, r, "best_contention_bytes") / MB);
            doc_cells(doc, number(table_real(best, r, "overhead_contention_us") / 1e3), NULL);
        }
        table_free(best);
    }
    table_free(t);
}

static void zero_part(document *doc, const table *all, const char *dir)
{
    table *t = rows_of(all, "zero", zero_axes);
    if (t->n) {
        doc_heading(doc, 3, "Memory and traffic by strategy: %s", table_text(t, 0, "model"));
        doc_paragraph(doc,
                      "Each cell: GiB of a rank after set-up / before the first update / from then on; GB it sends in "
                      "a step.\nActivations, and %s slots of a block, come on top.",
                      table_text(t, 0, "slots"));
        figures(doc, dir, "accounting_zero");
        values ranks = table_values(t, "ranks");
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "recipe", "strategy", NULL);
        for (size_t i = 0; i < ranks.n; i++)
            doc_column(doc, DOC_NUMBER, "%s rank%s", ranks.v[i], strcmp(ranks.v[i], "1") == 0 ? "" : "s");
        values recipes = table_values(t, "recipe"), strategies = table_values(t, "strategy");
        for (size_t p = 0; p < recipes.n; p++)
            for (size_t s = 0; s < strategies.n; s++) {
                doc_row(doc, recipes.v[p], strategies.v[s], NULL);
                for (size_t i = 0; i < ranks.n; i++) {
                    const size_t r =
                        table_find(t, "ranks", ranks.v[i], "recipe", recipes.v[p], "strategy", strategies.v[s], NULL);
                    doc_cell(doc, "%.2f / %.2f / %.2f; %.2f", table_real(t, r, "init_bytes") / GIB,
                             table_real(t, r, "before_step_bytes") / GIB, table_real(t, r, "after_step_bytes") / GIB,
                             table_real(t, r, "wire_bytes") / GB);
                }
            }
        values_free(&strategies);
        values_free(&recipes);
        values_free(&ranks);
    }
    table_free(t);
}

/* ---- the bench ---- */

static void findings(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_accounting.csv");
    if (!all)
        return;
    table *t = rows_of(all, "compute_bound", bound_axes);
    const size_t least = table_find(t, "batch", "0", NULL);
    if (least != NO_ROW && isfinite(table_real(t, least, "tokens_least")))
        doc_bullet(doc, "%s of d %s, F %s on X %s, Y %s: compute-bound from %.1f tokens per device on.",
                   strong("Accounting"), table_text(t, least, "d_model"), table_text(t, least, "d_ff"),
                   table_text(t, least, "x"), table_text(t, least, "y"), table_real(t, least, "tokens_per_device"));
    table_free(t);
    table_free(all);
}

static void write_section(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_accounting.csv");
    if (!all)
        return;
    doc_heading(doc, 2, "bench_accounting: memory and communication on paper");
    doc_paragraph(doc, "Calculations, not measurements; %s prints each derivation.", code("./bench_accounting"));
    figures(doc, dir, "accounting_fsdp");
    memory_part(doc, all);
    figures(doc, dir, "accounting_bound");
    bound_part(doc, all);
    forms_part(doc, all);
    hide_part(doc, all);
    bucket_part(doc, all, dir);
    zero_part(doc, all, dir);
    table_free(all);
}

static const readme_bench benches[] = {
    {.name = "bench_accounting",
     .order = 70,
     .question = "What do memory and communication come to on paper?",
     .columns = {{"after_step_bytes", "held by a rank", "bytes"}, {"wire_bytes", "sent in a step", "bytes"}}},
    {.name = NULL}};

const report_section section_accounting = {
    .order = 120, .findings = findings, .write = write_section, .benches = benches};
