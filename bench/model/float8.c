/* SPDX-License-Identifier: MIT */
/* Casts and products of a step, each looked at when it has run; see float8.h. Of large matrices some rows and columns are compared,
 * the first and the last among them. */
#include "bench/model/float8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/context.h"
#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/model/dtypes.h"
#include "common/model/float8.h"

enum { STEPS = 2, CAST_ROWS = 32, ROWS = 16, COLUMNS = 64, BLOCK = 128, MX_BLOCK = 32, SOURCES_MAX = 512 };
/* Relative L2. bf16 rounds by 1.7e-3, but one number by 3.9e-3 at most, and of gradients a few may be most of the norm. Exact sums
 * lose little beside that; fast ones of a library that splits k are as far from their model as that is from double. */
static const double rounding = 3e-3;
static const double update_lr = 0.1;

/* A copy that a cast has made: where it lies, and what was there then. */
typedef struct made {
    const void *codes, *scales, *x; /* on the device; x: of what */
    int rows, columns;
    sb_dtype format;
    sb_scaling scaling;
    const uint32_t *raised; /* the word of a history */
    size_t x_bytes;
    uint64_t x_hash; /* of all of the source */
    uint8_t *host;
    float *host_scales;
} made;

/* Ops have no user data, so the watch belongs to this file. */
static struct {
    session *s;
    const sb_train_ops *ops;
    trainer *t;
    float8_fault fault;
    int step, products;
    made made[SOURCES_MAX];
    int count;
    struct {
        const uint32_t *word;
        double most[STEPS];
    } seen[SOURCES_MAX];
    int words_seen;
    float *ones; /* of FLOAT8_UNSCALED */
    char *why;
    size_t why_bytes;
} watch;

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    if (watch.why[0]) /* the first one says most */
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(watch.why, watch.why_bytes, format, args);
    va_end(args);
}

static void *download(const void *from, size_t bytes)
{
    void *to = xmalloc(bytes ? bytes : 1);
    device_download(watch.s->dev, to, from, bytes);
    return to;
}

static uint64_t hash_of(const void *data, size_t bytes)
{
    uint64_t h = 1469598103934665603u, word;
    const unsigned char *at = data;
    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(&word, at, sizeof word);
        h = (h ^ word) * 1099511628211u;
    }
    while (bytes--)
        h = (h ^ *at++) * 1099511628211u;
    return h;
}

/* The i-th of `some` that are spread over `all`. */
static int spread(int i, int some, int all)
{
    return some >= all ? i : (int)((int64_t)i * (all - 1) / (some - 1));
}

static int at_most(int most, int n)
{
    return n < most ? n : most;
}

/* ---- a rounding of the check's own ---- */

static double largest_of(sb_dtype format)
{
    return format == SB_E4M3 ? 448 : 57344;
}

static double value_of(sb_dtype format, uint8_t code)
{
    const int mantissa = format == SB_E4M3 ? 3 : 2, bias = format == SB_E4M3 ? 7 : 15;
    const int fraction = code & ((1 << mantissa) - 1), exponent = (code & 0x7f) >> mantissa;
    const double v =
        exponent ? ldexp(1 + ldexp(fraction, -mantissa), exponent - bias) : ldexp(ldexp(fraction, -mantissa), 1 - bias);
    return code & 0x80 ? -v : v;
}

/* The smallest power of two, for e5m2 of 16, with which this magnitude fits, but not below 2^-118. */
static double scale_for(double magnitude, sb_dtype format)
{
    if (magnitude == 0)
        return 1;
    double scale = ldexp(1, format == SB_E4M3 ? -118 : -116);
    while (largest_of(format) * scale < magnitude)
        scale *= format == SB_E4M3 ? 2 : 16;
    return scale;
}

static double rounded(double x, double scale, sb_dtype format)
{
    const int mantissa = format == SB_E4M3 ? 3 : 2, smallest = format == SB_E4M3 ? -6 : -14;
    const double v = x / scale;
    int exponent;
    frexp(v, &exponent);
    const double quantum = ldexp(1, (exponent - 1 > smallest ? exponent - 1 : smallest) - mantissa);
    const double r = nearbyint(v / quantum) * quantum;
    return r > largest_of(format) ? largest_of(format) : r < -largest_of(format) ? -largest_of(format) : r;
}

