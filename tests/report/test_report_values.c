/* SPDX-License-Identifier: MIT */
/* Every newest row that went well, of the committed folders, stands in report.html with the values of its CSV file: they are read and
 * rounded here once more, without SQL. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <glob.h>

#include "common/core/results.h"

static const double MIB = 1048576.0, GIB = 1073741824.0;

/* Columns that stand in one row of a table, each as a cell, in this unit; with digits 4 within one. */
typedef struct shown {
    const char *bench, *variant; /* variant NULL: any */
    struct {
        const char *column;
        const double *unit;
        int digits;
    } cells[5];
} shown;

static const shown tables[] = {
    {"bench_roofline", "gemm", {{"tflops", NULL, 3}}},
    {"bench_roofline", "copy_kernel", {{"time_us", NULL, 3}, {"gb_s", NULL, 3}}},
    {"bench_flash",
     "flash",
     {{"fwd_ms", NULL, 3}, {"bwd_ms", NULL, 3}, {"fwd_tflops", NULL, 3}, {"peak_bytes", &MIB, 3}}},
    {"bench_attention", NULL, {{"fwd_ms", NULL, 3}, {"bwd_ms", NULL, 3}, {"peak_bytes", &MIB, 3}}},
    {"bench_transformer", "graph", {{"tokens_per_s", NULL, 3}, {"peak_bytes", &GIB, 3}}},
    {"bench_memory", NULL, {{"peak_bytes", &GIB, 3}, {"activation_bytes", &GIB, 3}, {"err_pct", NULL, 3}}},
    {"bench_recompute", NULL, {{"step_ms", NULL, 3}, {"extra_pct", NULL, 3}, {"peak_bytes", &GIB, 3}}},
    {"bench_fsdp",
     NULL,
     {{"step_ms", NULL, 3}, {"exposed_ms", NULL, 3}, {"tokens_per_s", NULL, 3}, {"peak_bytes", &GIB, 3}}},
    {"bench_allreduce", NULL, {{"algbw_gb_s", NULL, 3}, {"busbw_gb_s", NULL, 3}}},
    {"bench_ddp_naive", NULL, {{"step_ms", NULL, 4}, {"exposed_ms", NULL, 4}, {"tokens_per_s", NULL, 3}}},
    {"bench_ddp_flat", NULL, {{"step_ms", NULL, 4}, {"exposed_ms", NULL, 4}, {"tokens_per_s", NULL, 3}}},
    {"bench_ddp_overlap", NULL, {{"step_ms", NULL, 4}, {"exposed_ms", NULL, 4}, {"tokens_per_s", NULL, 3}}},
    {"bench_ddp_bucketed", NULL, {{"step_ms", NULL, 4}, {"exposed_ms", NULL, 4}, {"tokens_per_s", NULL, 3}}},
    {"bench_zero1", NULL, {{"step_ms", NULL, 4}, {"comm_alone_ms", NULL, 4}, {"tokens_per_s", NULL, 3}}},
    {"bench_qualify", NULL, {{"value", NULL, 3}, {"reference", NULL, 3}}},
};

static char *rounded(double x, int digits)
{
    const double size = fabs(x);
    if (digits == 4)
        return xasprintf("%.*f", size >= 999.95 ? 0 : size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3, x);
    if (size == 0)
        return xstrdup("0");
    if (size < 9.995e-4)
        return xasprintf("%.1e", x);
    return xasprintf("%.*f",
                     size >= 99.95      ? 0
                     : size >= 9.995    ? 1
                     : size >= 0.9995   ? 2
                     : size >= 0.09995  ? 3
                     : size >= 0.009995 ? 4
                                        : 5,
                     x);
}

static bool same(const csv *c, size_t a, size_t b, const char *column)
{
    const char *x = csv_cell(c, a, column), *y = csv_cell(c, b, column);
    return !x || strcmp(x, y) == 0;
}

