/* SPDX-License-Identifier: MIT */
/* bench_flash in the report: what stands out, and its grids of S by D. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/sections.h"

static const char *const axes[] = {"seq", "head_dim", "dtype", NULL};

static void print_where(FILE *out, const table *t, size_t row)
{
    fprintf(out, "S %s, D %s", table_text(t, row, "seq"), table_text(t, row, "head_dim"));
}

/* "forward up to 345 TFLOP/s (44 % of the GEMM ceiling; S 16384, D 128)" */
static void print_rate(FILE *out, const table *flash, const char *what, const char *tflops, const char *pct)
{
    size_t best = largest(flash, tflops);
    if (best == NO_ROW)
        return;
    fprintf(out, "%s up to %s TFLOP/s (", what, number(table_real(flash, best, tflops)));
    if (isfinite(table_real(flash, best, pct)))
        fprintf(out, "%.0f %% of the measured GEMM ceiling; ", table_real(flash, best, pct));
    print_where(out, flash, best);
    fprintf(out, ")");
}

static void print_speedup(FILE *out, const table *flash, const char *what, const char *column)
{
    size_t best = largest(flash, column);
    if (best == NO_ROW)
        return;
    fprintf(out, "; %s up to %sx as fast as unfused (", what, number(table_real(flash, best, column)));
    print_where(out, flash, best);
    fprintf(out, ")");
}

/* The shortest sequence at which a variant had no memory. */
static void print_out_of_memory(FILE *out, const table *of_dtype, const char *variant)
{
    table *oom = table_where(of_dtype, "variant", variant, "status", "oom", NULL);
    values lengths = table_values(oom, "seq");
    if (lengths.n)
        fprintf(out, "; %s is out of memory at S %s", variant, lengths.v[0]);
    values_free(&lengths);
    table_free(oom);
}

static void print_errors(FILE *out, const table *flash)
{
    static const char *const gradients[] = {"err_dq", "err_dk", "err_dv"};
    size_t forward = largest(flash, "err_fwd"), ratio = largest(flash, "err_ratio");
    double backward = NAN;
    for (size_t i = 0; i < 3; i++)
        backward = fmax(backward, table_real(flash, largest(flash, gradients[i]), gradients[i]));
    if (forward != NO_ROW)
        fprintf(out, "; relative L2 error against fp64 at most %.1e forward, %.1e backward",
                table_real(flash, forward, "err_fwd"), backward);
    if (ratio != NO_ROW)
        fprintf(out, ", forward at most %s times that of unfused", number(table_real(flash, ratio, "err_ratio")));
}

void flash_findings(FILE *out, const char *dir)
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
            fprintf(out, "- **FlashAttention, %s** (%s): ", dtypes.v[i], shape);
            print_rate(out, flash, "forward", "fwd_tflops", "fwd_ceiling_pct");
            print_rate(out, flash, ", backward", "bwd_tflops", "bwd_ceiling_pct");
            print_speedup(out, flash, "forward", "speedup_fwd");
            print_speedup(out, flash, "backward", "speedup_bwd");
            print_out_of_memory(out, of, "unfused");
            print_errors(out, flash);
            fprintf(out, ".\n");
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

static void print_shown(FILE *out, const table *t, const char *seq, const char *dim, const void *context)
{
    const shown *s = context;
    for (const shown *each = s; each->column; each++) {
        size_t row = table_find(t, "seq", seq, "head_dim", dim, "variant", each->variant, NULL);
        fprintf(out, "%s%s", each == s ? "" : " / ", cell_number(t, row, each->column, each->scale));
    }
}

typedef struct grid_spec {
    const char *title;
    shown cells[5];
} grid_spec;

static void print_grids(FILE *out, const table *t, const grid_spec *specs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%s\n\n", specs[i].title);
        sequence_by_head_dim(out, t, print_shown, specs[i].cells);
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
static void print_other_rows(FILE *out, const table *main_slice, const table *rest)
{
    values variants = table_values(main_slice, "variant");
    for (size_t i = 0; i < variants.n; i++) {
        if (strcmp(variants.v[i], "unfused") == 0 || strcmp(variants.v[i], "flash") == 0)
            continue;
        table *t = table_where(main_slice, "variant", variants.v[i], NULL);
        fprintf(out, "<details><summary>%s: %zu rows</summary>\n\n", variants.v[i], t->n);
        attention_rows(out, t);
        fprintf(out, "</details>\n\n");
        table_free(t);
    }
    values_free(&variants);
    if (rest->n) {
        char *shape = table_shape(rest, NULL);
        fprintf(out, "### Other shapes\n\n%s%s", *shape ? shape : "", *shape ? "\n\n" : "");
        attention_rows(out, rest);
        free(shape);
    }
}

void flash_section(FILE *out, const char *dir)
{
    table *all = open_result(dir, "bench_flash.csv");
    if (!all)
        return;
    table *rest, *t = table_main_slice(all, axes, &rest);
    char *shape = table_shape(t, axes);
    fprintf(out,
            "## bench_flash: FlashAttention against unfused attention\n\n"
            "%s. Rows are S, columns D; times are medians.\n\n",
            shape);
    figures(out, dir, "flash_");
    values dtypes = table_values(t, "dtype");
    for (size_t i = 0; i < dtypes.n; i++) {
        table *of = table_where(t, "dtype", dtypes.v[i], NULL);
        fprintf(out, "### %s\n\n", dtypes.v[i]);
        print_grids(out, of, flash_grids, sizeof flash_grids / sizeof *flash_grids);
        fprintf(out, "<details><summary>%s: forward+backward, share of the ceiling, memory, errors</summary>\n\n",
                dtypes.v[i]);
        print_grids(out, of, flash_more_grids, sizeof flash_more_grids / sizeof *flash_more_grids);
        fprintf(out, "</details>\n\n");
        table_free(of);
    }
    print_other_rows(out, t, rest);
    values_free(&dtypes);
    free(shape);
    table_free(rest);
    table_free(t);
    table_free(all);
}
