/* SPDX-License-Identifier: MIT */
/* Is a product of float8 right? Casts are compared bit for bit with the CPU's on the first and the last 128 rows, whose scales
 * depend on no other rows, or on words that are compared, too. Of the product, blocks at the corners are compared with what the CPU
 * predicts by its model of Hopper's sums, with double sums of the codes, and with double sums of the operands in bf16. From these
 * they must differ by what a rounding to nearest loses of such values, no more and no less. */
#include "bench/mixed/float8.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/text.h"

enum {
    TILE = 128,
    MX_BLOCK = 32,
    PATCH = 16,
    WIDEST = 64
}; /* patches of D have 16 rows and up to 64 columns, none across two tiles */

/* Relative L2 of what bf16 rounds off, 1.7e-3 where all magnitudes are alike, and exact sums lose, 2e-4; and what these lose more of
 * products of one sign. If all of those are just above a power of two, bf16 alone loses 2.3e-3. */
static const double rounding = 2.2e-3, of_one_sign = 7e-4;

static const sb_train_ops *cpu(void)
{
    return sb_kernels_cpu()->train;
}

static void *downloaded(const float8_case *f, const void *from, size_t bytes)
{
    void *to = xmalloc(bytes ? bytes : 1);
    device_download(f->m->s->dev, to, from, bytes);
    return to;
}

/* An operand on the host: all that the device has of it. */
typedef struct host_side {
    uint16_t *x;
    uint8_t *codes, *codes_t;
    float *scales, *scales_t;
    uint32_t of_all, *of_rows, *of_columns; /* by the CPU */
} host_side;

static host_side download(const float8_case *f, const float8_side *s)
{
    const size_t n = (size_t)s->rows * (size_t)s->k;
    host_side h = {.x = downloaded(f, s->x, 2 * n)};
    if (f->product) {
        h.codes = downloaded(f, s->codes, n);
        h.scales = downloaded(f, s->scales, sb_scale_count(s->as.scaling, s->rows, s->k) * sizeof(float));
    }
    if (s->codes_t) {
        h.codes_t = downloaded(f, s->codes_t, n);
        h.scales_t = downloaded(f, s->scales_t, sb_scale_count(s->as.scaling, s->k, s->rows) * sizeof(float));
    }
    return h;
}

static void release(host_side *h)
{
    free(h->x), free(h->codes), free(h->codes_t), free(h->scales), free(h->scales_t), free(h->of_rows),
        free(h->of_columns);
}

/* ---- casts ---- */

static bool wrong(const float8_case *f, const char *what, const char *operand)
{
    row_status_set(f->m->w, ROW_FAIL, "the %s of %s differ from the CPU's", what, operand);
    return false;
}

/* Largest magnitudes of the whole operand. */
static bool check_words(const float8_case *f, const float8_side *s, host_side *h, const char *operand)
{
    const sb_amax p = {.dtype = SB_BF16,
                       .rows = s->rows,
                       .columns = s->k,
                       .ld = s->k,
                       .x = h->x,
                       .of_all = &h->of_all,
                       .of_rows = h->of_rows = xmalloc((size_t)s->rows * sizeof(uint32_t)),
                       .of_columns = h->of_columns = xmalloc((size_t)s->k * sizeof(uint32_t))};
    if (!mixed_ok(f->m, cpu()->amax(NULL, &p, NULL)))
        return false;
    const struct {
        const uint32_t *device, *want;
        size_t n;
    } words[] = {{s->of_all, &h->of_all, 1},
                 {s->of_rows, h->of_rows, (size_t)s->rows},
                 {s->of_columns, h->of_columns, (size_t)s->k}};
    bool same = true;
    for (int i = 0; i < 3; i++) {
        OWNED uint32_t *got = words[i].device ? downloaded(f, words[i].device, words[i].n * sizeof *got) : NULL;
        same = same && (!got || memcmp(got, words[i].want, words[i].n * sizeof *got) == 0);
    }
    return same || wrong(f, "largest magnitudes", operand);
}

/* Scales of `rows` rows from `first` on, a multiple of 128 for squares, as if they were all. */
static float *scales_of(const float8_side *s, const float *all, int first, int rows)
{
    float *out = xcalloc(sb_scale_count(s->as.scaling, rows, s->k), sizeof *out);
    for (int i = 0; i < rows; i++)
        for (int l = 0; l < s->k; l += MX_BLOCK)
            out[sb_scale_place(s->as.scaling, rows, s->k, i, l)] =
                all[sb_scale_place(s->as.scaling, s->rows, s->k, first + i, l)];
    return out;
}

