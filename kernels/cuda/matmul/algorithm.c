/* SPDX-License-Identifier: MIT */
/* Algorithms of our own kernels: which ones there are for a shape. A choice from a file may hold any bytes, so what is
 * accepted is what would be proposed here and now, on this GPU. And the name of any algorithm: cuBLASLt's enumerations are
 * part of the ABI and only grow; the newer values are in no older header, so they are spelled here by number. */
#include "kernels/cuda/matmul/algorithm.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/matmul/hopper/matmul16.h"
#include "kernels/cuda/matmul/hopper/matmul8.h"
#include "kernels/cuda/matmul/hopper/matmul_fp32.h"

/* A cluster's tile has 256 rows: below half of that most of its work would be lost. Rows of the result are whole units,
 * too: the engine that stores it writes 16 bytes at a time, also past the end of a row. */
enum { ROWS_16_LEAST = 128, ROW_UNIT = 8 };

static_assert((int)MATMUL_MAX_OWN >= (int)MATMUL_FP32_MAX_PROPOSALS &&
                  (int)MATMUL_MAX_OWN >= (int)MATMUL16_MAX_PROPOSALS &&
                  (int)MATMUL_MAX_OWN >= (int)MATMUL8_MAX_PROPOSALS,
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

int matmul_own_rows(const cublasLtMatmulAlgo_t *algorithm)
{
    return value_of(algorithm, MATMUL_OWN_8);
}

bool matmul_is_own(const cublasLtMatmulAlgo_t *algorithm)
{
    return matmul_own_cluster(algorithm) != 0 || matmul_own_columns(algorithm) != 0 || matmul_own_rows(algorithm) != 0;
}

static bool whole_units(const matmul_shape *s)
{
    const int rows[] = {s->lda, s->ldb, s->ldc, s->ldd}, pointers[] = {s->align_a, s->align_b, s->align_c, s->align_d};
    for (int i = 0; i < 4; i++)
        if (rows[i] % ROW_UNIT != 0 || pointers[i] < MATMUL_MAX_ALIGNMENT)
            return false;
    return true;
}

static bool suits_16(const matmul_shape *s)
{
    return (s->dtype == SB_BF16 || s->dtype == SB_FP16) && s->dtype_out == s->dtype && !s->transpose_a &&
           !s->device_scalars && s->m >= ROWS_16_LEAST && s->n % ROW_UNIT == 0 && whole_units(s);
}

/* Fast sums are the library's: they are other numbers, and there is less to do for them. */
static bool suits_8(const matmul_shape *s)
{
    return (s->dtype == SB_E4M3 || s->dtype == SB_E5M2) && s->dtype_b == SB_E4M3 && !s->fast_sums &&
           !s->device_scalars && whole_units(s);
}

int matmul_own_candidates(sb_context *ctx, const matmul_shape *s, cublasLtMatmulAlgo_t out[MATMUL_MAX_OWN])
{
    int values[MATMUL_MAX_OWN], count = 0;
    uint64_t kernel = MATMUL_OWN_FP32;
    if (s->own)
        count = matmul_fp32_propose(ctx, s->m, s->n, s->k, values);
    else if (suits_16(s))
        kernel = MATMUL_OWN_16, count = matmul16_propose(ctx, s->adds, values);
    else if (suits_8(s))
        kernel = MATMUL_OWN_8, count = matmul8_propose(ctx, values);
    for (int i = 0; i < count; i++) {
        const matmul_own own = {kernel, values[i]};
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

/* ---- names ---- */

int matmul_algorithm_get(const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute)
{
    /* Two attributes are 16 bits wide, the others 32; asked for the wrong size, the library answers with an error. */
    uint32_t wide = 0;
    uint16_t narrow = 0;
    size_t written;
    if (cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, &wide, sizeof wide, &written) ==
        CUBLAS_STATUS_SUCCESS)
        return (int)wide;
    if (cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, &narrow, sizeof narrow, &written) ==
        CUBLAS_STATUS_SUCCESS)
        return narrow;
    return 0;
}

typedef struct shape_id {
    short id, rows, columns;
} shape_id;

/* cublasLtMatmulTile_t, the tiles that large products use. */
static const shape_id tiles[] = {
    {11, 32, 32},    {12, 32, 64},    {13, 64, 32},    {14, 32, 128},   {15, 64, 64},    {16, 128, 32},
    {17, 64, 128},   {18, 128, 64},   {19, 64, 256},   {20, 128, 128},  {21, 256, 64},   {22, 64, 512},
    {23, 128, 256},  {24, 256, 128},  {25, 512, 64},   {26, 64, 96},    {27, 96, 64},    {28, 96, 128},
    {29, 128, 160},  {30, 160, 128},  {31, 192, 128},  {32, 128, 192},  {33, 128, 96},   {34, 32, 256},
    {35, 256, 32},   {71, 32, 192},   {72, 32, 320},   {73, 32, 384},   {74, 32, 448},   {75, 32, 512},
    {116, 64, 192},  {117, 64, 320},  {118, 64, 384},  {119, 64, 448},  {151, 96, 192},  {152, 96, 256},
    {153, 96, 320},  {154, 96, 384},  {155, 96, 448},  {156, 96, 512},  {176, 128, 320}, {177, 128, 384},
    {193, 160, 64},  {194, 160, 192}, {195, 160, 256}, {208, 192, 64},  {209, 192, 192}, {210, 192, 256},
    {220, 224, 64},  {221, 224, 128}, {222, 224, 192}, {232, 256, 192}, {239, 288, 64},  {240, 288, 128},
    {247, 320, 64},  {248, 320, 128}, {255, 352, 64},  {256, 352, 128}, {263, 384, 64},  {264, 384, 128},
    {268, 416, 64},  {272, 448, 64},  {276, 480, 64},  {326, 64, 160},  {333, 64, 224},  {340, 64, 288},
    {347, 64, 352},  {354, 64, 416},  {361, 64, 480},  {414, 128, 224}, {421, 128, 288}, {428, 128, 352},
    {435, 128, 416}, {439, 128, 448}, {443, 128, 480}, {447, 128, 512}, {451, 192, 32},  {458, 192, 96},
    {465, 192, 160}, {472, 192, 224}, {479, 192, 288}, {483, 192, 320}, {495, 256, 96},  {502, 256, 160},
    {509, 256, 224}, {513, 256, 256}, {517, 320, 32},  {524, 320, 96},  {531, 320, 160}, {535, 320, 192},
    {540, 384, 32},  {547, 384, 96},  {554, 384, 160}, {559, 448, 32},  {566, 448, 96},  {570, 448, 128},
    {576, 512, 32},  {583, 512, 96},  {587, 512, 128}};

/* cublasLtClusterShape_t, the usual ones. */
static const shape_id clusters[] = {{2, 1, 1},  {3, 2, 1},  {4, 4, 1},  {5, 1, 2},   {6, 2, 2},
                                    {7, 4, 2},  {8, 1, 4},  {9, 2, 4},  {10, 4, 4},  {11, 8, 1},
                                    {12, 1, 8}, {13, 8, 2}, {14, 2, 8}, {15, 16, 1}, {16, 1, 16}};

static void shape_text(const shape_id *list, size_t count, int id, char *out, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].id == id) {
            snprintf(out, bytes, "%dx%d", list[i].rows, list[i].columns);
            return;
        }
    snprintf(out, bytes, id == 0 ? "auto" : "?%d", id);
}

