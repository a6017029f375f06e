/* SPDX-License-Identifier: MIT */
/* Does float8 pay? One product D = A B^T in one kind of float8 or in bf16: what it loses, and what it gains. A is cast in its
 * own order and transposed, as a training step needs activations; then the product is timed on the codes. */
#include "bench/mixed/float8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/model/beside.h"
#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/core/text.h"
#include "common/formulas/model.h"
#include "common/session/measure.h"

enum { SIZE_UNIT = 16, SIZE_MOST = 1 << 20 };

bool mixed_shape_parse(const char *text, int *m, int *n, int *k)
{
    int sizes[3], end = 0;
    if (sscanf(text, "%dx%dx%d%n", &sizes[0], &sizes[1], &sizes[2], &end) != 3 || text[end])
        return false;
    for (int i = 0; i < 3; i++)
        if (sizes[i] < SIZE_UNIT || sizes[i] > SIZE_MOST || sizes[i] % SIZE_UNIT != 0)
            return false;
    *m = sizes[0], *n = sizes[1], *k = sizes[2];
    return true;
}

/* ---- what is timed ---- */

static void *stream_of(const float8_case *f)
{
    return device_stream(f->m->s->dev);
}

static bool amax(float8_case *f, float8_side *s)
{
    const sb_amax p = {.dtype = SB_BF16,
                       .rows = s->rows,
                       .columns = s->k,
                       .ld = s->k,
                       .x = s->x,
                       .of_all = s->of_all,
                       .of_rows = s->of_rows,
                       .of_columns = s->of_columns};
    return mixed_ok(f->m, f->m->kernels->train->amax(f->m->ctx, &p, stream_of(f)));
}

static bool cast(float8_case *f, float8_side *s)
{
    const sb_quantize p = {.dtype = SB_BF16,
                           .format = s->as.format,
                           .scaling = s->as.scaling,
                           .rows = s->rows,
                           .columns = s->k,
                           .ld = s->k,
                           .x = s->x,
                           .amax = s->as.scaling == SB_SCALE_TENSOR ? s->of_all : s->of_rows,
                           .amax_t = s->of_columns,
                           .y = s->codes,
                           .ld_y = s->k,
                           .scales = s->scales,
                           .y_t = s->codes_t,
                           .ld_t = s->rows,
                           .scales_t = s->scales_t,
                           .counts = s->counts};
    return mixed_ok(f->m, f->m->kernels->train->quantize(f->m->ctx, &p, stream_of(f)));
}

static sb_matmul call_of(const float8_case *f)
{
    sb_matmul p = {.dtype = SB_BF16,
                   .dtype_out = SB_BF16,
                   .transpose_b = true,
                   .m = f->rows,
                   .n = f->columns,
                   .k = f->k,
                   .lda = f->k,
                   .ldb = f->k,
                   .ldd = f->columns,
                   .a = f->a.x,
                   .b = f->b.x,
                   .d = f->d,
                   .workspace = f->workspace,
                   .workspace_bytes = f->workspace_bytes};
    if (f->product) {
        p.dtype = f->a.as.format, p.dtype_b = f->b.as.format;
        p.a = f->a.codes, p.b = f->b.codes;
        p.scaling_a = f->a.as.scaling, p.scaling_b = f->b.as.scaling;
        p.scale_a = f->a.scales, p.scale_b = f->b.scales;
        p.sums = f->product->sums;
    }
    return p;
}

static bool amax_once(void *arg)
{
    return amax(arg, &((float8_case *)arg)->a);
}

static bool cast_once(void *arg)
{
    return cast(arg, &((float8_case *)arg)->a);
}

/* As many bytes as the cast moves, into a D that has room for them. */
static bool copy_once(void *arg)
{
    float8_case *f = arg;
    const size_t bytes = 2 * (size_t)f->rows * (size_t)f->k;
    return mixed_ok(f->m, f->m->kernels->copy(f->m->ctx, f->d, f->a.x, bytes, stream_of(f)));
}

static bool product_once(void *arg)
{
    float8_case *f = arg;
    return mixed_ok(f->m, f->m->kernels->train->matmul(f->m->ctx, &f->call, stream_of(f)));
}

/* ---- memory ---- */

static bool needs_words(const float8_side *s)
{
    return s->as.scaling == SB_SCALE_TENSOR || s->as.scaling == SB_SCALE_ROW;
}