/* ---- casts ---- */

/* The source of a copy on the host, as the copy has its rows and columns. */
typedef struct view {
    const uint16_t *x;
    int rows, columns;
    size_t down, along; /* elements from one row, or column, of the copy to the next */
} view;

static double element(const view *v, int i, int j)
{
    return bf16_to_float(v->x[(size_t)i * v->down + (size_t)j * v->along]);
}

/* Rows [i, i + rows) and columns [j, j + columns), as far as there are any. */
static double largest_in(const view *v, int i, int rows, int j, int columns)
{
    double most = 0;
    for (int r = i; r < i + rows && r < v->rows; r++)
        for (int c = j; c < j + columns && c < v->columns; c++)
            most = fmax(most, fabs(element(v, r, c)));
    return most;
}

/* Bits without their sign grow with the magnitude. */
static double largest_of_all(const uint16_t *x, int rows, int columns, size_t ld)
{
    uint16_t most = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const uint16_t bits = x[(size_t)i * ld + (size_t)j] & 0x7fff;
            most = bits > most ? bits : most;
        }
    return bf16_to_float(most);
}

static double stored_scale(const made *m, int row, int column)
{
    return m->host_scales[sb_scale_place(m->scaling, m->rows, m->columns, row, column)];
}

/* Elements of a row from column j on that share a scale: what it must be. */
static double wanted_scale(const made *m, const view *v, int row, int column, double of_all)
{
    switch (m->scaling) {
    case SB_SCALE_ROW: return scale_for(largest_in(v, row, 1, 0, v->columns), m->format);
    case SB_SCALE_1X128: return scale_for(largest_in(v, row, 1, column, BLOCK), m->format);
    case SB_SCALE_128X128: return scale_for(largest_in(v, row / BLOCK * BLOCK, BLOCK, column, BLOCK), m->format);
    case SB_SCALE_1X32: return scale_for(largest_in(v, row, 1, column, MX_BLOCK), m->format);
    default: return of_all;
    }
}

/* Delayed scales, by the word that a call raises: the largest magnitude of the step before, and of this one. */
static double delayed_magnitude(const uint32_t *word, double now)
{
    int i = 0;
    while (i < watch.words_seen && watch.seen[i].word != word)
        i++;
    if (i == SOURCES_MAX)
        die(EXIT_CODE_FAILURE, "bug: a checked slice has more than %d words of a history", SOURCES_MAX);
    if (i == watch.words_seen)
        watch.seen[watch.words_seen++].word = word;
    watch.seen[i].most[watch.step] = fmax(watch.seen[i].most[watch.step], now);
    return watch.step ? watch.seen[i].most[watch.step - 1] : now;
}

static void check_copy(const made *m, const view *v, const char *which)
{
    const int rows = at_most(CAST_ROWS, m->rows);
    const bool squares = m->scaling == SB_SCALE_1X128 || m->scaling == SB_SCALE_128X128;
    const int group = squares ? BLOCK : m->scaling == SB_SCALE_1X32 ? MX_BLOCK : m->columns;
    double of_all = 0;
    if (m->scaling == SB_SCALE_TENSOR) {
        const double now = v->along == 1 ? largest_of_all(v->x, v->rows, v->columns, v->down)
                                         : largest_of_all(v->x, v->columns, v->rows, v->along);
        of_all = scale_for(m->raised ? delayed_magnitude(m->raised, now) : now, m->format);
    }
    int64_t differ = 0, compared = 0;
    for (int r = 0; r < rows; r++) {
        const int i = spread(r, rows, m->rows);
        for (int j = 0; j < m->columns; j += group) {
            const double want = wanted_scale(m, v, i, j, of_all), got = stored_scale(m, i, j);
            if (got != want) {
                wrong("the scale of row %d, column %d of the %s copy of a (%d, %d) matrix is %g, its largest magnitude "
                      "asks for %g",
                      i, j, which, v->rows, v->columns, got, want);
                return;
            }
            for (int c = j; c < m->columns && c < j + group; c++, compared++)
                differ += value_of(m->format, m->host[(size_t)i * (size_t)m->columns + (size_t)c]) !=
                          rounded(element(v, i, c), want, m->format);
        }
    }
    if (differ)
        wrong("%lld of %lld codes of the %s copy of a (%d, %d) matrix are not what it rounds to", (long long)differ,
              (long long)compared, which, v->rows, v->columns);
}

