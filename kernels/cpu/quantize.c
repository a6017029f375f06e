/* SPDX-License-Identifier: MIT */
/* Largest magnitudes and casts to float8, group by group: the readable reference of kernels/cuda/layers/quantize.cu. Both
 * copies are made by the same loops, which see x or its transpose. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/float8.h"
#include "kernels/shared/train_check.h"

#include "common/core/numeric.h"

#include <stdlib.h>
#include <string.h>

sb_status cpu_float8_supported(sb_context *ctx, sb_scaling scaling)
{
    (void)ctx, (void)scaling;
    return SB_OK;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* h or d_gate_up. */
static sb_status make_swiglu(const sb_quantize *p, void *made)
{
    const bool gradient = p->from.source == SB_FROM_SWIGLU_GRADIENT;
    const sb_swiglu op = {.dtype = p->dtype,
                          .rows = p->rows,
                          .f = gradient ? p->columns / 2 : p->columns,
                          .gate_up = p->x,
                          .dh = p->from.dh,
                          .h = gradient ? NULL : made,
                          .d_gate_up = gradient ? made : NULL};
    return gradient ? cpu_swiglu_backward(NULL, &op, NULL) : cpu_swiglu_forward(NULL, &op, NULL);
}

static sb_status make_norm(const sb_quantize *p, void *made)
{
    const size_t bytes = (size_t)sb_dtype_bytes(p->dtype);
    for (int i = 0; i < p->rows; i++) {
        float rstd = p->from.rstd[i];
        const sb_rmsnorm op = {.dtype = p->dtype,
                               .dtype_param = p->dtype,
                               .d = p->columns,
                               .x = (const char *)p->x + (size_t)i * p->ld * bytes,
                               .weight = p->from.gain,
                               .y = (char *)made + (size_t)i * p->columns * bytes,
                               .rstd = &rstd};
        cpu_rmsnorm_output(&op, 0);
    }
    return SB_OK;
}

static sb_status make_turned_back(const sb_quantize *p, void *made)
{
    const size_t bytes = (size_t)sb_dtype_bytes(p->dtype);
    for (int i = 0; i < p->rows; i++) {
        char *row = (char *)made + (size_t)i * p->columns * bytes;
        memcpy(row, (const char *)p->x + (size_t)i * p->ld * bytes, (size_t)p->columns * bytes);
        const sb_rope op = {.dtype = p->dtype,
                            .batch = 1,
                            .seq = 1,
                            .heads = p->from.turned / p->from.head_dim,
                            .head_dim = p->from.head_dim,
                            .x = {.data = row, .stride_h = p->from.head_dim},
                            .table = p->from.table + (size_t)(i % p->from.seq) * p->from.head_dim,
                            .inverse = true};
        if (op.heads > 0)
            SB_TRY(cpu_rope(NULL, &op, NULL));
    }
    return SB_OK;
}

/* What is cast is made as its own op makes it, in memory that the caller gives back, and becomes x. */
static sb_status make_matrix(sb_quantize *p, void **made)
{
    *made = malloc((size_t)p->rows * (size_t)p->columns * (size_t)sb_dtype_bytes(p->dtype));
    if (!*made)
        return sb_error(SB_NO_MEMORY, "no memory for the matrix that is cast");
    const sb_status s = (p->from.source == SB_FROM_RMSNORM         ? make_norm
                         : p->from.source == SB_FROM_ROPE_GRADIENT ? make_turned_back
                                                                   : make_swiglu)(p, *made);
    p->from.source = SB_FROM_X, p->x = *made, p->ld = p->columns;
    return s;
}

