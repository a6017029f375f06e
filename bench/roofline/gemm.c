/* SPDX-License-Identifier: MIT */
/* Matrix products: checked against fp64, then timed; see roofline.h. */
#include "bench/roofline/roofline.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/check.h"
#include "common/core/error.h"
#include "common/formulas/attention.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"

typedef struct roofline_precision {
    const char *name;
    sb_dtype dtype;
    double rel_l2; /* a few units of the output's and the products' rounding */
} precision;

static const precision *precision_of(const char *dtype)
{
    static const precision table[] = {
        {"bf16", SB_BF16, 4e-3}, {"fp16", SB_FP16, 1e-3}, {"tf32", SB_TF32, 2e-3}, {"fp32", SB_FP32, 2e-5}, {0}};
    const precision *p = table;
    while (p->name && strcmp(p->name, dtype) != 0)
        p++;
    return p;
}

bool roofline_gemm_run(void *gemm)
{
    roofline_gemm *g = gemm;
    return roofline_ok(g->r, g->r->kernels->gemm(g->r->ctx, g->p->dtype, g->n, g->n, g->n, g->a, g->b, g->c,
                                                 device_stream(g->r->s->dev)));
}

/* Row i of a matrix as doubles. */
static void row_download(const roofline_gemm *g, const void *matrix, int i, double *out)
{
    size_t bytes = (size_t)g->n * (size_t)sb_dtype_bytes(g->p->dtype);
    void *raw = xmalloc(bytes);
    device_download(g->r->s->dev, raw, (const char *)matrix + (size_t)i * bytes, bytes);
    for (int j = 0; j < g->n; j++)
        out[j] = g->p->dtype == SB_BF16   ? bf16_to_float(((uint16_t *)raw)[j])
                 : g->p->dtype == SB_FP16 ? fp16_to_float(((uint16_t *)raw)[j])
                                          : ((float *)raw)[j];
    free(raw);
}

/* Compares C where 16 rows of A meet 16 rows of B: the ends, and places drawn at random. */
static bool gemm_verify(roofline_gemm *g, row *w, uint64_t seed)
{
    enum { LINES = 16 };
    size_t n = (size_t)g->n;
    double want[LINES * LINES], got[LINES * LINES];
    double *a = xcalloc(LINES * n, sizeof *a), *b = xcalloc(LINES * n, sizeof *b), *c = xcalloc(n, sizeof *c);
    int at[2][LINES];
    for (int i = 0; i < LINES; i++)
        for (int side = 0; side < 2; side++)
            at[side][i] = i == 0   ? 0
                          : i == 1 ? g->n - 1
                                   : (int)(rng_uniform(seed, 2 + (uint32_t)side, (uint64_t)i) * g->n);
    for (size_t i = 0; i < LINES; i++) {
        row_download(g, g->a, at[0][i], a + i * n);
        row_download(g, g->b, at[1][i], b + i * n);
    }
    for (size_t i = 0; i < LINES; i++) {
        row_download(g, g->c, at[0][i], c);
        for (size_t j = 0; j < LINES; j++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++)
                sum += a[i * n + k] * b[j * n + k];
            want[i * LINES + j] = sum;
            got[i * LINES + j] = c[at[1][j]];
        }
    }
    free(a);
    free(b);
    free(c);

    check_bound bound = {.rel_l2 = g->p->rel_l2, .rel_row = 4 * g->p->rel_l2, .max_abs = 8 * g->p->rel_l2};
    check_result result = check_compare(want, got, LINES * LINES, LINES, bound);
    if (row_has(w, "err_rel"))
        row_real(w, "err_rel", result.rel_l2);
    if (!result.ok) {
        char text[256];
        check_describe(&result, bound, text, sizeof text);
        row_status_set(w, ROW_FAIL, "wrong product at (%d, %d): %s", at[0][result.worst / LINES],
                       at[1][result.worst % LINES], text);
    }
    return result.ok;
}

bool roofline_gemm_make(roofline *r, const char *dtype, int n, uint64_t seed, roofline_gemm *g)
{
    session *s = r->s;
    *g = (roofline_gemm){.r = r, .p = precision_of(dtype), .n = n};
    size_t elements = (size_t)n * (size_t)n, bytes = elements * (size_t)sb_dtype_bytes(g->p->dtype);
    void *stream = device_stream(s->dev);
    if (!(g->a = memory_alloc(s->mem, bytes, "a")) || !(g->b = memory_alloc(s->mem, bytes, "b")) ||
        !(g->c = memory_alloc(s->mem, bytes, "c")))
        return false;
    if (!roofline_ok(r, r->kernels->fill_normal(r->ctx, g->p->dtype, g->a, elements, seed, 0, 1, stream)) ||
        !roofline_ok(r, r->kernels->fill_normal(r->ctx, g->p->dtype, g->b, elements, seed, 1, 1, stream)))
        return false;
    device_memset(s->dev, g->c, 0xff, bytes); /* NaN in every dtype: what is not written can't pass */
    return !option_flag(s->opt, "check") || (roofline_gemm_run(g) && gemm_verify(g, r->w, seed));
}

bool roofline_gemm_time(roofline *r, const char *dtype, int n, uint64_t seed, double *ms)
{
    roofline_gemm g;
    const measure_how how = measure_default(r->s);
    return roofline_gemm_make(r, dtype, n, seed, &g) &&
           roofline_time(r, &how, roofline_gemm_run, &g, (roofline_amount){.flops = gemm_flops(n, n, n)}, ms);
}

double roofline_gemm_bytes(const char *dtype, int n)
{
    return 3 * (double)n * n * sb_dtype_bytes(precision_of(dtype)->dtype);
}