/* cublasLtMatmulStages_t: depth of a stage in elements of k, and how many; six of each depth, later whole families. */
static void stages_text(int id, char *out, size_t bytes)
{
    if (id >= 1 && id <= 24)
        snprintf(out, bytes, "%dx%d", 16 << (id - 1) / 6, (id - 1) % 6 + 1);
    else if (id >= 32 && id <= 37)
        snprintf(out, bytes, "%dxauto", 8 << (id - 32));
    else
        snprintf(out, bytes, id == 0 ? "auto" : "?%d", id);
}

void matmul_algorithm_name(const cublasLtMatmulAlgo_t *algorithm, char *out, size_t bytes)
{
    char tile[16], cluster[16], stages[16];
    if (matmul_own_cluster(algorithm) != 0) {
        snprintf(out, bytes, "own 128x128 cluster %d", matmul_own_cluster(algorithm));
        return;
    }
    if (matmul_own_columns(algorithm) != 0) {
        snprintf(out, bytes, "own %dx128 cluster 1x2", matmul_own_columns(algorithm));
        return;
    }
    if (matmul_own_rows(algorithm) != 0) {
        snprintf(out, bytes, "own codes 128x%d cluster 2x1", matmul_own_rows(algorithm));
        return;
    }
    const int split = matmul_algorithm_get(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    shape_text(tiles, sizeof tiles / sizeof *tiles, matmul_algorithm_get(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID), tile,
               sizeof tile);
    shape_text(clusters, sizeof clusters / sizeof *clusters,
               matmul_algorithm_get(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID), cluster, sizeof cluster);
    stages_text(matmul_algorithm_get(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID), stages, sizeof stages);
    snprintf(out, bytes, "#%d %s cluster %s stages %s splitk %d%s",
             matmul_algorithm_get(algorithm, CUBLASLT_ALGO_CONFIG_ID), tile, cluster, stages, split > 1 ? split : 1,
             matmul_algorithm_get(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING) ? " swizzle" : "");
}
