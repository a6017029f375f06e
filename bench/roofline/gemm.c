/* SPDX-License-Identifier: MIT */
/* Matrix products: checked against fp64, then timed; see roofline.h. */
#include "bench/roofline/roofline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    void *stream = device_stream(g->r->s->dev);
    if (g->tuned.m)
        return roofline_ok(g->r, g->r->kernels->train->matmul(g->r->ctx, &g->tuned, stream));
    return roofline_ok(g->r, g->r->kernels->gemm(g->r->ctx, g->p->dtype, g->shape.m, g->shape.n, g->shape.k, g->a, g->b,
                                                 g->c, stream));
}

/* Row i of a matrix with rows of `width` as doubles. */
static void row_download(const roofline_gemm *g, const void *matrix, int i, int width, double *out)
{
    size_t bytes = (size_t)width * (size_t)sb_dtype_bytes(g->p->dtype);
    OWNED void *raw = xmalloc(bytes);
    device_download(g->r->s->dev, raw, (const char *)matrix + (size_t)i * bytes, bytes);
    for (int j = 0; j < width; j++)
        out[j] = g->p->dtype == SB_BF16   ? bf16_to_float(((uint16_t *)raw)[j])
                 : g->p->dtype == SB_FP16 ? fp16_to_float(((uint16_t *)raw)[j])
                                          : ((float *)raw)[j];
}

