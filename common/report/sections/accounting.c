/* SPDX-License-Identifier: MIT */
/* bench_accounting in the report: answers of communication_accounting, closed forms, buckets, memory by strategy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/sections.h"

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

static void devices_cell(FILE *out, const table *t, const char *device, const char *tokens)
{
    const size_t r = table_find(t, "device_memory", device, "tokens", tokens, NULL);
    const double devices = table_real(t, r, "devices");
    if (isfinite(devices))
        fprintf(out, " %.0f |", devices);
    else
        fprintf(out, r == NO_ROW ? " - |" : " none |");
}

static void memory_part(FILE *out, const table *all)
{
    table *t = rows_of(all, "memory", memory_axes), *sharded = rows_of(all, "fsdp", memory_axes);
    if (t->n) {
        values devices = table_values(t, "device_memory"), tokens = table_values(t, "tokens");
        fprintf(
            out,
            "### (a), (b): devices that hold the training state\n\n"
            "P = %.0f parameters of d %s, F %s, %s blocks of %s matrices. Weights, gradients and both moments in fp32\n"
            "are 16 P = %.2f GB (%.1f GiB); a token leaves %.2f MB (%.2f MiB) for backward. The first number is with\n"
            "everything sharded, the second with half of the activations whole on each device (FSDP).\n\n"
            "| device |",
            table_real(t, 0, "parameters"), table_text(t, 0, "d_model"), table_text(t, 0, "d_ff"),
            table_text(t, 0, "blocks"), table_text(t, 0, "matrices"), table_real(t, 0, "state_bytes") / GB,
            table_real(t, 0, "state_bytes") / GIB, table_real(t, 0, "saved_per_token_bytes") / MB,
            table_real(t, 0, "saved_per_token_bytes") / MIB);
        for (size_t i = 0; i < tokens.n; i++)
            fprintf(out, " %s tokens | FSDP |", tokens.v[i]);
        fprintf(out, " most tokens |\n|---|");
        for (size_t i = 0; i < 2 * tokens.n + 1; i++)
            fprintf(out, "---:|");
        fprintf(out, "\n");
        for (size_t d = 0; d < devices.n; d++) {
            fprintf(out, "| %s |", device_text(devices.v[d]));
            for (size_t i = 0; i < tokens.n; i++) {
                devices_cell(out, t, devices.v[d], tokens.v[i]);
                devices_cell(out, sharded, devices.v[d], tokens.v[i]);
            }
            const size_t r = table_find(sharded, "device_memory", devices.v[d], NULL);
            const double most = table_real(sharded, r, "tokens_most");
            fprintf(out, isfinite(most) ? " %.0f |\n" : " - |\n", most);
        }
        fprintf(out, "\n");
        values_free(&tokens);
        values_free(&devices);
    }
    table_free(sharded);
    table_free(t);
}

/* ---- (c) and (d) ---- */

static void ways_table(FILE *out, const table *t)
{
    static const char *const order[] = {"as-given",    "overlap-axes", "more-axes", "best-whole-split",
                                        "best-split",  "8bit-weights", "8bit-all",  "keep-weights",
                                        "faster-link", "pipeline",     "context",   NULL};
    fprintf(out, "### (d): ways to a smaller batch\n\n| way | tokens a device | of as given | what it is |\n"
                 "|---|---:|---:|---|\n");
    for (const char *const *way = order; *way; way++) {
        const size_t r = table_find(t, "way", *way, NULL);
        const double tokens = table_real(t, r, "tokens_per_device");
        if (r == NO_ROW)
            continue;
        fprintf(out, isfinite(tokens) ? "| %s | %.1f |" : "| %s | - |", *way, tokens);
        fprintf(out, " %s | %s%s%s |\n", number(table_real(t, r, "of_given")), table_text(t, r, "what"),
                isfinite(tokens) ? "" : ": ", isfinite(tokens) ? "" : table_text(t, r, "answer"));
    }
    fprintf(out, "\n");
}