/* The transposed copy of rows from `first` on: columns of what is there. */
static bool same_transposed(const float8_side *s, const host_side *h, int first, int rows, const uint8_t *codes,
                            const float *scales)
{
    bool same = true;
    for (int j = 0; j < s->k; j++) {
        same = same && memcmp(codes + (size_t)j * rows, h->codes_t + (size_t)j * s->rows + first, (size_t)rows) == 0;
        for (int i = 0; same && i < rows; i += MX_BLOCK)
            same =
                memcmp(&scales[sb_scale_place(s->as.scaling, s->k, rows, j, i)],
                       &h->scales_t[sb_scale_place(s->as.scaling, s->k, s->rows, j, first + i)], sizeof *scales) == 0;
    }
    return same;
}

static bool check_rows(const float8_case *f, const float8_side *s, const host_side *h, int first, const char *operand)
{
    const int rows = s->rows - first < TILE ? s->rows - first : TILE;
    const size_t n = (size_t)rows * (size_t)s->k, scales = sb_scale_count(s->as.scaling, rows, s->k);
    const sb_quantize p = {.dtype = SB_BF16,
                           .format = s->as.format,
                           .scaling = s->as.scaling,
                           .rows = rows,
                           .columns = s->k,
                           .ld = s->k,
                           .x = h->x + (size_t)first * (size_t)s->k,
                           .amax = s->as.scaling == SB_SCALE_ROW ? h->of_rows + first : &h->of_all,
                           .amax_t = h->of_columns,
                           .y = xmalloc(n),
                           .ld_y = s->k,
                           .scales = xmalloc(scales * sizeof(float)),
                           .y_t = xmalloc(n),
                           .ld_t = rows,
                           .scales_t = xmalloc(sb_scale_count(s->as.scaling, s->k, rows) * sizeof(float))};
    bool ok = mixed_ok(f->m, cpu()->quantize(NULL, &p, NULL));
    float *got = scales_of(s, h->scales, first, rows);
    if (ok && memcmp(got, p.scales, scales * sizeof *got) != 0)
        ok = wrong(f, "scales", operand);
    if (ok && memcmp(h->codes + (size_t)first * (size_t)s->k, p.y, n) != 0)
        ok = wrong(f, "codes", operand);
    if (ok && h->codes_t && !same_transposed(s, h, first, rows, p.y_t, p.scales_t))
        ok = wrong(f, "transposed codes or scales", operand);
    free(got), free(p.y), free(p.scales), free(p.y_t), free(p.scales_t);
    return ok;
}

static bool check_cast(const float8_case *f, const float8_side *s, host_side *h, const char *operand)
{
    const bool words = s->as.scaling == SB_SCALE_TENSOR || s->as.scaling == SB_SCALE_ROW;
    return (!words || check_words(f, s, h, operand)) && check_rows(f, s, h, 0, operand) &&
           check_rows(f, s, h, (s->rows - 1) / TILE * TILE, operand);
}

/* ---- the product ---- */

/* Squares of the relative errors of rows, so that small rows count as large ones do; how long the product is along what is
 * wanted; both summed over rows. */
typedef struct error {
    double squares, along;
    int rows;
} error;

static void add(error *e, const double *want, const double *got, int n)
{
    double squares = 0, of_want = 0, along = 0;
    for (int i = 0; i < n; i++) {
        squares += (got[i] - want[i]) * (got[i] - want[i]);
        of_want += want[i] * want[i];
        along += got[i] * want[i];
    }
    e->squares += of_want > 0 ? squares / of_want : squares > 0 ? INFINITY : 0;
    e->along += of_want > 0 ? along / of_want : 1;
    e->rows++;
}

static double relative(const error *e)
{
    return sqrt(e->squares / e->rows);
}

typedef struct errors {
    error codes, operands; /* of the product, against double sums of these */
    error model;           /* of the prediction, against the codes */
    error casts;           /* what rounding to codes is expected to lose, against the operands */
    size_t n, equal;
} errors;

/* ---- what casts must lose ---- */

static int group_columns(const float8_side *s, int column)
{
    static const int most[] = {1, INT_MAX, INT_MAX, TILE, TILE, MX_BLOCK};
    return s->k - column < most[s->as.scaling] ? s->k - column : most[s->as.scaling];
}

/* The smallest power of two, for e5m2 of 16, with which the largest magnitude of all that share the scale of (row, column) fits. */
static double own_scale(const float8_side *s, const host_side *h, int row, int column)
{
    static const int group_rows[] = {1, INT_MAX, 1, 1, TILE, 1};
    const bool e4m3 = s->as.format == SB_E4M3;
    const int most_rows = group_rows[s->as.scaling], first = row / most_rows * most_rows;
    const int rows = s->rows - first < most_rows ? s->rows - first : most_rows, columns = group_columns(s, column);
    uint16_t most = 0; /* bits without their sign grow with the magnitude */
    for (int i = first; i < first + rows; i++)
        for (int l = column; l < column + columns; l++) {
            const uint16_t bits = h->x[(size_t)i * (size_t)s->k + (size_t)l] & 0x7fff;
            most = bits > most ? bits : most;
        }
    int power;
    if (frexp(bf16_to_float(most) / (e4m3 ? 448 : 57344), &power) == 0.5)
        power--;
    return ldexp(1, e4m3 ? power : (power + 3) & ~3);
}

