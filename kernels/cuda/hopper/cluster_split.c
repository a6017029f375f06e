/* SPDX-License-Identifier: MIT */
#include "kernels/cuda/hopper/cluster_split.h"

#include <cuda_runtime.h>
#include <math.h>

const int *count_clusters(sb_context *ctx, const void *kernel, int threads, int smem_bytes)
{
    if (ctx->clusters[0] == 0) {
        ctx->clusters[0] = ctx->sm_count;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
        for (int i = 1; i < 4; i++) {
            cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension};
            cluster.val.clusterDim.x = 1u << i, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
            const cudaLaunchConfig_t config = {.gridDim = {(unsigned)ctx->sm_count / 8 * 8, 1, 1},
                                               .blockDim = {(unsigned)threads, 1, 1},
                                               .dynamicSmemBytes = (size_t)smem_bytes,
                                               .attrs = &cluster,
                                               .numAttrs = 1};
            if (cudaOccupancyMaxActiveClusters(&ctx->clusters[i], kernel, &config) != cudaSuccess)
                ctx->clusters[i] = 0;
        }
        (void)cudaGetLastError();
    }
    return ctx->clusters;
}

double split_time(int64_t jobs, int longest, bool causal, double first, double later, int split, int at_once)
{
    const int64_t many = 64 * (int64_t)at_once; /* with this many rounds the last one hardly counts */
    const double each = (double)longest / split, fall = causal ? each / (double)jobs : 0;
    if (jobs > many)
        return first - later + (double)jobs * (later + (causal ? each / 2 : each)) / at_once;
    double time = 0;
    for (int64_t i = 0; i < jobs; i += 2 * at_once) {
        const int64_t next = i + at_once;
        double pair = each - fall * (double)i;
        if (next < jobs) /* the first of the second round follows the last of the first, and so on: all end together */
            pair = fmax(pair, later + 2 * each - fall * (double)(2 * next - 1));
        time += (i == 0 ? first : later) + pair;
    }
    return time;
}

int choose_split(int64_t jobs, int longest, bool causal, double fixed, const int *clusters)
{
    int best = 1;
    double best_time = INFINITY;
    for (int i = 0; i < 4 && (1 << i) <= longest && clusters[i] > 0; i++) {
        const double time = split_time(jobs, longest, causal, fixed, fixed + 1, 1 << i, clusters[i]);
        if (time < best_time)
            best = 1 << i, best_time = time;
    }
    return best;
}
