/* SPDX-License-Identifier: MIT */
/* The benchmarking_mixed_precision problem, part (b), in numbers: how do RMSNorm and LayerNorm come out when their
 * statistics are not fp32? The norm runs as an eager framework's pieces, each of which stores its result in the dtype
 * of the statistics: squares, their mean, mean + eps, the reciprocal root. `own` sums in fp32 inside one kernel, as
 * libraries do; `own-sums` adds term by term into a sum of that dtype.
 *
 * Layout: x is (d, ROWS), so that a term of all sums is a contiguous row. Row 0 of the batch is zero: only eps keeps it
 * from 0/0. */
#include "bench/mixed/mixed.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/model/dtypes.h"

enum { ROWS = 64 };

typedef struct norm {
    mixed *m;
    bool layer, own_sums;
    int d;
    sb_dtype dtype, statistics; /* of x and y, of what lies between */
    float eps;
    float *host;                /* x (d, ROWS), as stored */
    mixed_tensor x, y;          /* (d, ROWS) */
    mixed_tensor centred;       /* (d, ROWS) in the statistics' dtype: x, or x - mean */
    mixed_tensor square;        /* (d, ROWS) */
    mixed_tensor mean, root;    /* (ROWS): mean of x; mean of squares, + eps, 1 / root */
    mixed_tensor sum;           /* (ROWS): of the squares, for own-sums */
    int64_t overflowed_squares; /* elements */
    int64_t overflowed_rows;    /* rows whose sum or mean of squares is not finite */
} norm;

static const mixed_tensor none = {0};

static size_t size_of(const norm *n)
{
    return (size_t)n->d * ROWS;
}

static bool norm_allocate(norm *n)
{
    n->x = mixed_new(n->m, n->dtype, size_of(n), "x");
    n->y = mixed_new(n->m, n->dtype, size_of(n), "y");
    n->centred = mixed_new(n->m, n->statistics, size_of(n), "x - mean");
    n->square = mixed_new(n->m, n->statistics, size_of(n), "squares");
    n->mean = mixed_new(n->m, n->statistics, ROWS, "statistics");
    n->root = mixed_new(n->m, n->statistics, ROWS, "statistics");
    n->sum = mixed_new(n->m, n->statistics, ROWS, "statistics");
    return n->x.p && n->y.p && n->centred.p && n->square.p && n->mean.p && n->root.p && n->sum.p;
}

/* Draws x, rounds it to its dtype, and makes row 0 zero. */
static void norm_fill(norm *n, float magnitude)
{
    uint64_t seed = rng_hash((uint64_t)option_int(n->m->s->opt, "seed"), "norm");
    n->host = xmalloc(size_of(n) * sizeof *n->host);
    rng_normal(n->host, size_of(n), seed, 0, 0, magnitude);
    for (size_t i = 0; i < size_of(n); i++)
        n->host[i] = i % ROWS == 0 ? 0 : dtype_round(n->dtype, n->host[i]);
    mixed_upload(n->m, n->x, n->host, size_of(n));
}

/* ---- the pieces ---- */

/* The mean over d of (d, ROWS); the sum it was made of is in n->sum where it has the statistics' dtype. */
static bool mean_of(norm *n, mixed_tensor from, mixed_tensor to)
{
    mixed *m = n->m;
    const float each = 1.0f / (float)n->d;
    if (n->own_sums) {
        device_memset(m->s->dev, n->sum.p, 0, ROWS * (size_t)sb_dtype_bytes(n->statistics));
        bool ok = true;
        for (int j = 0; ok && j < n->d; j++) {
            mixed_tensor term = {(char *)from.p + (size_t)j * ROWS * (size_t)sb_dtype_bytes(from.dtype), from.dtype};
            ok = mixed_point(m, SB_POINT_ADD, 1, ROWS, n->sum, term, SB_SPREAD_FULL, 0, n->sum);
        }
        return ok && mixed_point(m, SB_POINT_SCALE, 1, ROWS, n->sum, none, SB_SPREAD_FULL, each, to);
    }
    sb_reduce p = {.dtype = from.dtype,
                   .dtype_out = to.dtype,
                   .rows = n->d,
                   .columns = ROWS,
                   .ld = ROWS,
                   .over_rows = true,
                   .scale = each,
                   .x = from.p,
                   .out = to.p};
    p.workspace_bytes = m->kernels->train->reduce_workspace(m->ctx, &p);
    if (p.workspace_bytes && !(p.workspace = memory_alloc(m->s->mem, p.workspace_bytes, "reduce workspace")))
        return false;
    bool ok = mixed_ok(m, m->kernels->train->reduce(m->ctx, &p, device_stream(m->s->dev)));
    memory_release(m->s->mem, p.workspace);
    return ok;
}