static made *made_at(const void *codes)
{
    for (int i = 0; i < watch.count; i++)
        if (watch.made[i].codes == codes)
            return &watch.made[i];
    return NULL;
}

static void remember(made m)
{
    made *old = made_at(m.codes);
    if (!old) {
        if (watch.count == SOURCES_MAX)
            die(EXIT_CODE_FAILURE, "bug: a checked slice casts to more than %d places", SOURCES_MAX);
        old = &watch.made[watch.count++];
    } else {
        free(old->host);
        free(old->host_scales);
    }
    *old = m;
}

static void look_at_copy(const sb_quantize *p, const uint16_t *x, size_t x_bytes, bool transposed)
{
    made m = {.codes = transposed ? p->y_t : p->y,
              .scales = transposed ? p->scales_t : p->scales,
              .x = p->x,
              .rows = transposed ? p->columns : p->rows,
              .columns = transposed ? p->rows : p->columns,
              .format = p->format,
              .scaling = transposed && p->scaling_t ? p->scaling_t : p->scaling,
              .raised = p->again && watch.step > 0 ? NULL : p->largest,
              .x_bytes = x_bytes,
              .x_hash = hash_of(x, x_bytes)};
    const size_t ld = (size_t)p->ld;
    const view v = {x, m.rows, m.columns, transposed ? 1 : ld, transposed ? ld : 1};
    m.host = download(m.codes, (size_t)m.rows * (size_t)m.columns);
    m.host_scales = download(m.scales, sb_scale_count(m.scaling, m.rows, m.columns) * sizeof(float));
    check_copy(&m, &v, transposed ? "transposed" : "untransposed");
    remember(m);
}

/* ---- products ---- */

static bool is_weight(const void *x)
{
    if (!watch.t)
        return false;
    const trainer_state s = trainer_state_of(watch.t);
    const char *at = x, *first = s.param;
    return at >= first && at < first + trainer_params(watch.t)->elements * sb_dtype_bytes(s.param_dtype);
}

static const char *name_of(const sb_matmul *p)
{
    const tuned_product *list;
    const int n = trainer_products(watch.t, &list);
    for (int i = 0; i < n; i++)
        if (products_same_shape(&list[i].shape, p))
            return list[i].name;
    return "a product";
}

/* An operand as the product reads it; false: not what a cast has made for it. */
static const made *operand(const sb_matmul *p, bool b)
{
    const char *name = name_of(p), *which = b ? "B" : "A";
    const made *m = made_at(b ? p->b : p->a);
    if (!m || m->rows != (b ? p->n : p->m) || m->columns != p->k || m->scales != (b ? p->scale_b : p->scale_a) ||
        m->format != (b ? p->dtype_b : p->dtype) || m->scaling != (b ? p->scaling_b : p->scaling_a) ||
        (b ? p->ldb : p->lda) != p->k) {
        wrong("%s: no cast has made its operand %s, with these scales", name, which);
        return NULL;
    }
    const size_t bytes = (size_t)m->rows * (size_t)m->columns;
    OWNED uint8_t *now = download(m->codes, bytes);
    const bool same = memcmp(now, m->host, bytes) == 0;
    if (!same)
        wrong("%s: its operand %s has been overwritten since it was cast", name, which);
    if (same && is_weight(m->x)) {
        OWNED void *source = download(m->x, m->x_bytes);
        if (hash_of(source, m->x_bytes) != m->x_hash)
            wrong("%s: its weight was cast before the last update, and is stale", name);
    }
    return watch.why[0] ? NULL : m;
}