static void bound_table(FILE *out, const table *t)
{
    fprintf(out,
            "### (c): compute-bound from which batch?\n\n"
            "X %s, Y %s, M_X %s, M_Y %s, C %s TFLOP/s, W %s GB/s: alpha = C / W = %.1f.\n",
            table_text(t, 0, "x"), table_text(t, 0, "y"), table_text(t, 0, "mesh_x"), table_text(t, 0, "mesh_y"),
            number(table_real(t, 0, "used_flops") / 1e12), number(table_real(t, 0, "used_bandwidth") / GB),
            table_real(t, 0, "alpha"));
    const double n = strtod(table_text(t, 0, "x"), NULL) * strtod(table_text(t, 0, "y"), NULL);
    if (isfinite(table_real(t, 0, "tokens_least")))
        fprintf(
            out,
            "T_math > T_FSDP + T_TP from B > %.1f tokens on, **%.1f a device**. With both axes' collectives at once\n"
            "%.1f a device; with rings' (k - 1)/k of the bytes %.1f; at the best X, %.1f, %.1f; with FSDP alone on\n"
            "all axes %.0f.\n\n",
            table_real(t, 0, "tokens_least"), table_real(t, 0, "tokens_per_device"),
            table_real(t, 0, "tokens_overlapped") / n, table_real(t, 0, "tokens_rings") / n, table_real(t, 0, "best_x"),
            table_real(t, 0, "best_per_device"), table_real(t, 0, "pure_fsdp_per_device"));
    else
        fprintf(out, "%s.\n\n", table_text(t, 0, "answer"));
    fprintf(out, "| B | T_math us | T_FSDP us | T_TP us | T_FSDP + T_TP us | bound by |\n"
                 "|---:|---:|---:|---:|---:|---|\n");
    for (size_t r = 0; r < t->n; r++)
        if (isfinite(table_real(t, r, "at_tokens")))
            fprintf(out, "| %.0f | %.1f | %.1f | %.1f | %.1f | %s |\n", table_real(t, r, "at_tokens"),
                    table_real(t, r, "math_us"), table_real(t, r, "fsdp_us"), table_real(t, r, "tp_us"),
                    table_real(t, r, "comm_us"), table_text(t, r, "bound_by"));
    fprintf(out, "\n");
}

static void bound_part(FILE *out, const table *all)
{
    table *t = rows_of(all, "compute_bound", bound_axes), *ways = rows_of(all, "batch", way_axes);
    if (t->n)
        bound_table(out, t);
    if (ways->n)
        ways_table(out, ways);
    table_free(ways);
    table_free(t);
}

/* ---- the forms of 2026 ---- */

static void forms_part(FILE *out, const table *all)
{
    table *t = rows_of(all, "closed_forms", form_axes);
    if (t->n) {
        values forms = table_values(t, "form"), batches = table_values(t, "batch");
        fprintf(out,
                "### The forms of 2026: the most devices that stay bound by compute\n\n"
                "SwiGLU's three matrices, rho = W / C. Least B is that of X %s, Y %s.\n\n| form | least B |",
                table_text(t, 0, "x"), table_text(t, 0, "y"));
        for (size_t b = 0; b < batches.n; b++)
            if (strcmp(batches.v[b], "0") != 0)
                fprintf(out, " N at B %s |", batches.v[b]);
        fprintf(out, "\n|---|---:|");
        for (size_t b = 0; b < batches.n; b++)
            if (strcmp(batches.v[b], "0") != 0)
                fprintf(out, "---:|");
        fprintf(out, "\n");
        for (size_t f = 0; f < forms.n; f++) {
            if (strcmp(forms.v[f], "all-reduce") == 0)
                continue;
            const size_t any = table_find(t, "form", forms.v[f], NULL);
            fprintf(out, "| %s | %s |", forms.v[f], number(table_real(t, any, "tokens_least")));
            for (size_t b = 0; b < batches.n; b++)
                if (strcmp(batches.v[b], "0") != 0)
                    fprintf(out, " %s |",
                            number(table_real(t, table_find(t, "form", forms.v[f], "batch", batches.v[b], NULL),
                                              "devices_most")));
            fprintf(out, "\n");
        }
        const size_t ring = table_find(t, "form", "all-reduce", NULL);
        if (ring != NO_ROW)
            fprintf(out, "\nAn all-reduce of one block's gradients: %s.\n", table_text(t, ring, "answer"));
        fprintf(out, "\n");
        values_free(&batches);
        values_free(&forms);
    }
    table_free(t);
}

/* ---- GPUs ---- */

static void hide_part(FILE *out, const table *all)
{
    table *t = rows_of(all, "data_parallel", hide_axes);
    if (t->n) {
        fprintf(out,
                "### Tokens of a GPU that hide the gradients\n\n"
                "C %s TFLOP/s, W %s GB/s of the bus: alpha = %.0f.\n\n"
                "| model | ranks | bits | all-reduce ms | tokens a GPU |\n|---|---:|---:|---:|---:|\n",
                number(table_real(t, 0, "used_flops") / 1e12), number(table_real(t, 0, "used_bandwidth") / GB),
                table_real(t, 0, "alpha"));
        for (size_t r = 0; r < t->n; r++)
            fprintf(out, "| %s | %s | %s | %s | %.0f |\n", table_text(t, r, "model"), table_text(t, r, "ranks"),
                    table_text(t, r, "grad_bits"), number(table_real(t, r, "comm_us") / 1e3),
                    table_real(t, r, "tokens_per_device"));
        fprintf(out, "\n");
    }
    table_free(t);
}

