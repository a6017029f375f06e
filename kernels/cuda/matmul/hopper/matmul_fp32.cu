/* SPDX-License-Identifier: MIT */
/* Host side of the fp32 matmul for Hopper: what it can run, how many blocks share tiles, launch. */
#include "kernels/cuda/matmul/hopper/matmul_fp32.h"

#include <algorithm>
#include <climits>

#include "kernels/cuda/hopper/cluster_split.h"
#include "kernels/cuda/hopper/launch.cuh"
#include "kernels/cuda/matmul/hopper/matmul_fp32.cuh"

using namespace matmul_fp32;

namespace
{

constexpr double MERGE_STEPS = 2; /* what a merge takes, counted in steps of the loop */
constexpr double STORE_STEPS = 0.5;

typedef void (*kernel_fn)(params);

kernel_fn kernel_of(bool a_rows, bool b_rows)
{
    return a_rows ? (b_rows ? matmul_fp32_kernel<true, true> : matmul_fp32_kernel<true, false>)
                  : (b_rows ? matmul_fp32_kernel<false, true> : matmul_fp32_kernel<false, false>);
}

int64_t parts(int x, int unit)
{
    return ((int64_t)x + unit - 1) / unit;
}

/* Clusters of 1, 2, 4 and 8 blocks that run at once. */
const int *clusters_at_once(sb_context *ctx)
{
    return count_clusters(ctx, (const void *)kernel_of(false, false), THREADS, SMEM_BYTES);
}

bool aligned(const void *p, int ld, int columns)
{
    return (uintptr_t)p % 16 == 0 && ld % 4 == 0 && columns % 4 == 0 && ld < INT_MAX / 4;
}

/* How many floats one access can take, in every row from p on. */
int width_of(const void *p, int ld)
{
    return (uintptr_t)p % 16 == 0 && ld % 4 == 0 ? 4 : (uintptr_t)p % 8 == 0 && ld % 2 == 0 ? 2 : 1;
}

/* Steps until the last cluster is done: it has the most tiles, and its blocks share them evenly. */
double steps_needed(int64_t tiles, int64_t steps, int cluster, int at_once)
{
    const int64_t most = (tiles + at_once - 1) / at_once;
    return (double)((most * steps + cluster - 1) / cluster) + STORE_STEPS * most / cluster +
           (cluster > 1 ? MERGE_STEPS : 0);
}

} // namespace

extern "C" bool matmul_fp32_supports(const sb_context *ctx, const sb_matmul *p)
{
    return ctx->cc_major == 9 && ctx->cc_minor == 0 && ctx->smem_optin_bytes >= SMEM_BYTES &&
           aligned(p->a, p->lda, p->transpose_a ? p->m : p->k) && aligned(p->b, p->ldb, p->transpose_b ? p->k : p->n) &&
           p->m <= INT_MAX - TILE && p->n <= INT_MAX - TILE && p->k <= INT_MAX - STEP &&
           (double)parts(p->m, TILE) * (double)parts(p->n, TILE) * (double)parts(p->k, STEP) < (double)INT_MAX;
}

extern "C" int matmul_fp32_propose(sb_context *ctx, int m, int n, int k, int cluster[MATMUL_FP32_MAX_PROPOSALS])
{
    const int *const at_once = clusters_at_once(ctx);
    const int64_t tiles = parts(m, TILE) * parts(n, TILE), steps = parts(k, STEP);
    double time[MATMUL_FP32_MAX_PROPOSALS];
    int count = 0;
    for (int i = 0; i < 4; i++) {
        const int size = 1 << i;
        if (i > 0 && (at_once[i] < 1 || steps < size))
            continue;
        const double t = steps_needed(tiles, steps, size, at_once[i]);
        int j = count++;
        for (; j > 0 && time[j - 1] > t; j--)
            time[j] = time[j - 1], cluster[j] = cluster[j - 1];
        time[j] = t, cluster[j] = size;
    }
    return count;
}

extern "C" sb_status matmul_fp32_run(sb_context *ctx, const sb_matmul *x, int cluster, void *stream)
{
    params p = {};
    p.a = {(const float *)x->a, x->m, 4u * (unsigned)x->lda};
    p.b = {(const float *)x->b, x->n, 4u * (unsigned)x->ldb};
    p.c = (const float *)x->c, p.d = (float *)x->d;
    p.ldc = x->ldc, p.ldd = x->ldd;
    p.m = x->m, p.n = x->n, p.k = x->k;
    p.steps = (int)parts(x->k, STEP);
    p.tiles_m = (int)parts(x->m, TILE);
    p.tiles = p.tiles_m * (int)parts(x->n, TILE);
    p.width = std::min(width_of(x->d, x->ldd), x->c ? width_of(x->c, x->ldc) : 4);
    int index = 0;
    while (1 << index < cluster)
        index++;
    const int clusters = std::min(p.tiles, clusters_at_once(ctx)[index]);
    return launch_hopper("fp32 matmul (Hopper)", kernel_of(x->transpose_a, !x->transpose_b), dim3(clusters * cluster),
                         THREADS, SMEM_BYTES, cluster, (cudaStream_t)stream, p);
}