/* Row i of C or D, in floats. */
static void read_row(const sb_matmul *p, const void *from, int ld, int i, float *out)
{
    const size_t element = (size_t)sb_dtype_bytes(p->dtype_out);
    OWNED void *raw = download((const char *)from + (size_t)i * (size_t)ld * element, (size_t)p->n * element);
    dtype_load(p->dtype_out, out, raw, (size_t)p->n);
}

/* Some rows of an operand. */
typedef struct some {
    int n, row[COLUMNS];
    uint8_t *codes; /* (n, k) */
    double *values; /* scaled */
} some;

static some some_of(const made *m, int most)
{
    const size_t k = (size_t)m->columns;
    some s = {.n = at_most(most, m->rows)};
    s.codes = xmalloc((size_t)s.n * k);
    s.values = xmalloc((size_t)s.n * k * sizeof *s.values);
    double of_code[256];
    for (int code = 0; code < 256; code++)
        of_code[code] = value_of(m->format, (uint8_t)code);
    for (int i = 0; i < s.n; i++) {
        s.row[i] = spread(i, s.n, m->rows);
        memcpy(s.codes + (size_t)i * k, m->host + (size_t)s.row[i] * k, k);
        for (size_t l = 0; l < k; l++)
            s.values[(size_t)i * k + l] = of_code[s.codes[(size_t)i * k + l]] * stored_scale(m, s.row[i], (int)l);
    }
    return s;
}

static void some_free(some *s)
{
    free(s->codes);
    free(s->values);
}

/* The products of some rows of A and of B, (a->n, b->n): sums in double; fast sums by the model of the CPU's products. */
static double *products_of(const sb_matmul *p, const made *ma, const some *a, const made *mb, const some *b)
{
    double *out = xcalloc((size_t)a->n * (size_t)b->n, sizeof *out);
    float *fast = xcalloc((size_t)a->n * (size_t)b->n, sizeof *fast), one = 1;
    const sb_matmul part = {.dtype = p->dtype,
                            .dtype_b = p->dtype_b,
                            .dtype_out = SB_FP32,
                            .transpose_b = true,
                            .m = a->n,
                            .n = b->n,
                            .k = p->k,
                            .lda = p->k,
                            .ldb = p->k,
                            .ldd = b->n,
                            .a = a->codes,
                            .b = b->codes,
                            .d = fast,
                            .scaling_a = SB_SCALE_TENSOR,
                            .scaling_b = SB_SCALE_TENSOR,
                            .scale_a = &one,
                            .scale_b = &one,
                            .sums = SB_SUMS_FAST};
    const bool chain = p->sums == SB_SUMS_FAST && sb_kernels_cpu()->train->matmul(NULL, &part, NULL) == SB_OK;
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            double *sum = &out[i * b->n + j];
            const double *x = a->values + (size_t)i * (size_t)p->k, *y = b->values + (size_t)j * (size_t)p->k;
            for (int k = 0; k < p->k && !chain; k++)
                *sum += x[k] * y[k];
            if (chain) /* a scale of the whole row */
                *sum = fast[i * b->n + j] * stored_scale(ma, a->row[i], 0) * stored_scale(mb, b->row[j], 0);
        }
    free(fast);
    return out;
}

/* `c`: the sampled rows of it before the product; NULL: there is none. */
static void check_product(const sb_matmul *p, const made *ma, const made *mb, const float *c)
{
    some a = some_of(ma, ROWS), b = some_of(mb, COLUMNS);
    double *products = products_of(p, ma, &a, mb, &b), off = 0, all = 0;
    OWNED float *d = xmalloc((size_t)p->n * sizeof *d);
    for (int i = 0; i < a.n; i++) {
        read_row(p, p->d, p->ldd, a.row[i], d);
        for (int j = 0; j < b.n; j++) {
            const double added = c ? c[(size_t)i * (size_t)p->n + (size_t)b.row[j]] : 0;
            const double want = products[i * b.n + j] + added, by = d[b.row[j]] - want;
            off += by * by, all += want * want;
        }
    }
    if (!(sqrt(off) <= rounding * sqrt(all)))
        wrong("%s: off by %.2e of the product of its codes and scales, %.1e is allowed", name_of(p), sqrt(off / all),
              rounding);
    free(products);
    some_free(&a);
    some_free(&b);
}