sb_status cpu_amax(sb_context *ctx, const sb_amax *p, void *stream)
{
    (void)ctx, (void)stream;
    sb_status s = sb_amax_check(p);
    if (s == SB_OK && p->from.source != SB_FROM_X) {
        sb_amax of = *p;
        sb_quantize as = {
            .dtype = p->dtype, .from = p->from, .rows = p->rows, .columns = p->columns, .ld = p->ld, .x = p->x};
        void *made;
        s = make_matrix(&as, &made);
        of.from = as.from, of.x = made, of.ld = p->columns;
        s = s == SB_OK ? cpu_amax(NULL, &of, NULL) : s;
        free(made);
        return s;
    }
    if (s != SB_OK)
        return s;
    uint32_t all = 0;
    for (int j = 0; p->of_columns && j < p->columns; j++)
        p->of_columns[j] = 0;
    for (int i = 0; i < p->rows; i++) {
        float x[CPU_BLOCK];
        uint32_t row = 0;
        for (int j = 0; j < p->columns; j++) {
            if (j % CPU_BLOCK == 0)
                cpu_read(p->dtype, x, p->x, (size_t)i * p->ld + j, (size_t)cpu_block((size_t)j, (size_t)p->columns));
            const uint32_t bits = sb_float8_magnitude(float_bits(x[j % CPU_BLOCK]));
            row = larger(row, bits);
            if (p->of_columns)
                p->of_columns[j] = larger(p->of_columns[j], bits);
        }
        if (p->of_rows)
            p->of_rows[i] = row;
        all = larger(all, row);
    }
    if (p->of_all)
        *p->of_all = all;
    return SB_OK;
}

/* One of the two copies that are made of x. */
typedef struct copy {
    const sb_quantize *p;
    bool transposed;
    sb_scaling scaling;
    int rows, columns, ld; /* of the copy */
    const uint32_t *amax;
    uint8_t *codes;
    float *scales;
    uint32_t *counts;
} copy;

/* Elements that share a scale: rows and columns from (row, column) on. */
typedef struct group {
    int row, column, rows, columns;
} group;

static float element(const copy *c, int i, int j)
{
    float x;
    cpu_read(c->p->dtype, &x, c->p->x, c->transposed ? (size_t)j * c->p->ld + i : (size_t)i * c->p->ld + j, 1);
    return x;
}

/* The rows and columns of a whole group. */
static group size_of_groups(const copy *c)
{
    switch (c->scaling) {
    case SB_SCALE_NONE:
    case SB_SCALE_TENSOR: break;
    case SB_SCALE_ROW: return (group){.rows = 1, .columns = c->columns};
    case SB_SCALE_1X128: return (group){.rows = 1, .columns = SB_FLOAT8_BLOCK};
    case SB_SCALE_128X128: return (group){.rows = SB_FLOAT8_BLOCK, .columns = SB_FLOAT8_BLOCK};
    case SB_SCALE_1X32: return (group){.rows = 1, .columns = SB_FLOAT8_MX_BLOCK};
    }
    return (group){.rows = c->rows, .columns = c->columns};
}

static uint32_t amax_of(const copy *c, const group *g)
{
    uint32_t largest = 0;
    for (int i = g->row; i < g->row + g->rows; i++)
        for (int j = g->column; j < g->column + g->columns; j++)
            largest = larger(largest, sb_float8_magnitude(float_bits(element(c, i, j))));
    return largest;
}