static void bucket_part(FILE *out, const table *all, const char *dir)
{
    table *t = rows_of(all, "buckets", bucket_axes);
    if (t->n) {
        fprintf(
            out,
            "### Buckets\n\n"
            "o = %s us a call, w = W n / (2 (n - 1)) of W = %s GB/s. The handout's model n o + s / (n w) is best at\n"
            "sqrt(s o w); where collectives are hidden, but slow compute by kappa of their time, sqrt(kappa s o "
            "w).\n\n",
            table_text(t, 0, "overhead"), number(table_real(t, 0, "used_bandwidth") / GB));
        figures(out, dir, "accounting_buckets");
        fprintf(out, "| ranks | bits | w GB/s | handout: b MB | buckets | kappa | b MB | ms over backward |\n"
                     "|---:|---:|---:|---:|---:|---:|---:|---:|\n");
        table *best = table_where(t, "bucket", "0", NULL);
        for (size_t r = 0; r < best->n; r++)
            fprintf(out, "| %s | %s | %s | %.0f | %.1f | %s | %.0f | %s |\n", table_text(best, r, "ranks"),
                    table_text(best, r, "grad_bits"), number(table_real(best, r, "algbw_gb_s")),
                    table_real(best, r, "best_bytes") / MB, table_real(best, r, "best_buckets"),
                    table_text(best, r, "kappa"), table_real(best, r, "best_contention_bytes") / MB,
                    number(table_real(best, r, "overhead_contention_us") / 1e3));
        fprintf(out, "\n");
        table_free(best);
    }
    table_free(t);
}

static void zero_part(FILE *out, const table *all, const char *dir)
{
    table *t = rows_of(all, "zero", zero_axes);
    if (t->n) {
        fprintf(
            out,
            "### Memory and traffic by strategy: %s\n\n"
            "Each cell: GiB of a rank after set-up / before the first update / from then on; GB it sends in a step.\n"
            "Activations, and %s slots of a block, come on top.\n\n",
            table_text(t, 0, "model"), table_text(t, 0, "slots"));
        figures(out, dir, "accounting_zero");
        values ranks = table_values(t, "ranks");
        fprintf(out, "| recipe | strategy |");
        for (size_t i = 0; i < ranks.n; i++)
            fprintf(out, " %s rank%s |", ranks.v[i], strcmp(ranks.v[i], "1") == 0 ? "" : "s");
        fprintf(out, "\n|---|---|");
        for (size_t i = 0; i < ranks.n; i++)
            fprintf(out, "---:|");
        fprintf(out, "\n");
        values recipes = table_values(t, "recipe"), strategies = table_values(t, "strategy");
        for (size_t p = 0; p < recipes.n; p++)
            for (size_t s = 0; s < strategies.n; s++) {
                fprintf(out, "| %s | %s |", recipes.v[p], strategies.v[s]);
                for (size_t i = 0; i < ranks.n; i++) {
                    const size_t r =
                        table_find(t, "ranks", ranks.v[i], "recipe", recipes.v[p], "strategy", strategies.v[s], NULL);
                    fprintf(out, " %.2f / %.2f / %.2f; %.2f |", table_real(t, r, "init_bytes") / GIB,
                            table_real(t, r, "before_step_bytes") / GIB, table_real(t, r, "after_step_bytes") / GIB,
                            table_real(t, r, "wire_bytes") / GB);
                }
                fprintf(out, "\n");
            }
        fprintf(out, "\n");
        values_free(&strategies);
        values_free(&recipes);
        values_free(&ranks);
    }
    table_free(t);
}

/* ---- the bench ---- */

void accounting_findings(FILE *out, const char *dir)
{
    table *all = open_result(dir, "bench_accounting.csv");
    if (!all)
        return;
    table *t = rows_of(all, "compute_bound", bound_axes);
    const size_t least = table_find(t, "batch", "0", NULL);
    if (least != NO_ROW && isfinite(table_real(t, least, "tokens_least")))
        fprintf(out, "- **Accounting** of d %s, F %s on X %s, Y %s: bound by compute from %.1f tokens a device on.\n",
                table_text(t, least, "d_model"), table_text(t, least, "d_ff"), table_text(t, least, "x"),
                table_text(t, least, "y"), table_real(t, least, "tokens_per_device"));
    table_free(t);
    table_free(all);
}

void accounting_section(FILE *out, const char *dir)
{
    table *all = open_result(dir, "bench_accounting.csv");
    if (!all)
        return;
    fprintf(out, "## bench_accounting: memory and communication on paper\n\n"
                 "Calculations, not measurements; `./bench_accounting` prints each derivation.\n\n");
    figures(out, dir, "accounting_fsdp");
    memory_part(out, all);
    figures(out, dir, "accounting_bound");
    bound_part(out, all);
    forms_part(out, all);
    hide_part(out, all);
    bucket_part(out, all, dir);
    zero_part(out, all, dir);
    table_free(all);
}