/* ---- faults ---- */

/* Largest magnitudes of a quarter, or of none. */
static void spoil(uint32_t *words, int n)
{
    OWNED uint32_t *host = words ? download(words, (size_t)n * sizeof *host) : NULL;
    for (int i = 0; host && i < n; i++)
        host[i] = watch.fault == FLOAT8_SATURATED && host[i] > 2u << 23 ? host[i] - (2u << 23) : 0;
    if (host)
        device_upload(watch.s->dev, words, host, (size_t)n * sizeof *host);
}

static sb_status faulty_quantize(sb_context *ctx, const sb_quantize *p, void *stream)
{
    sb_quantize of = *p;
    if (watch.fault == FLOAT8_WITHIN) /* of what SwiGLU reads, gate is cast for h and for its own gradient */
        of.from.source = SB_FROM_X;
    if (watch.fault == FLOAT8_AMAX) /* what was the largest in the step before stays */
        of.again = false;
    sb_status s = watch.ops->quantize(ctx, &of, stream);
    if (watch.fault == FLOAT8_SATURATED && p->again && s == SB_OK) {
        spoil(p->largest, 1);
        of.amax = p->largest, of.largest = NULL, of.again = false;
        s = watch.ops->quantize(ctx, &of, stream);
    }
    if (watch.fault == FLOAT8_TRANSPOSED && p->y && p->y_t && s == SB_OK) {
        device_sync(watch.s->dev);
        device_copy(watch.s->dev, p->y_t, p->y, (size_t)p->rows * (size_t)p->columns);
    }
    return s;
}

static sb_status faulty_matmul(sb_context *ctx, sb_matmul p, void *stream)
{
    if (watch.fault == FLOAT8_UNSCALED) {
        const size_t n = sb_scale_count(p.scaling_a, p.m, p.k);
        OWNED float *ones = xmalloc(n * sizeof *ones);
        for (size_t i = 0; i < n; i++)
            ones[i] = 1;
        memory_release(watch.s->mem, watch.ones);
        p.scale_a = watch.ones = memory_alloc(watch.s->mem, n * sizeof *ones, "scales of a planted fault");
        if (watch.ones)
            device_upload(watch.s->dev, watch.ones, ones, n * sizeof *ones);
    }
    if (watch.fault == FLOAT8_FORMAT)
        p.dtype = p.dtype == SB_E4M3 ? SB_E5M2 : SB_E4M3;
    return watch.ops->matmul(ctx, &p, stream);
}

/* ---- the ops that are looked at ---- */

static sb_status watched_amax(sb_context *ctx, const sb_amax *p, void *stream)
{
    const sb_status s = watch.ops->amax(ctx, p, stream);
    device_sync(watch.s->dev);
    if (s == SB_OK && (watch.fault == FLOAT8_AMAX || watch.fault == FLOAT8_SATURATED)) {
        spoil(p->of_all, 1);
        spoil(p->of_rows, p->rows);
        spoil(p->of_columns, p->columns);
    }
    return s;
}

/* What a call casts, by its own op. */
static sb_status make_swiglu(sb_context *ctx, const sb_quantize *p, void *made, void *stream)
{
    const bool gradient = p->from.source == SB_FROM_SWIGLU_GRADIENT;
    const sb_swiglu op = {.dtype = p->dtype,
                          .rows = p->rows,
                          .f = gradient ? p->columns / 2 : p->columns,
                          .gate_up = p->x,
                          .dh = p->from.dh,
                          .h = gradient ? NULL : made,
                          .d_gate_up = gradient ? made : NULL};
    return gradient ? watch.ops->swiglu_backward(ctx, &op, stream) : watch.ops->swiglu_forward(ctx, &op, stream);
}

/* Its statistics are made once more, too, behind the matrix. */
static sb_status make_norm(sb_context *ctx, const sb_quantize *p, void *made, void *stream)
{
    const sb_rmsnorm op = {.dtype = p->dtype,
                           .dtype_param = p->dtype,
                           .rows = p->rows,
                           .d = p->columns,
                           .eps = trainer_options_of(watch.t)->config.norm_eps,
                           .x = p->x,
                           .weight = p->from.gain,
                           .y = made,
                           .rstd = (float *)made + (size_t)p->rows * (size_t)p->columns / 2};
    return watch.ops->rmsnorm_forward(ctx, &op, stream);
}

