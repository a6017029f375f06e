/* SPDX-License-Identifier: MIT */
/* bench_flash in the report: what stands out, and its grids of S by D. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/section.h"
#include "common/report/steady.h"
#include "common/report/sentences.h"

static const char *const axes[] = {"seq", "head_dim", "dtype", NULL};

static void add_where(document *doc, const table *t, size_t row)
{
    doc_more(doc, "S %s, D %s", table_text(t, row, "seq"), table_text(t, row, "head_dim"));
}

/* Three products of 16-bit parts for one: their ceiling is a third of that of 16 bits. */
static bool by_parts(const char *dtype)
{
    return strcmp(dtype, "fp32") == 0 || strcmp(dtype, "bf16x3") == 0;
}

/* "forward up to 345 TFLOP/s (44 % of the GEMM ceiling; S 16384, D 128)" */
static void add_rate(document *doc, const table *flash, const char *what, const char *tflops, const char *pct)
{
    size_t best = largest(flash, tflops);
    if (best == NO_ROW)
        return;
    doc_more(doc, "%s up to %s TFLOP/s (", what, number(table_real(flash, best, tflops)));
    const double share = table_real(flash, best, pct);
    if (isfinite(share))
        doc_more(doc, "%.0f %% of %s, the measured GEMM ceiling%s%s; ", share,
                 number(table_real(flash, best, "ceiling_tflops")),
                 by_parts(table_text(flash, best, "dtype")) ? " of fp32 by parts on tensor cores" : "",
                 share > 100 ? ", which products reach at the power limit and attention passes at a higher clock" : "");
    add_where(doc, flash, best);
    doc_more(doc, ")");
}

static void add_speedup(document *doc, const table *flash, const char *what, const char *column)
{
    size_t best = largest(flash, column);
    if (best == NO_ROW)
        return;
    doc_more(doc, "; %s up to %sx as fast as unfused (", what, number(table_real(flash, best, column)));
    add_where(doc, flash, best);
    doc_more(doc, ")");
}

/* The shortest sequence at which a variant had no memory. */
static void add_out_of_memory(document *doc, const table *of_dtype, const char *variant)
{
    table *oom = table_where(of_dtype, "variant", variant, "status", "oom", NULL);
    values lengths = table_values(oom, "seq");
    if (lengths.n)
        doc_more(doc, "; %s is out of memory at S %s", variant, lengths.v[0]);
    values_free(&lengths);
    table_free(oom);
}

static void add_errors(document *doc, const table *flash)
{
    static const char *const gradients[] = {"err_dq", "err_dk", "err_dv"};
    size_t forward = largest(flash, "err_fwd"), ratio = largest(flash, "err_ratio");
    double backward = NAN;
    for (size_t i = 0; i < 3; i++)
        backward = fmax(backward, table_real(flash, largest(flash, gradients[i]), gradients[i]));
    if (forward != NO_ROW)
        doc_more(doc, "; relative L2 error against fp64 at most %.1e forward, %.1e backward",
                 table_real(flash, forward, "err_fwd"), backward);
    if (ratio != NO_ROW)
        doc_more(doc, ", forward at most %s times that of unfused", number(table_real(flash, ratio, "err_ratio")));
}

static void findings(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_flash.csv");
    if (!all)
        return;
    table *t = table_main_slice(all, axes, NULL);
    values dtypes = table_values(t, "dtype");
    char *shape = table_shape(t, axes);
    for (size_t i = 0; i < dtypes.n; i++) {
        table *of = table_where(t, "dtype", dtypes.v[i], NULL);
        table *flash = table_where(of, "variant", "flash", "status", "ok", NULL);
        if (flash->n) {
            doc_bullet(doc, "%s (%s): ", strong("FlashAttention, %s", dtypes.v[i]), shape);
            add_rate(doc, flash, "forward", "fwd_tflops", "fwd_ceiling_pct");
            add_rate(doc, flash, ", backward", "bwd_tflops", "bwd_ceiling_pct");
            add_speedup(doc, flash, "forward", "speedup_fwd");
            add_speedup(doc, flash, "backward", "speedup_bwd");
            add_out_of_memory(doc, of, "unfused");
            add_errors(doc, flash);
            doc_more(doc, ".");
        }
        table_free(flash);
        table_free(of);
    }
    free(shape);
    values_free(&dtypes);
    table_free(t);
    table_free(all);
}

/* Which columns of which variants a cell of a grid shows, joined by " / ". */
typedef struct shown {
    const char *variant, *column;
    double scale;
} shown;

static void add_shown(document *doc, const table *t, const char *seq, const char *dim, const void *context)
{
    const shown *s = context;
    for (const shown *each = s; each->column; each++) {
        size_t row = table_find(t, "seq", seq, "head_dim", dim, "variant", each->variant, NULL);
        doc_more(doc, "%s%s", each == s ? "" : " / ", cell_number(t, row, each->column, each->scale));
    }
}

typedef struct grid_spec {
    const char *title;
    shown cells[5];
} grid_spec;

static void add_grids(document *doc, const table *t, const grid_spec *specs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        doc_paragraph(doc, "%s", specs[i].title);
        sequence_by_head_dim(doc, t, add_shown, specs[i].cells);
    }
}

