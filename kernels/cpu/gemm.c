/* SPDX-License-Identifier: MIT */
/* fp32 matrix product: cblas_sgemm where a BLAS was found, otherwise a blocked loop. */
#include "kernels/cpu/cpu.h"

#ifdef HAVE_BLAS

#include <cblas.h>

void cpu_gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float *a, int lda,
              const float *b, int ldb, float beta, float *c, int ldc)
{
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans, m, n,
                k, alpha, a, lda, b, ldb, beta, c, ldc);
}

#else

#include <string.h>

/* A C tile of 4 x 8 sums stays in vector registers; packed panels of A (4 rows) and B (8 columns) stream past it. */
enum { TILE_M = 4, TILE_N = 8, BLOCK_M = 128, BLOCK_K = 256 };
typedef float vector __attribute__((vector_size(TILE_N * sizeof(float))));

/* out (k, width): element (p, i) is x[i*step_i + p*step_p], zero for i >= n. */
static void pack(float *out, int width, int n, int k, const float *x, size_t step_i, size_t step_p)
{
    for (int p = 0; p < k; p++)
        for (int i = 0; i < width; i++)
            out[p * width + i] = i < n ? x[i * step_i + p * step_p] : 0;
}

/* C (m <= 4, n <= 8) += alpha A B of panels a (k, 4) and b (k, 8). */
static void tile(int m, int n, int k, float alpha, const float *a, const float *b, float *c, int ldc)
{
    vector sum[TILE_M] = {0};
    for (int p = 0; p < k; p++) {
        vector row;
        memcpy(&row, b + p * TILE_N, sizeof row);
        for (int i = 0; i < TILE_M; i++)
            sum[i] += a[p * TILE_M + i] * row;
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            c[(size_t)i * ldc + j] += alpha * sum[i][j];
}

static int least(int x, int y)
{
    return x < y ? x : y;
}

void cpu_gemm(bool transpose_a, bool transpose_b, int m, int n, int k, float alpha, const float *a, int lda,
              const float *b, int ldb, float beta, float *c, int ldc)
{
    size_t a_row = transpose_a ? 1 : lda, a_column = transpose_a ? lda : 1;
    size_t b_row = transpose_b ? 1 : ldb, b_column = transpose_b ? ldb : 1;
    float packed_a[BLOCK_M * BLOCK_K], packed_b[BLOCK_K * TILE_N];

    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            c[(size_t)i * ldc + j] = beta == 0 ? 0 : beta * c[(size_t)i * ldc + j];
    for (int k0 = 0; k0 < k; k0 += BLOCK_K) {
        int kb = least(BLOCK_K, k - k0);
        for (int m0 = 0; m0 < m; m0 += BLOCK_M) {
            int mb = least(BLOCK_M, m - m0);
            for (int i = 0; i < mb; i += TILE_M)
                pack(packed_a + i * kb, TILE_M, mb - i, kb, a + (m0 + i) * a_row + k0 * a_column, a_row, a_column);
            for (int j = 0; j < n; j += TILE_N) {
                pack(packed_b, TILE_N, n - j, kb, b + k0 * b_row + j * b_column, b_column, b_row);
                for (int i = 0; i < mb; i += TILE_M)
                    tile(least(TILE_M, mb - i), least(TILE_N, n - j), kb, alpha, packed_a + i * kb, packed_b,
                         c + (size_t)(m0 + i) * ldc + j, ldc);
            }
        }
    }
}

#endif