static sb_status make_turned_back(sb_context *ctx, const sb_quantize *p, void *made, void *stream)
{
    const sb_rope op = {.dtype = p->dtype,
                        .batch = p->rows / p->from.seq,
                        .seq = p->from.seq,
                        .heads = p->from.turned / p->from.head_dim,
                        .head_dim = p->from.head_dim,
                        .x = {made, (int64_t)p->from.seq * p->columns, p->from.head_dim, p->columns},
                        .table = p->from.table,
                        .inverse = true};
    device_copy(watch.s->dev, made, p->x, (size_t)p->rows * (size_t)p->columns * sizeof(uint16_t));
    device_sync(watch.s->dev);
    return watch.ops->rope(ctx, &op, stream);
}

/* The matrix that a call casts: its x, or what an op makes of that, in memory that the caller gives back. */
static sb_status matrix_of(sb_context *ctx, sb_quantize *p, void **made, void *stream)
{
    const size_t rows = (size_t)p->rows;
    *made = NULL;
    if (p->from.source == SB_FROM_X)
        return SB_OK;
    *made = memory_alloc(watch.s->mem, rows * (size_t)p->columns * sizeof(uint16_t) + rows * sizeof(float),
                         "what is made within a cast");
    if (!*made)
        return SB_NO_MEMORY;
    const sb_status s = (p->from.source == SB_FROM_RMSNORM         ? make_norm
                         : p->from.source == SB_FROM_ROPE_GRADIENT ? make_turned_back
                                                                   : make_swiglu)(ctx, p, *made, stream);
    p->from.source = SB_FROM_X, p->x = *made, p->ld = p->columns;
    return s;
}

static sb_status watched_quantize(sb_context *ctx, const sb_quantize *p, void *stream)
{
    device_sync(watch.s->dev);
    if (watch.fault == FLOAT8_STALE && watch.step > 0 && is_weight(p->x))
        return SB_OK; /* as if the step had not asked for it */
    sb_status s = faulty_quantize(ctx, p, stream);
    if (s != SB_OK || watch.why[0])
        return s;
    sb_quantize of = *p;
    void *made;
    s = matrix_of(ctx, &of, &made, stream);
    device_sync(watch.s->dev);
    const size_t bytes = ((size_t)(of.rows - 1) * (size_t)of.ld + (size_t)of.columns) * sizeof(uint16_t);
    OWNED uint16_t *x = s == SB_OK ? download(of.x, bytes) : NULL;
    for (int transposed = 0; x && transposed < 2; transposed++)
        if (transposed ? p->y_t : p->y)
            look_at_copy(&of, x, bytes, transposed);
    memory_release(watch.s->mem, made);
    return s;
}

static sb_status watched_matmul(sb_context *ctx, const sb_matmul *p, void *stream)
{
    if ((p->dtype != SB_E4M3 && p->dtype != SB_E5M2) || watch.why[0])
        return watch.ops->matmul(ctx, p, stream);
    device_sync(watch.s->dev);
    const int rows = at_most(ROWS, p->m);
    const made *a = operand(p, false), *b = a ? operand(p, true) : NULL;
    OWNED float *c = p->c ? xmalloc((size_t)rows * (size_t)p->n * sizeof *c) : NULL;
    for (int r = 0; c && r < rows; r++)
        read_row(p, p->c, p->ldc, spread(r, rows, p->m), c + (size_t)r * (size_t)p->n);
    const sb_status s = faulty_matmul(ctx, *p, stream);
    device_sync(watch.s->dev);
    if (s == SB_OK && b)
        check_product(p, a, b, c);
    watch.products++;
    return s;
}

/* ---- the check ---- */