/* Compares C where 16 rows of A meet 16 rows of B: the ends, and places drawn at random. */
static bool gemm_verify(roofline_gemm *g, row *w, uint64_t seed)
{
    enum { LINES = 16 };
    const size_t depth = (size_t)g->shape.k;
    double want[LINES * LINES], got[LINES * LINES];
    OWNED double *a = xcalloc(LINES * depth, sizeof *a), *b = xcalloc(LINES * depth, sizeof *b);
    OWNED double *c = xcalloc((size_t)g->shape.n, sizeof *c);
    int at[2][LINES];
    for (int i = 0; i < LINES; i++)
        for (int side = 0; side < 2; side++)
            at[side][i] =
                i == 0   ? 0
                : i == 1 ? (side ? g->shape.n : g->shape.m) - 1
                         : (int)(rng_uniform(seed, 2 + (uint32_t)side, (uint64_t)i) * (side ? g->shape.n : g->shape.m));
    for (size_t i = 0; i < LINES; i++) {
        row_download(g, g->a, at[0][i], g->shape.k, a + i * depth);
        row_download(g, g->b, at[1][i], g->shape.k, b + i * depth);
    }
    for (size_t i = 0; i < LINES; i++) {
        row_download(g, g->c, at[0][i], g->shape.n, c);
        for (size_t j = 0; j < LINES; j++) {
            double sum = 0;
            for (size_t k = 0; k < depth; k++)
                sum += a[i * depth + k] * b[j * depth + k];
            want[i * LINES + j] = sum;
            got[i * LINES + j] = c[at[1][j]];
        }
    }

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

static size_t elements(int rows, int columns)
{
    return (size_t)rows * (size_t)columns;
}

static bool fill(roofline *r, const char *dtype, roofline_shape shape, uint64_t seed, roofline_gemm *g)
{
    session *s = r->s;
    *g = (roofline_gemm){.r = r, .p = precision_of(dtype), .shape = shape};
    const size_t each = (size_t)sb_dtype_bytes(g->p->dtype), c_bytes = elements(shape.m, shape.n) * each;
    void *stream = device_stream(s->dev);
    if (!(g->a = memory_alloc(s->mem, elements(shape.m, shape.k) * each, "a")) ||
        !(g->b = memory_alloc(s->mem, elements(shape.n, shape.k) * each, "b")) ||
        !(g->c = memory_alloc(s->mem, c_bytes, "c")))
        return false;
    if (!roofline_ok(
            r, r->kernels->fill_normal(r->ctx, g->p->dtype, g->a, elements(shape.m, shape.k), seed, 0, 1, stream)) ||
        !roofline_ok(
            r, r->kernels->fill_normal(r->ctx, g->p->dtype, g->b, elements(shape.n, shape.k), seed, 1, 1, stream)))
        return false;
    device_memset(s->dev, g->c, 0xff, c_bytes); /* NaN in every dtype: what is not written can't pass */
    return true;
}

static bool verified(roofline_gemm *g, uint64_t seed)
{
    return !option_flag(g->r->s->opt, "check") || (roofline_gemm_run(g) && gemm_verify(g, g->r->w, seed));
}

bool roofline_gemm_make(roofline *r, const char *dtype, int n, uint64_t seed, roofline_gemm *g)
{
    return fill(r, dtype, (roofline_shape){n, n, n}, seed, g) && verified(g, seed);
}

bool roofline_gemm_time(roofline *r, const char *dtype, int n, uint64_t seed, double *ms)
{
    roofline_gemm g;
    const measure_how how = measure_default(r->s);
    return roofline_gemm_make(r, dtype, n, seed, &g) &&
           roofline_time(r, &how, roofline_gemm_run, &g, (roofline_amount){.flops = gemm_flops(n, n, n)}, ms);
}

/* ---- the fastest algorithm ---- */

enum { BURST_CALLS = 20, REST_MS = 500 };

/* d is overwritten with finite numbers by tuning; afterwards an element that is not written must show again. */
static bool tune(roofline_gemm *g)
{
    roofline *r = g->r;
    const sb_train_ops *train = r->kernels->train;
    const roofline_shape s = g->shape;
    sb_matmul p = {.dtype = g->p->dtype,
                   .dtype_out = g->p->dtype == SB_TF32 ? SB_FP32 : g->p->dtype,
                   .transpose_b = true,
                   .m = s.m,
                   .n = s.n,
                   .k = s.k,
                   .lda = s.k,
                   .ldb = s.k,
                   .ldd = s.n,
                   .a = g->a,
                   .b = g->b,
                   .d = g->c};
    sb_matmul_choice chosen = {0};
    p.workspace_bytes = train->matmul_workspace(r->ctx, &p);
    if (p.workspace_bytes && !(p.workspace = memory_alloc(r->s->mem, p.workspace_bytes, "workspace")))
        return false;
    if (!roofline_ok(r, train->matmul_tune(r->ctx, &p, &chosen, NULL, 0, device_stream(r->s->dev))))
        return false;
    row_text(r->w, "algorithm", chosen.name);
    device_memset(r->s->dev, g->c, 0xff, elements(s.m, s.n) * (size_t)sb_dtype_bytes(g->p->dtype));
    g->tuned = p;
    return true;
}

/* The first calls of a GPU that has rested: its clock is high until the power limit bites. */
static bool burst(roofline_gemm *g, double flops)
{
    session *s = g->r->s;
    measure_how how = measure_default(s);
    double ms;
    how.timing.settle_s = 0;
    how.timing.iters = how.timing.iters < BURST_CALLS ? how.timing.iters : BURST_CALLS;
    device_sync(s->dev);
    if (device_kind_of(s->dev) == DEVICE_CUDA)
        usleep(REST_MS * 1000);
    if (!measure_with(s, NULL, "burst", &how, roofline_gemm_run, g, &ms))
        return false;
    row_real(g->r->w, "burst_tflops", flops / (ms * 1e9));
    return true;
}

bool roofline_gemm_best_time(roofline *r, const char *dtype, roofline_shape shape, uint64_t seed, double *ms)
{
    roofline_gemm g;
    const measure_how how = measure_default(r->s);
    const double flops = gemm_flops(shape.m, shape.n, shape.k);
    return fill(r, dtype, shape, seed, &g) && tune(&g) && verified(&g, seed) && burst(&g, flops) &&
           roofline_time(r, &how, roofline_gemm_run, &g, (roofline_amount){.flops = flops}, ms);
}

bool roofline_shape_parse(const char *text, roofline_shape *out)
{
    int length = 0;
    return sscanf(text, "%5dx%5dx%5d%n", &out->m, &out->n, &out->k, &length) == 3 && !text[length] && out->m > 0 &&
           out->n > 0 && out->k > 0 && out->m % 16 == 0 && out->n % 16 == 0 && out->k % 16 == 0;
}

double roofline_gemm_bytes(const char *dtype, roofline_shape s)
{
    return (double)(elements(s.m, s.k) + elements(s.n, s.k) + elements(s.m, s.n)) *
           sb_dtype_bytes(precision_of(dtype)->dtype);
}