static const grid_spec
    flash_grids[] =
        {
            {"Forward, ms: unfused / flash", {{"unfused", "fwd_ms", 1}, {"flash", "fwd_ms", 1}}},
            {"Backward, ms: unfused / flash", {{"unfused", "bwd_ms", 1}, {"flash", "bwd_ms", 1}}},
            {"Speed-up of flash over unfused: forward / backward / forward+backward",
             {{"flash", "speedup_fwd", 1}, {"flash", "speedup_bwd", 1}, {"flash", "speedup_fwd_bwd", 1}}},
            {"flash, TFLOP/s: forward / backward", {{"flash", "fwd_tflops", 1}, {"flash", "bwd_tflops", 1}}},
},
    flash_more_grids[] = {
        {"Forward+backward, ms: unfused / flash", {{"unfused", "fwd_bwd_ms", 1}, {"flash", "fwd_bwd_ms", 1}}},
        {"flash, % of the measured GEMM ceiling: forward / backward",
         {{"flash", "fwd_ceiling_pct", 1}, {"flash", "bwd_ceiling_pct", 1}}},
        {"Peak memory, MiB: unfused / flash", {{"unfused", "peak_bytes", MIB}, {"flash", "peak_bytes", MIB}}},
        {"flash, relative L2 error against fp64: o / dq / dk / dv",
         {{"flash", "err_fwd", 1}, {"flash", "err_dq", 1}, {"flash", "err_dk", 1}, {"flash", "err_dv", 1}}},
        {"Forward error of flash / that of unfused", {{"flash", "err_ratio", 1}}},
};

/* Shapes beside the main grid, and variants that the grids do not show. */
static void add_other_rows(document *doc, const table *main_slice, const table *rest)
{
    values variants = table_values(main_slice, "variant");
    for (size_t i = 0; i < variants.n; i++) {
        if (strcmp(variants.v[i], "unfused") == 0 || strcmp(variants.v[i], "flash") == 0)
            continue;
        table *t = table_where(main_slice, "variant", variants.v[i], NULL);
        doc_fold(doc, "%s: %zu rows", variants.v[i], t->n);
        attention_rows(doc, t);
        doc_fold_end(doc);
        table_free(t);
    }
    values_free(&variants);
    if (rest->n) {
        char *shape = table_shape(rest, NULL);
        doc_heading(doc, 3, "Other shapes");
        if (*shape)
            doc_paragraph(doc, "%s", shape);
        attention_rows(doc, rest);
        free(shape);
    }
}

static const steady_part parts[] = {{.what = "forward",
                                     .unit = "ms",
                                     .burst = "fwd_ms",
                                     .sustained = "sustained_fwd_ms",
                                     .sm_mhz = "sustained_fwd_sm_mhz",
                                     .power_w = "sustained_fwd_power_w",
                                     .burst_j = "fwd_j",
                                     .sustained_j = "sustained_fwd_j",
                                     .burst_per_j = "fwd_tflop_per_j",
                                     .sustained_per_j = "sustained_fwd_tflop_per_j",
                                     .per_j = "TFLOP/J"},
                                    {.what = "backward",
                                     .unit = "ms",
                                     .burst = "bwd_ms",
                                     .sustained = "sustained_bwd_ms",
                                     .sm_mhz = "sustained_bwd_sm_mhz",
                                     .power_w = "sustained_bwd_power_w",
                                     .burst_j = "bwd_j",
                                     .sustained_j = "sustained_bwd_j",
                                     .burst_per_j = "bwd_tflop_per_j",
                                     .sustained_per_j = "sustained_bwd_tflop_per_j",
                                     .per_j = "TFLOP/J"},
                                    {0}};

static void write_section(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_flash.csv");
    if (!all)
        return;
    table *rest, *t = table_main_slice(all, axes, &rest);
    char *shape = table_shape(t, axes);
    doc_heading(doc, 2, "bench_flash: FlashAttention against unfused attention");
    doc_paragraph(doc, "%s. Rows are S, columns D; times are medians.", shape);
    figures(doc, dir, "flash_");
    values dtypes = table_values(t, "dtype");
    for (size_t i = 0; i < dtypes.n; i++) {
        table *of = table_where(t, "dtype", dtypes.v[i], NULL);
        doc_heading(doc, 3, "%s", dtypes.v[i]);
        say_flash(doc, of);
        add_grids(doc, of, flash_grids, sizeof flash_grids / sizeof *flash_grids);
        doc_fold(doc, "%s: forward+backward, share of the ceiling, memory, errors", dtypes.v[i]);
        add_grids(doc, of, flash_more_grids, sizeof flash_more_grids / sizeof *flash_more_grids);
        doc_fold_end(doc);
        table_free(of);
    }
    steady_tables(doc, all, parts);
    add_other_rows(doc, t, rest);
    values_free(&dtypes);
    free(shape);
    table_free(rest);
    table_free(t);
    table_free(all);
}

static const readme_bench benches[] = {{.name = "bench_flash",
                                        .order = 30,
                                        .question = "How fast is FlashAttention?",
                                        .columns = {{"fwd_ms", "forward", "ms"},
                                                    {"fwd_tflops", "=", "TFLOP/s"},
                                                    {"bwd_ms", "backward", "ms"},
                                                    {"bwd_tflops", "=", "TFLOP/s"},
                                                    {"peak_bytes", "peak", "bytes"}},
                                        .only = {{"variant", "flash"},
                                                 {"deterministic", "0"},
                                                 {"dtype", "bf16"},
                                                 {"heads", "1"},
                                                 {"head_dim", "128"},
                                                 {"seq", "65536"}}},
                                       {.name = NULL}};

const report_section section_flash = {.order = 40, .findings = findings, .write = write_section, .benches = benches};