/* Which products are in float8, and which float8 that is, against the table of recipes. */
static int check_recipe(const step_options *o)
{
    const float8_recipe *r = float8_recipe_find(o->precision->name);
    const tuned_product *list;
    const int n = trainer_products(watch.t, &list);
    int uses = 0;
    for (int i = 0; i < n; i++) {
        const sb_matmul *p = &list[i].shape;
        const char *pass = strchr(list[i].name, ' ') + 1;
        const char *name = strcmp(pass, "forward") == 0 ? r->y : strcmp(pass, "dx") == 0 ? r->dx : r->dw;
        const float8_product *f = name ? float8_product_find(name) : NULL;
        const bool fits = p->m % 16 == 0 && p->n % 16 == 0 && p->k % 16 == 0;
        const bool is = p->dtype == SB_E4M3 || p->dtype == SB_E5M2;
        const bool wants = f && fits && strncmp(list[i].name, "lm_head", 7) != 0;
        if (is != wants || (is && (p->dtype != f->a.format || p->dtype_b != f->b.format ||
                                   p->scaling_a != f->a.scaling || p->scaling_b != f->b.scaling || p->sums != f->sums)))
            wrong("%s is not the product that %s has there", list[i].name, r->name);
        uses += is ? list[i].uses : 0;
    }
    return uses;
}

static void run_steps(trainer *t)
{
    watch.t = t;
    const int expected = check_recipe(trainer_options_of(t));
    if (trainer_options_of(t)->mode == STEP_TRAIN)
        trainer_set_lr(t, update_lr);
    for (watch.step = 0; watch.step < STEPS && !watch.why[0]; watch.step++)
        if (!trainer_step(t))
            wrong("a step that is looked at: %s", sb_last_message());
    if (!watch.why[0] && watch.products != STEPS * expected)
        wrong("%d products of %d steps were in float8, and %d should be", watch.products, STEPS, STEPS * expected);
}

bool model_float8_check(session *s, const step_options *slice, float8_fault fault, row *w, char *why, size_t why_bytes)
{
    const model_bench *b = s->user;
    sb_train_ops ops = *b->kernels->train;
    sb_kernels kernels = *b->kernels;
    step_options o = *slice;
    char refused[256] = "";
    why[0] = 0;
    memset(&watch, 0, sizeof watch);
    watch.s = s, watch.ops = b->kernels->train, watch.fault = fault, watch.why = why, watch.why_bytes = why_bytes;
    ops.amax = watched_amax, ops.quantize = watched_quantize, ops.matmul = watched_matmul;
    kernels.train = &ops;
    o.fusion = o.fusion == FUSION_GRAPH ? FUSION_KERNELS : o.fusion; /* a graph's ops cannot be looked at */
    o.overlap = OVERLAP_NONE;                                        /* nor those of another stream */
    recompute_schedule schedule = step_schedule(&o); /* a copy that comes back lies elsewhere; gradients see it */
    memset(schedule.away, 0, sizeof schedule.away);
    o.schedule = &schedule;
    trainer *t = trainer_create(s->dev, s->mem, &kernels, b->ctx, &o, refused, sizeof refused);
    const bool made = t;
    if (made)
        run_steps(t);
    else
        row_status_set(w, ROW_SKIP, "%s", refused);
    trainer_free(t);
    memory_release(s->mem, watch.ones);
    memory_release_all(s->mem);
    for (int i = 0; i < watch.count; i++) {
        free(watch.made[i].host);
        free(watch.made[i].host_scales);
    }
    return made && !why[0];
}

bool float8_fault_fits(float8_fault fault, const step_options *o)
{
    const bool words = fault == FLOAT8_AMAX || fault == FLOAT8_SATURATED, within = fault == FLOAT8_WITHIN;
    const float8_recipe *r = o->precision->float8 ? float8_recipe_find(o->precision->name) : NULL;
    if (fault == FLOAT8_SOUND || !r)
        return fault == FLOAT8_SOUND;
    const sb_scaling scaling = float8_product_find(r->y)->a.scaling;
    const bool blocks = scaling != SB_SCALE_TENSOR && scaling != SB_SCALE_ROW;
    return !(words && blocks) && !(within && !r->dw) &&
           !((within || fault == FLOAT8_TRANSPOSED) && o->fusion == FUSION_NONE);
}