/* The square of the error of a cast: a step's, on average over a step, or all of what becomes 0. */
static double square_of_error(double x, double scale, sb_dtype format)
{
    const int mantissa = format == SB_E4M3 ? 3 : 2, smallest = format == SB_E4M3 ? -6 : -14;
    int exponent;
    frexp(x / scale, &exponent);
    const double step = ldexp(scale, (exponent - 1 > smallest ? exponent - 1 : smallest) - mantissa);
    return fabs(x) < step / 2 ? x * x : step * step / 12;
}

/* The squares of the errors of rows of an operand, whose values are `x`. A patch lies in one row of squares of scales. */
static double *patch_errors(const float8_side *s, const host_side *h, int first, int rows, const double *x)
{
    double *squares = xmalloc((size_t)rows * (size_t)s->k * sizeof *squares);
    OWNED double *scales = xmalloc((size_t)s->k * sizeof *scales);
    const bool shared = s->as.scaling == SB_SCALE_TENSOR || s->as.scaling == SB_SCALE_128X128;
    for (int i = 0; i < rows; i++) {
        for (int l = 0, n = 0; l < s->k && (i == 0 || !shared); l += n) {
            n = group_columns(s, l);
            const double scale = own_scale(s, h, first + i, l);
            for (int j = 0; j < n; j++)
                scales[l + j] = scale;
        }
        for (int l = 0; l < s->k; l++)
            squares[(size_t)i * (size_t)s->k + (size_t)l] =
                square_of_error(x[(size_t)i * (size_t)s->k + (size_t)l], scales[l], s->as.format);
    }
    return squares;
}

/* The square of the error of a sum of products, whose factors are rounded independently of each other. */
static double square_of_sum(const double *x, const double *of_x, const double *y, const double *of_y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += of_x[i] * y[i] * y[i] + (x[i] * x[i] + of_x[i]) * of_y[i];
    return sum;
}

/* What the CPU makes of rows of A and of B. */
static void predict(const float8_case *f, const host_side *a, const host_side *b, const float *scales[2], int row,
                    int column, int width, uint16_t *out)
{
    sb_matmul p = f->call;
    p.m = PATCH, p.n = p.ldd = width;
    p.a = a->codes + (size_t)row * (size_t)f->k, p.b = b->codes + (size_t)column * (size_t)f->k;
    p.scale_a = scales[0], p.scale_b = scales[1];
    p.d = out;
    p.workspace = NULL, p.workspace_bytes = 0;
    mixed_ok(f->m, cpu()->matmul(NULL, &p, NULL));
}

/* A row of an operand as doubles: as it was, or of its codes. */
static void values_of(const float8_side *s, const host_side *h, const float *scales, int rows, int row, int of_patch,
                      bool of_codes, double *out)
{
    for (int l = 0; l < s->k; l++) {
        const size_t at = (size_t)row * (size_t)s->k + (size_t)l;
        if (!of_codes) {
            out[l] = bf16_to_float(h->x[at]);
            continue;
        }
        out[l] = (double)scales[sb_scale_place(s->as.scaling, rows, s->k, of_patch, l)] *
                 (s->as.format == SB_E4M3 ? e4m3_to_float(h->codes[at]) : e5m2_to_float(h->codes[at]));
    }
}

/* Rows of an operand and of its codes as doubles, one set behind the other. */
static double *patch_values(const float8_case *f, const float8_side *s, const host_side *h, const float *scales,
                            int first, int rows)
{
    double *values = xmalloc(2 * (size_t)rows * (size_t)s->k * sizeof *values);
    for (int i = 0; i < rows; i++)
        for (int of_codes = 0; of_codes <= (f->product != NULL); of_codes++)
            values_of(s, h, scales, rows, first + i, i, of_codes,
                      values + (size_t)(of_codes * rows + i) * (size_t)s->k);
    return values;
}