static bool make_side(float8_case *f, float8_side *s, int rows, const float8_operand *as, bool transposed)
{
    memory *mem = f->m->s->mem;
    const size_t n = (size_t)rows * (size_t)f->k;
    s->rows = rows, s->k = f->k;
    if (!(s->x = memory_alloc(mem, 2 * n, "operands")) || !as)
        return s->x != NULL;
    s->as = *as;
    const size_t scales = sb_scale_count(as->scaling, rows, f->k) * sizeof(float);
    s->codes = memory_alloc(mem, n, "codes");
    s->scales = memory_alloc(mem, scales, "scales");
    s->counts = memory_alloc(mem, 2 * sizeof(uint32_t), "counts");
    bool there = s->codes && s->scales && s->counts;
    if (transposed) {
        s->codes_t = memory_alloc(mem, n, "codes");
        s->scales_t = memory_alloc(mem, sb_scale_count(as->scaling, f->k, rows) * sizeof(float), "scales");
        there = there && s->codes_t && s->scales_t;
    }
    if (as->scaling == SB_SCALE_TENSOR)
        there = (s->of_all = memory_alloc(mem, sizeof(uint32_t), "amax")) != NULL && there;
    if (as->scaling == SB_SCALE_ROW) {
        s->of_rows = memory_alloc(mem, (size_t)rows * sizeof(uint32_t), "amax");
        s->of_columns = memory_alloc(mem, (size_t)f->k * sizeof(uint32_t), "amax");
        there = there && s->of_rows && s->of_columns;
    }
    return there;
}

static bool allocate(float8_case *f)
{
    const float8_product *p = f->product;
    if (!make_side(f, &f->a, f->rows, p ? &p->a : NULL, true) ||
        !make_side(f, &f->b, f->columns, p ? &p->b : NULL, false) ||
        !(f->d = memory_alloc(f->m->s->mem, 2 * (size_t)f->rows * (size_t)f->columns, "d")))
        return false;
    const sb_matmul product = call_of(f);
    f->workspace_bytes = f->m->kernels->train->matmul_workspace(f->m->ctx, &product);
    return f->workspace_bytes == 0 ||
           (f->workspace = memory_alloc(f->m->s->mem, f->workspace_bytes, "workspace")) != NULL;
}

/* ---- values ---- */

static const mixed_tensor none = {0};

static bool normal(float8_case *f, float8_side *s, uint32_t stream)
{
    const uint64_t seed = rng_hash((uint64_t)option_int(f->m->s->opt, "seed"), case_text(f->m->c, "shape"));
    return mixed_ok(f->m, f->m->kernels->fill_normal(f->m->ctx, SB_BF16, s->x, (size_t)s->rows * (size_t)s->k, seed,
                                                     stream, 1, stream_of(f)));
}

/* x times a vector: a number for each row, or for each column. */
static bool times(float8_case *f, float8_side *s, const float *host, bool of_rows)
{
    const mixed_tensor x = {s->x, SB_BF16}, v = mixed_new(f->m, SB_FP32, (size_t)(of_rows ? s->rows : s->k), "values");
    if (!v.p)
        return false;
    mixed_upload(f->m, v, host, (size_t)(of_rows ? s->rows : s->k));
    const bool ok =
        mixed_point(f->m, SB_POINT_MUL, s->rows, s->k, x, v, of_rows ? SB_SPREAD_ROW : SB_SPREAD_COLUMN, 0, x);
    device_sync(f->m->s->dev);
    memory_release(f->m->s->mem, v.p);
    return ok;
}

/* Rows of A spread over 2^16. */
static bool spread_rows(float8_case *f)
{
    const size_t n = (size_t)f->rows;
    OWNED float *v = xmalloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = ldexpf(1, (int)(i * 5 % 17) - 8);
    return times(f, &f->a, v, true);
}

/* One feature of A is 2^14 times the others. It is 0 in B, so that the error is that of the others. */
static bool outlier(float8_case *f)
{
    const size_t n = (size_t)f->k;
    OWNED float *a = xmalloc(n * sizeof *a), *b = xmalloc(n * sizeof *b);
    for (size_t i = 0; i < n; i++)
        a[i] = i == n / 3 ? 0x1p14f : 1, b[i] = i != n / 3;
    return times(f, &f->a, a, false) && times(f, &f->b, b, false);
}

/* N(0,1) exp(2 N(0,1)): most are small, a few are huge. */
static bool heavy(float8_case *f)
{
    float8_side other = f->a;
    const size_t n = (size_t)other.rows * (size_t)other.k;
    if (!(other.x = memory_alloc(f->m->s->mem, 2 * n, "values")))
        return false;
    const mixed_tensor x = {f->a.x, SB_BF16}, y = {other.x, SB_BF16};
    const bool ok = normal(f, &other, 2) &&
                    mixed_point(f->m, SB_POINT_SCALE, other.rows, other.k, y, none, SB_SPREAD_FULL, 2, y) &&
                    mixed_point(f->m, SB_POINT_EXP, other.rows, other.k, y, none, SB_SPREAD_FULL, 0, y) &&
                    mixed_point(f->m, SB_POINT_MUL, other.rows, other.k, x, y, SB_SPREAD_FULL, 0, x);
    device_sync(f->m->s->dev);
    memory_release(f->m->s->mem, other.x);
    return ok;
}

/* |x|, as the root of the square. */
static bool positive(float8_case *f, float8_side *s)
{
    const mixed_tensor x = {s->x, SB_BF16};
    return mixed_point(f->m, SB_POINT_MUL, s->rows, s->k, x, x, SB_SPREAD_FULL, 0, x) &&
           mixed_point(f->m, SB_POINT_SQRT, s->rows, s->k, x, none, SB_SPREAD_FULL, 0, x);
}