/* Whether two rows belong to one case: alike in its variant and in all that stands between `reason` and the first column with a unit. */
static bool same_case(const csv *c, size_t a, size_t b)
{
    static const char *const names[] = {"variant", "device", "l2", "timer_asked"};
    static const char *const units[] = {"_ms", "_us", "_s", "_bytes", "_gib", "_gb_s", "_tflops", "_pct", "_mhz"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!same(c, a, b, names[i]))
            return false;
    for (size_t k = (size_t)csv_column(c, "reason") + 1; k < c->columns; k++) {
        const char *name = c->header[k];
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            if (strlen(name) > strlen(units[i]) && strcmp(name + strlen(name) - strlen(units[i]), units[i]) == 0)
                return true;
        if (!same(c, a, b, name))
            return false;
    }
    return true;
}

static bool is_newest(const csv *c, size_t row)
{
    for (size_t i = 0; i < c->rows; i++) {
        const int later = strcmp(csv_cell(c, i, "utc"), csv_cell(c, row, "utc"));
        if (i != row && (later > 0 || (later == 0 && i > row)) && same_case(c, i, row))
            return false;
    }
    return true;
}

/* Whether a row of a table in the page has all of these. */
static bool stands_in(const char *page, char *const *cells, size_t n)
{
    for (const char *at = page; (at = strstr(at, "<tr>")); at++) {
        const char *end = strstr(at, "</tr>");
        size_t found = 0;
        while (found < n && memmem(at, (size_t)(end - at), cells[found], strlen(cells[found])))
            found++;
        if (found == n)
            return true;
    }
    return false;
}

/* The study of warm-up shows times of a step alone. */
static bool is_cold(const csv *c, size_t row)
{
    const char *cold = csv_cell(c, row, "cold");
    return cold && strcmp(cold, "1") == 0;
}

static size_t check_table(const char *dir, const shown *t, const char *page, const char *device)
{
    OWNED char *path = xasprintf("%s/%s.csv", dir, t->bench);
    OWNED_CSV csv *c = csv_read(path);
    OWNED char *machine = results_machine(path);
    results_join(c, machine, (const char *const[]){"device", NULL});
    size_t checked = 0;
    for (size_t r = 0; c && r < c->rows; r++) {
        char *cells[5];
        size_t n = 0;
        const bool mine = csv_is(c, r, "status", "ok") && csv_is(c, r, "device", device) &&
                          (!t->variant || strcmp(csv_cell(c, r, "variant"), t->variant) == 0) && !is_cold(c, r) &&
                          is_newest(c, r);
        for (size_t k = 0; mine && k < 5 && t->cells[k].column; k++) {
            const double x = csv_real(c, r, t->cells[k].column);
            if (!isfinite(x))
                continue;
            const int digits = t->cells[k].digits;
            OWNED char *number = rounded(x / (t->cells[k].unit ? *t->cells[k].unit : 1), digits);
            cells[n++] = xasprintf(digits == 4 ? ">%s" : ">%s<", number);
        }
        if (n && !stands_in(page, cells, n))
            fail_msg("%s: no row of the page has %s and the %zu values beside it of row %zu", path, cells[0], n - 1,
                     r + 1);
        checked += n;
        while (n)
            free(cells[--n]);
    }
    return checked;
}

TEST_IN_FOLDER(pages_have_the_values)
{
    glob_t found;
    size_t checked = 0;
    assert_int_equal(glob("results/*/machine.csv", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        *strrchr(found.gl_pathv[i], '/') = '\0';
        OWNED char *copy = xasprintf("cp -r '%s' '%s/'", found.gl_pathv[i], (char *)*state);
        assert_int_equal(system(copy), 0);
        OWNED char *dir = xasprintf("%s%s", (char *)*state, strrchr(found.gl_pathv[i], '/')),
                   *path = folder_path(dir, "report.html");
        free(report_text(dir));
        OWNED char *page = file_text(path);
        for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
            checked += check_table(dir, &tables[t], page, "cuda");
    }
    globfree(&found);
    assert_true(checked > 1000);
}