static double dot(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* The scales of rows of a patch. Of squares it lies in one row of them. */
static float *patch_scales(const float8_case *f, const float8_side *s, const host_side *h, int first, int rows)
{
    return f->product ? scales_of(s, h->scales, s->as.scaling == SB_SCALE_128X128 ? first / TILE * TILE : first, rows)
                      : NULL;
}

static void compare_patch(const float8_case *f, const host_side *a, const host_side *b, int row, int column, int width,
                          errors *e)
{
    const int last = f->product != NULL;
    const size_t k = (size_t)f->k;
    float *scales[2] = {patch_scales(f, &f->a, a, row, PATCH), patch_scales(f, &f->b, b, column, width)};
    double *x = patch_values(f, &f->a, a, scales[0], row, PATCH),
           *y = patch_values(f, &f->b, b, scales[1], column, width);
    double *of_x = last ? patch_errors(&f->a, a, row, PATCH, x) : NULL,
           *of_y = last ? patch_errors(&f->b, b, column, width, y) : NULL;
    uint16_t predicted[PATCH * WIDEST] = {0}, got[WIDEST];
    if (last)
        predict(f, a, b, (const float *[]){scales[0], scales[1]}, row, column, width, predicted);
    for (int i = 0; i < PATCH; i++) {
        double want[2][WIDEST], d[WIDEST], model[WIDEST], rounded[WIDEST];
        device_download(f->m->s->dev, got,
                        (const uint16_t *)f->d + (size_t)(row + i) * (size_t)f->columns + (size_t)column,
                        (size_t)width * sizeof *got);
        for (int j = 0; j < width; j++) {
            for (int of_codes = 0; of_codes <= last; of_codes++)
                want[of_codes][j] =
                    dot(x + (size_t)(of_codes * PATCH + i) * k, y + (size_t)(of_codes * width + j) * k, f->k);
            rounded[j] = want[0][j];
            if (last)
                rounded[j] += sqrt(square_of_sum(x + (size_t)i * k, of_x + (size_t)i * k, y + (size_t)j * k,
                                                 of_y + (size_t)j * k, f->k));
            d[j] = bf16_to_float(got[j]);
            model[j] = bf16_to_float(predicted[i * width + j]);
            e->equal += got[j] == predicted[i * width + j];
        }
        add(&e->operands, want[0], d, width);
        add(&e->codes, want[last], d, width);
        add(&e->casts, want[0], rounded, width);
        add(&e->model, want[last], model, width);
        e->n += (size_t)width;
    }
    free(x), free(y), free(of_x), free(of_y), free(scales[0]), free(scales[1]);
}

/* How far from what is expected the loss of casts may be. The patches of A have 32 rows, or 16 twice; of `rows` and `heavy`, a few
 * elements or rows near the least code, or far above the rest, make up most of it. */
static double within_of(const float8_case *f)
{
    return (text_is(f->values, "normal") || text_is(f->values, "outlier") ? 0.1 : 0.25) *
           (f->rows < 2 * PATCH || f->columns < 2 * PATCH ? 2 : 1);
}

/* Fills the columns and judges. Fast sums are as wrong as their model says, which has bf16's rounding too, or less if the library
 * splits k. Errors of numbers of one sign do not cancel, so what casts lose of those is not judged. */
static bool judge(const float8_case *f, const errors *e)
{
    row *w = f->m->w;
    const double exact = relative(&e->codes), all = relative(&e->operands);
    const double lost = hypot(relative(&e->casts), exact), within = within_of(f);
    const bool one_sign = text_is(f->values, "positive"), fast = f->product && f->product->sums == SB_SUMS_FAST;
    const double of_exact = rounding + (one_sign ? of_one_sign : 0);
    const double allowed = fast ? fmax(1.3 * relative(&e->model), of_exact) : of_exact;
    row_real(w, "err_rel", all);
    row_real(w, "err_exact", exact);
    row_real(w, "bias_pct", 100 * (e->codes.along / e->codes.rows - 1));
    if (f->product)
        row_real(w, "predicted_pct", 100.0 * (double)e->equal / (double)e->n);
    if (!(exact <= allowed))
        row_status_set(w, ROW_FAIL, "the product differs from that of its operands by %.2e; %.2e is allowed", exact,
                       allowed);
    else if (!one_sign && !(fabs(all - lost) <= within * lost))
        row_status_set(w, ROW_FAIL, "casts and sums lose %.2e of the product; %.2e is expected, within %.0f %%", all,
                       lost, 100 * within);
    return row_status_get(w) == ROW_OK;
}

bool float8_check(float8_case *f)
{
    host_side a = download(f, &f->a), b = download(f, &f->b);
    bool ok = !f->product || (check_cast(f, &f->a, &a, "A") && check_cast(f, &f->b, &b, "B"));
    const int in_last = f->columns - (f->columns - 1) / TILE * TILE, first = f->columns < WIDEST ? f->columns : WIDEST;
    const int rows[] = {0, f->rows - PATCH}, widths[] = {first, in_last < WIDEST ? in_last : WIDEST};
    errors e = {0};
    for (int i = 0; ok && i < 4; i++)
        compare_patch(f, &a, &b, rows[i / 2], i % 2 ? f->columns - widths[1] : 0, widths[i % 2], &e);
    ok = ok && judge(f, &e);
    release(&a);
    release(&b);
    return ok;
}