static bool fill(float8_case *f)
{
    if (!normal(f, &f->a, 0) || !normal(f, &f->b, 1))
        return false;
    if (text_is(f->values, "outlier"))
        return outlier(f);
    if (text_is(f->values, "rows"))
        return spread_rows(f);
    if (text_is(f->values, "heavy"))
        return heavy(f);
    return text_is(f->values, "normal") || (positive(f, &f->a) && positive(f, &f->b));
}

/* Both operands as codes; B's counts are not kept. */
static bool cast_both(float8_case *f)
{
    for (int i = 0; f->product && i < 2; i++) {
        float8_side *s = i ? &f->b : &f->a;
        device_memset(f->m->s->dev, s->counts, 0, 2 * sizeof *s->counts);
        if ((needs_words(s) && !amax(f, s)) || !cast(f, s))
            return false;
        if (i == 0) {
            uint32_t counts[2];
            device_download(f->m->s->dev, counts, s->counts, sizeof counts);
            row_int(f->m->w, "saturated", counts[0]);
            row_real(f->m->w, "underflow_pct", 100.0 * counts[1] / ((double)s->rows * s->k));
        }
        s->counts = NULL; /* a training step does not count */
    }
    return true;
}

/* ---- time ---- */

static bool time_all(float8_case *f)
{
    mixed *m = f->m;
    double amax_ms = 0, cast_ms = 0, copy_ms, product;
    if (f->product && needs_words(&f->a) && !measure(m->s, m->w, "amax", amax_once, f, &amax_ms))
        return false;
    if (f->product) {
        const bool room = f->k <= f->columns;
        if (!measure(m->s, m->w, "cast", cast_once, f, &cast_ms) ||
            (room && !measure(m->s, m->w, "copy", copy_once, f, &copy_ms)))
            return false;
        row_real(m->w, "cast_gb_s", 4.0 * f->rows * f->k / (cast_ms * 1e6));
        if (room)
            row_real(m->w, "cast_copy_pct", 100 * copy_ms / cast_ms);
    }
    if (!measure(m->s, m->w, "product", product_once, f, &product))
        return false;
    const double flops = 2.0 * f->rows * f->columns * f->k;
    const double peak = peak_tflops(device_get_info(m->s->dev)->name, f->product ? "fp8" : "bf16");
    row_real(m->w, "product_tflops", flops / (product * 1e9));
    row_real(m->w, "product_peak_pct", 100 * flops / (product * 1e9) / peak);
    const double of_16 = of_bf16(m->s, m->c, "product_ms", product), gain = f->product ? 1 / of_16 : 1;
    row_real(m->w, "speedup_bf16", gain);
    row_real(m->w, "speedup_with_cast", gain * product / (product + cast_ms + amax_ms));
    return true;
}

/* Chooses the algorithm, which is then checked and timed. */
static bool tune(float8_case *f)
{
    sb_matmul_choice chosen;
    f->call = call_of(f);
    if (!mixed_ok(f->m, f->m->kernels->train->matmul_tune(f->m->ctx, &f->call, &chosen, NULL, 0, stream_of(f))))
        return false;
    row_text(f->m->w, "algorithm", chosen.name);
    return true;
}

void mixed_run_float8(mixed *m)
{
    float8_case f = {
        .m = m, .product = float8_product_find(case_text(m->c, "product")), .values = case_text(m->c, "values")};
    if (!mixed_shape_parse(case_text(m->c, "shape"), &f.rows, &f.columns, &f.k))
        die(EXIT_CODE_FAILURE, "bug: --shape %s was not refused", case_text(m->c, "shape"));
    if (f.product && !mixed_ok(m, m->kernels->train->float8_supported(m->ctx, float8_rarest(f.product))))
        return;
    if (!allocate(&f) || !fill(&f) || !cast_both(&f) || !tune(&f))
        return;
    device_memset(m->s->dev, f.d, 0xff, 2 * (size_t)f.rows * (size_t)f.columns);
    if (!product_once(&f) || (option_flag(m->s->opt, "check") && !float8_check(&f)))
        return;
    time_all(&f);
}

void mixed_float8_gate(session *s, const sb_kernels *kernels, sb_context *ctx)
{
    const options *o = s->opt;
    if (!option_given(o, "product") || options_variant_count(o) != 1 || !text_is(options_variant(o, 0), "float8"))
        return;
    for (size_t i = 0; i < option_count(o, "product"); i++) {
        const float8_product *p = float8_product_find(option_text_at(o, "product", i));
        if (!p || kernels->train->float8_supported(ctx, float8_rarest(p)) == SB_OK)
            return;
    }
    die(EXIT_CODE_USAGE, "--product %s: %s", option_text_at(o, "product", 0), sb_last_message());
}

double mixed_float8_estimate(const bench_case *c)
{
    int m, n, k;
    if (!mixed_shape_parse(case_text(c, "shape"), &m, &n, &k))
        return 0;
    return 5.0 * m * k + 3.0 * n * k + 2.0 * m * n;
}
