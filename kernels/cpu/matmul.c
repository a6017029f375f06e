/* SPDX-License-Identifier: MIT */
/* D = op(A) op(B) + C. fp32 is one call of the BLAS. Other dtypes go tile by tile through fp32 copies on the stack, so
 * that no workspace is needed: a tile of D stays in fp32 until all of k is summed, and is rounded once. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/float8_matmul.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TILE = 128, TILE_K = 256 };

/* Rows and columns of a stored matrix, from (row, column) on. */
typedef struct window {
    int row, column, rows, columns;
} window;

/* To (columns, rows) of a stored operand's window, rounded as products of the dtype are. */
static void load_operand(const sb_matmul *p, const void *x, int ld, window w, float *out)
{
    for (int i = 0; i < w.rows; i++) {
        size_t element = (size_t)(w.row + i) * ld + w.column;
        cpu_load(p->dtype, out + (size_t)i * w.columns, (const char *)x + element * sb_dtype_bytes(p->dtype),
                 w.columns);
    }
}

static window window_of(bool transpose, int row, int column, int rows, int columns)
{
    return transpose ? (window){column, row, columns, rows} : (window){row, column, rows, columns};
}

static void one_tile(const sb_matmul *p, int i0, int j0)
{
    float a[TILE * TILE_K], b[TILE_K * TILE], sum[TILE * TILE];
    const int rows = p->m - i0 < TILE ? p->m - i0 : TILE, columns = p->n - j0 < TILE ? p->n - j0 : TILE;

    for (int i = 0; p->c && i < rows; i++)
        cpu_read(p->dtype_out, sum + (size_t)i * columns, p->c, (size_t)(i0 + i) * p->ldc + j0, columns);
    for (int k0 = 0; k0 < p->k; k0 += TILE_K) {
        const int depth = p->k - k0 < TILE_K ? p->k - k0 : TILE_K;
        const window in_a = window_of(p->transpose_a, i0, k0, rows, depth);
        const window in_b = window_of(p->transpose_b, k0, j0, depth, columns);
        load_operand(p, p->a, p->lda, in_a, a);
        load_operand(p, p->b, p->ldb, in_b, b);
        cpu_gemm(p->transpose_a, p->transpose_b, rows, columns, depth, 1, a, in_a.columns, b, in_b.columns,
                 p->c || k0 > 0 ? 1 : 0, sum, columns);
    }
    for (int i = 0; i < rows; i++)
        cpu_write(p->dtype_out, p->d, (size_t)(i0 + i) * p->ldd + j0, sum + (size_t)i * columns, columns);
}

static void fp32_product(const sb_matmul *p)
{
    const float *c = p->c;
    float *d = p->d;
    for (int i = 0; c && c != d && i < p->m; i++)
        memcpy(d + (size_t)i * p->ldd, c + (size_t)i * p->ldc, p->n * sizeof *d);
    cpu_gemm(p->transpose_a, p->transpose_b, p->m, p->n, p->k, 1, p->a, p->lda, p->b, p->ldb, c ? 1 : 0, d, p->ldd);
}

sb_status cpu_matmul(sb_context *ctx, const sb_matmul *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_matmul_check(p));
    if (p->dtype == SB_E4M3 || p->dtype == SB_E5M2) {
        cpu_float8_matmul(p);
        return SB_OK;
    }
    if (p->dtype == SB_FP32) {
        fp32_product(p);
        return SB_OK;
    }
    for (int i = 0; i < p->m; i += TILE)
        for (int j = 0; j < p->n; j += TILE)
            one_tile(p, i, j);
    return SB_OK;
}

size_t cpu_matmul_workspace(sb_context *ctx, const sb_matmul *p)
{
    (void)ctx, (void)p;
    return 0;
}

/* There is one algorithm; its time is measured all the same, for the reports. */
sb_status cpu_matmul_tune(sb_context *ctx, const sb_matmul *p, sb_matmul_choice *chosen, sb_matmul_choice *rivals,
                          int most, void *stream)
{
    for (int i = 0; i < most; i++)
        rivals[i] = (sb_matmul_choice){0};
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    sb_status s = cpu_matmul(ctx, p, stream);
    clock_gettime(CLOCK_MONOTONIC, &after);
    if (s != SB_OK)
        return s;
    float ms = (float)((after.tv_sec - before.tv_sec) * 1e3 + (after.tv_nsec - before.tv_nsec) * 1e-6);
    *chosen = (sb_matmul_choice){.ms = ms, .first_ms = ms, .tried = 1};
#ifdef HAVE_BLAS
    snprintf(chosen->name, sizeof chosen->name, "cblas");
#else
    snprintf(chosen->name, sizeof chosen->name, "loops");
#endif
    return SB_OK;
}

sb_status cpu_matmul_choose(sb_context *ctx, const sb_matmul *p, const sb_matmul_choice *chosen)
{
    (void)ctx, (void)p, (void)chosen;
    return SB_OK;
}