static void cast(const copy *c, const group *g)
{
    const bool given = c->scaling == SB_SCALE_TENSOR || c->scaling == SB_SCALE_ROW, e4m3 = c->p->format == SB_E4M3;
    const size_t place = sb_scale_place(c->scaling, c->rows, c->columns, g->row, g->column);
    const uint32_t scale = sb_float8_scale_bits(given ? c->amax[place] : amax_of(c, g), c->p->format);
    const float factor = float_of_bits(sb_float8_inverse_bits(scale)), most = e4m3 ? 448 : 57344;
    c->scales[place] = float_of_bits(scale);
    for (int i = g->row; i < g->row + g->rows; i++)
        for (int j = g->column; j < g->column + g->columns; j++) {
            const float x = element(c, i, j), scaled = x * factor;
            uint8_t *code = &c->codes[(size_t)i * c->ld + j];
            if (!isfinite(x) || isnan(scaled)) {
                *code = 0x7f;
                continue;
            }
            const float clamped = scaled > most ? most : scaled < -most ? -most : scaled;
            *code = e4m3 ? e4m3_from_float(clamped) : e5m2_from_float(clamped);
            if (c->counts) {
                c->counts[0] += clamped != scaled;
                c->counts[1] += x != 0 && (*code & 0x7f) == 0;
            }
        }
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static void make_copy(const copy *c)
{
    const group whole = size_of_groups(c);
    if (c->scaling == SB_SCALE_128X128) /* also what is beyond the last block */
        memset(c->scales, 0, sb_scale_count(SB_SCALE_128X128, c->rows, c->columns) * sizeof *c->scales);
    for (int i = 0; i < c->rows; i += whole.rows)
        for (int j = 0; j < c->columns; j += whole.columns) {
            const group g = {i, j, least(whole.rows, c->rows - i), least(whole.columns, c->columns - j)};
            cast(c, &g);
        }
}

static sb_status raise_largest(const sb_quantize *p)
{
    uint32_t now;
    const sb_amax all = {
        .dtype = p->dtype, .rows = p->rows, .columns = p->columns, .ld = p->ld, .x = p->x, .of_all = &now};
    const sb_status s = cpu_amax(NULL, &all, NULL);
    *p->largest = larger(*p->largest, now);
    return s;
}

sb_status cpu_quantize(sb_context *ctx, const sb_quantize *p, void *stream)
{
    (void)ctx, (void)stream;
    sb_status s = sb_quantize_check(p);
    if (s == SB_OK && p->from.source != SB_FROM_X) {
        sb_quantize of = *p;
        void *made;
        s = make_matrix(&of, &made);
        s = s == SB_OK ? cpu_quantize(NULL, &of, NULL) : s;
        free(made);
        return s;
    }
    if (s != SB_OK)
        return s;
    if (p->largest)
        s = raise_largest(p);
    const uint32_t *words = p->again ? p->largest : p->amax; /* what a cast with the guess makes need not be made */
    const copy row = {p, false, p->scaling, p->rows, p->columns, p->ld_y, words, p->y, p->scales, p->counts};
    const copy transposed = {p,
                             true,
                             p->scaling_t ? p->scaling_t : p->scaling,
                             p->columns,
                             p->rows,
                             p->ld_t,
                             p->scaling == SB_SCALE_TENSOR ? words : p->amax_t,
                             p->y_t,
                             p->scales_t,
                             p->y ? NULL : p->counts};
    if (p->y)
        make_copy(&row);
    if (p->y_t)
        make_copy(&transposed);
    return s;
}

sb_status cpu_float8_history(sb_context *ctx, const sb_float8_history *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_float8_history_check(p));
    const size_t n = (size_t)p->n, window = (size_t)p->window;
    for (size_t i = 0; i < n; i++) {
        const uint32_t now = p->largest[i];
        if (now > 0 && now < 0x7f800000u) {
            for (size_t j = window - 1; j > 0; j--)
                p->history[j * n + i] = p->history[(j - 1) * n + i];
            p->history[i] = now;
        }
        p->used[i] = 0;
        for (size_t j = 0; j < window; j++)
            p->used[i] = larger(p->used[i], p->history[j * n + i]);
        p->largest[i] = 0;
    }
    return SB_OK;
}

static void transpose_scales(const sb_codes *p)
{
    const int ld = sb_float8_square_ld(p->columns), ld_t = sb_float8_square_ld(p->rows);
    memset(p->scales_t, 0, sb_scale_count(p->scaling, p->columns, p->rows) * sizeof *p->scales_t);
    for (int i = 0; i * SB_FLOAT8_BLOCK < p->rows; i++)
        for (int j = 0; j * SB_FLOAT8_BLOCK < p->columns; j++)
            p->scales_t[j * ld_t + i] = p->scales[i * ld + j];
}

sb_status cpu_transpose_codes(sb_context *ctx, const sb_codes *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_codes_check(p));
    const uint8_t *x = p->x;
    uint8_t *y = p->y_t;
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->columns; j++)
            y[(size_t)j * p->rows + i] = x[(size_t)i * p->columns + j];
    if (p->scaling == SB_SCALE_TENSOR)
        p->scales_t[0] = p->scales[0];
    else
        transpose_scales(p);
    return SB_OK;
}