/* Counts what overflowed; the squares must be those that the host gets from what was squared. */
static bool count_overflows(norm *n)
{
    OWNED float *centred = xmalloc(size_of(n) * sizeof *centred), *square = xmalloc(size_of(n) * sizeof *square);
    float sum[ROWS] = {0}, mean[ROWS];
    bool right = true;
    mixed_download(n->m, centred, n->centred, size_of(n));
    mixed_download(n->m, square, n->square, size_of(n));
    mixed_download(n->m, mean, n->root, ROWS);
    if (n->own_sums)
        mixed_download(n->m, sum, n->sum, ROWS);
    for (size_t i = 0; i < size_of(n); i++) {
        float want = dtype_round(n->statistics, centred[i] * centred[i]);
        n->overflowed_squares += !isfinite(square[i]);
        if (right && square[i] != want && !(isnan(square[i]) && isnan(want)) && option_flag(n->m->s->opt, "check")) {
            row_status_set(n->m->w, ROW_FAIL, "the square of %.9g is %.9g, not %.9g", centred[i], square[i], want);
            right = false;
        }
    }
    for (int r = 0; r < ROWS; r++)
        n->overflowed_rows += !isfinite(sum[r]) || !isfinite(mean[r]);
    return right;
}

static bool norm_run(norm *n)
{
    mixed *m = n->m;
    const int d = n->d;
    bool ok = n->layer ? mean_of(n, n->x, n->mean) &&
                             mixed_point(m, SB_POINT_SUB, d, ROWS, n->x, n->mean, SB_SPREAD_COLUMN, 0, n->centred)
                       : mixed_point(m, SB_POINT_COPY, d, ROWS, n->x, none, SB_SPREAD_FULL, 0, n->centred);
    return ok && mixed_point(m, SB_POINT_MUL, d, ROWS, n->centred, n->centred, SB_SPREAD_FULL, 0, n->square) &&
           mean_of(n, n->square, n->root) && count_overflows(n) &&
           mixed_point(m, SB_POINT_SHIFT, 1, ROWS, n->root, none, SB_SPREAD_FULL, n->eps, n->root) &&
           mixed_point(m, SB_POINT_RSQRT, 1, ROWS, n->root, none, SB_SPREAD_FULL, 0, n->root) &&
           mixed_point(m, SB_POINT_MUL, d, ROWS, n->centred, n->root, SB_SPREAD_COLUMN, 0, n->y);
}

/* ---- eps ---- */

/* eps as the statistics' dtype stores it: what zero plus eps is. */
static bool stored_eps(norm *n, float eps, float *out)
{
    device_memset(n->m->s->dev, n->sum.p, 0, (size_t)sb_dtype_bytes(n->statistics));
    if (!mixed_point(n->m, SB_POINT_SHIFT, 1, 1, n->sum, none, SB_SPREAD_FULL, eps, n->sum))
        return false;
    mixed_download(n->m, out, n->sum, 1);
    return true;
}

static bool measure_eps(norm *n)
{
    enum { SMALLEST_NORMAL_FP32 = 37 }; /* 1e-37 */
    float stored;
    if (!stored_eps(n, n->eps, &stored))
        return false;
    row_real(n->m->w, "eps_stored", stored);
    int power = 1;
    for (; power <= SMALLEST_NORMAL_FP32; power++)
        if (!stored_eps(n, (float)pow(10, -power), &stored) || stored == 0)
            break;
    row_real(n->m->w, "eps_smallest", pow(10, 1 - power));
    return row_status_get(n->m->w) == ROW_OK;
}

/* ---- against double ---- */

/* The norm of row r of the batch, in double, from x as stored. Whether fp32 holds the sum of its squares. */
static bool reference_row(const norm *n, int r, double *out)
{
    double mean = 0, square = 0;
    for (int j = 0; n->layer && j < n->d; j++)
        mean += n->host[(size_t)j * ROWS + (size_t)r] / n->d;
    for (int j = 0; j < n->d; j++) {
        out[j] = n->host[(size_t)j * ROWS + (size_t)r] - mean;
        square += out[j] * out[j] / n->d;
    }
    for (int j = 0; j < n->d; j++)
        out[j] /= sqrt(square + (double)n->eps);
    return square * n->d <= FLT_MAX;
}

typedef struct comparison {
    double error, norm; /* squared */
    int64_t nonfinite;
} comparison;

