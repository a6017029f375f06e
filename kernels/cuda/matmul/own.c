/* SPDX-License-Identifier: MIT */
/* Algorithms of our own kernels: which ones there are for a shape. A choice from a file may hold any bytes, so what is
 * accepted is what would be proposed here and now, on this GPU. */
#include "kernels/cuda/matmul/own.h"

#include <assert.h>
#include <string.h>

#include "kernels/cuda/matmul/hopper/matmul16.h"
#include "kernels/cuda/matmul/hopper/matmul_fp32.h"
#include "kernels/cuda/matmul/plan.h"

/* A cluster's tile has 256 rows: below half of that most of its work would be lost. Rows of the result are whole units,
 * too: the engine that stores it writes 16 bytes at a time, also behind the end of a row. */
enum { ROWS_16_LEAST = 128, ROW_UNIT_16 = 8 };

static_assert((int)MATMUL_MAX_OWN >= (int)MATMUL_FP32_MAX_PROPOSALS &&
                  (int)MATMUL_MAX_OWN >= (int)MATMUL16_MAX_PROPOSALS,
              "room for all");

static int value_of(const cublasLtMatmulAlgo_t *algorithm, uint64_t kernel)
{
    matmul_own own;
    memcpy(&own, algorithm, sizeof own);
    return own.kernel == kernel ? (int)own.value : 0;
}

int matmul_own_cluster(const cublasLtMatmulAlgo_t *algorithm)
{
    return value_of(algorithm, MATMUL_OWN_FP32);
}

int matmul_own_columns(const cublasLtMatmulAlgo_t *algorithm)
{
    return value_of(algorithm, MATMUL_OWN_16);
}

bool matmul_is_own(const cublasLtMatmulAlgo_t *algorithm)
{
    return matmul_own_cluster(algorithm) != 0 || matmul_own_columns(algorithm) != 0;
}

static bool whole_units_16(const matmul_shape *s)
{
    const int rows[] = {s->lda, s->ldb, s->ldc, s->ldd}, pointers[] = {s->align_a, s->align_b, s->align_c, s->align_d};
    for (int i = 0; i < 4; i++)
        if (rows[i] % ROW_UNIT_16 != 0 || pointers[i] < MATMUL_MAX_ALIGNMENT)
            return false;
    return true;
}

static bool suits_16(const matmul_shape *s)
{
    return (s->dtype == SB_BF16 || s->dtype == SB_FP16) && s->dtype_out == s->dtype && !s->transpose_a &&
           !s->device_scalars && s->m >= ROWS_16_LEAST && s->n % ROW_UNIT_16 == 0 && whole_units_16(s);
}

int matmul_own_candidates(sb_context *ctx, const matmul_shape *s, cublasLtMatmulAlgo_t out[MATMUL_MAX_OWN])
{
    int values[MATMUL_MAX_OWN], count = 0;
    if (s->own)
        count = matmul_fp32_propose(ctx, s->m, s->n, s->k, values);
    else if (suits_16(s))
        count = matmul16_propose(ctx, s->adds, values);
    for (int i = 0; i < count; i++) {
        const matmul_own own = {s->own ? MATMUL_OWN_FP32 : MATMUL_OWN_16, values[i]};
        memset(&out[i], 0, sizeof out[i]);
        memcpy(&out[i], &own, sizeof own);
    }
    return count;
}

bool matmul_own_accepts(sb_context *ctx, const matmul_shape *s, const cublasLtMatmulAlgo_t *algorithm)
{
    cublasLtMatmulAlgo_t candidates[MATMUL_MAX_OWN];
    const int count = matmul_own_candidates(ctx, s, candidates);
    for (int i = 0; i < count; i++)
        if (memcmp(&candidates[i], algorithm, sizeof *algorithm) == 0)
            return true;
    return false;
}
