/* SPDX-License-Identifier: MIT */
/* Looks up measured ceilings; see ceiling.h. */
#include "common/session/ceiling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/results.h"
#include "common/core/text.h"
#include "common/device/visible.h"

csv *rows_read(const char *path)
{
    csv *c = csv_read(path);
    OWNED char *machine = results_machine(path);
    results_join(c, machine, (const char *const[]){"campaign", "device", VISIBLE_APART, NULL});
    return c;
}

csv *rows_of_bench(const char *results_dir, const char *bench)
{
    OWNED char *path = xasprintf("%s/%s.csv", results_dir, bench);
    return rows_read(path);
}

bool same_run(const session *s, const csv *c, size_t row)
{
    return csv_is(c, row, "campaign", rows_campaign(s->rows)) && csv_is(c, row, "gpu_uuid", rows_gpu_uuid(s->rows)) &&
           csv_is(c, row, "device", option_text(s->opt, "device"));
}

bool same_peers(const csv *c, size_t row)
{
    return !(csv_real(c, row, "ranks") > 1) ||
           visible_apart(csv_cell(c, row, VISIBLE_APART)) == visible_apart(getenv(VISIBLE_APART));
}

static bool has_value(const csv *t, size_t r, const char *name, const char *value, const char *const (*others)[2])
{
    for (; (*others)[0]; others++)
        if (text_is(name, (*others)[0]))
            return !(*others)[1] || csv_is(t, r, name, (*others)[1]);
    return csv_is(t, r, name, value);
}

csv *row_beside(const session *s, const bench_case *c, const char *variant, const char *const (*others)[2], size_t *row)
{
    csv *t = s->csv_path ? rows_read(s->csv_path) : NULL;
    for (size_t r = t ? t->rows : 0; r-- > 0;) {
        bool is = csv_is(t, r, "status", "ok") && csv_is(t, r, "variant", variant) && same_run(s, t, r);
        for (size_t i = 0; is && i < options_param_count(s->opt); i++)
            is = has_value(t, r, options_param_name(s->opt, i), case_cell(c, i), others);
        *row = r;
        if (is)
            return t;
    }
    csv_free(t);
    return NULL;
}

/* A row that went well, and that counts for the session. */
static bool counts(const session *s, const csv *c, size_t row)
{
    return csv_is(c, row, "status", "ok") && (!s || same_run(s, c, row));
}

/* 16-bit products that make one of fp32; 1 where there are none. */
static int products_of(const char *dtype)
{
    return strcmp(dtype, "fp16x3") == 0 || strcmp(dtype, "bf16x3") == 0 ? 3 : strcmp(dtype, "bf16x6") == 0 ? 6 : 1;
}

double ceiling_tflops(const session *s, const char *results_dir, const char *dtype)
{
    const int products = products_of(dtype);
    if (products > 1)
        return ceiling_tflops(s, results_dir, "bf16") / products;
    OWNED_CSV csv *c = rows_of_bench(results_dir, "bench_roofline");
    double most = NAN;
    for (size_t i = 0; c && i < c->rows; i++)
        if (counts(s, c, i) && strncmp(csv_cell(c, i, "variant"), "gemm", 4) == 0 && csv_is(c, i, "dtype", dtype))
            most = fmax(most, fmax(csv_real(c, i, "tflops"), csv_real(c, i, "burst_tflops"))); /* fmax ignores NAN */
    return most;
}

double ceiling_copy_gb_s(const session *s, const char *results_dir)
{
    OWNED_CSV csv *c = rows_of_bench(results_dir, "bench_roofline");
    double most = NAN, most_bytes = 0;
    for (size_t i = 0; c && i < c->rows; i++) {
        double bytes = csv_real(c, i, "bytes"), gb_s = csv_real(c, i, "gb_s");
        if (!counts(s, c, i) || isnan(gb_s) || !(bytes >= most_bytes) ||
            !(csv_is(c, i, "variant", "copy") || csv_is(c, i, "variant", "copy_kernel")))
            continue;
        most = bytes > most_bytes ? gb_s : fmax(most, gb_s);
        most_bytes = bytes;
    }
    return most;
}