/* y as an array with strides; not finite counts as zero in the error. */
static comparison compare(const norm *n, const float *y, size_t stride_j, size_t stride_r, bool rows_in_fp32_alone)
{
    comparison c = {0};
    OWNED double *want = xmalloc((size_t)n->d * sizeof *want);
    for (int r = 0; r < ROWS; r++) {
        if (!reference_row(n, r, want) && rows_in_fp32_alone)
            continue;
        for (int j = 0; j < n->d; j++) {
            float got = y[(size_t)j * stride_j + (size_t)r * stride_r];
            c.nonfinite += !isfinite(got);
            double difference = (isfinite(got) ? (double)got : 0) - want[j];
            c.error += difference * difference;
            c.norm += want[j] * want[j];
        }
    }
    return c;
}

/* With fp32 statistics y is wrong by its own rounding alone; half a step of fp16's subnormals is allowed beside it. */
static bool within(const norm *n, const comparison *c)
{
    double bound = n->dtype == SB_BF16 ? 4e-3 : n->dtype == SB_FP16 ? 1e-3 : 1e-5;
    double step = n->dtype == SB_FP16 ? 6e-8 : 0;
    return c->nonfinite == 0 && sqrt(c->error) <= bound * sqrt(c->norm) + step * sqrt((double)size_of(n));
}

/* Rows whose squares are beyond fp32 can't be right. */
static void judge(norm *n, const float *y, size_t stride_j, size_t stride_r, const char *what)
{
    const comparison c = compare(n, y, stride_j, stride_r, true);
    if (option_flag(n->m->s->opt, "check") && !within(n, &c))
        row_status_set(n->m->w, ROW_FAIL, "%s with fp32 statistics: relative error %.2e, %lld not finite", what,
                       sqrt(c.error / c.norm), (long long)c.nonfinite);
}

/* The fused RMSNorm of the table, which has fp32 statistics always, on the same rows. */
static void run_fused(norm *n)
{
    mixed *m = n->m;
    size_t d = (size_t)n->d;
    mixed_tensor weight = mixed_new(m, SB_FP32, d, "weight"), rstd = mixed_new(m, SB_FP32, ROWS, "rstd");
    if (!weight.p || !rstd.p)
        return;
    OWNED float *rows = xmalloc(size_of(n) * sizeof *rows), *ones = xmalloc(d * sizeof *ones);
    for (size_t j = 0; j < d; j++) {
        ones[j] = 1;
        for (size_t r = 0; r < ROWS; r++)
            rows[r * d + j] = n->host[j * ROWS + r];
    }
    mixed_upload(m, weight, ones, d);
    mixed_upload(m, n->x, rows, size_of(n));
    const sb_rmsnorm p = {.dtype = n->dtype,
                          .dtype_param = SB_FP32,
                          .rows = ROWS,
                          .d = n->d,
                          .eps = n->eps,
                          .x = n->x.p,
                          .weight = weight.p,
                          .y = n->y.p,
                          .rstd = rstd.p};
    if (mixed_ok(m, m->kernels->train->rmsnorm_forward(m->ctx, &p, device_stream(m->s->dev)))) {
        mixed_download(m, rows, n->y, size_of(n));
        comparison c = compare(n, rows, 1, d, false);
        row_real(m->w, "err_fused", sqrt(c.error / c.norm));
        judge(n, rows, 1, d, "the fused kernel");
    }
}

void mixed_run_norm(mixed *m)
{
    const char *statistics = case_text(m->c, "statistics");
    norm n = {.m = m,
              .layer = strcmp(case_text(m->c, "norm"), "layer") == 0,
              .own_sums = strcmp(statistics, "own-sums") == 0,
              .d = (int)case_int(m->c, "width"),
              .dtype = dtype_named(case_text(m->c, "dtype")),
              .eps = (float)case_real(m->c, "eps")};
    n.statistics = strcmp(statistics, "fp32") == 0 ? SB_FP32 : n.dtype;
    if (!norm_allocate(&n))
        return;
    norm_fill(&n, (float)case_real(m->c, "magnitude"));
    if (norm_run(&n)) {
        OWNED float *y = xmalloc(size_of(&n) * sizeof *y);
        mixed_download(m, y, n.y, size_of(&n));
        comparison c = compare(&n, y, ROWS, 1, false);
        row_real(m->w, "err_rel", sqrt(c.error / c.norm));
        row_int(m->w, "y_nonfinite", c.nonfinite);
        row_int(m->w, "squares_overflowed", n.overflowed_squares);
        row_int(m->w, "rows_overflowed", n.overflowed_rows);
        if (n.statistics == SB_FP32 && !n.own_sums)
            judge(&n, y, ROWS, 1, "the pieces");
        if (measure_eps(&n) && !n.layer)
            run_fused(&n);
    }
    free(n.host);
}
