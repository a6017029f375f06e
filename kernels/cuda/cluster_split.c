#include "kernels/cuda/cluster_split.h"

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

int choose_split(int64_t jobs, int longest, bool causal, double fixed, const int *clusters)
{
    const double work = (double)jobs * longest * (causal ? 0.5 : 1.0);
    int best = 1;
    double best_time = INFINITY;
    for (int i = 0; i < 4 && (1 << i) <= longest && clusters[i] > 0; i++) {
        const double split = 1 << i, at_once = clusters[i];
        double time = fixed + longest / split;
        if ((double)jobs > at_once) {
            /* the first of a second round follows the last of the first; and the sum has to fit */
            const double next = longest * (causal ? 1 - at_once / (double)jobs : 1.0);
            time = fmax(time, fmax(2 * (fixed + next / split), ((double)jobs * fixed + work / split) / at_once));
        }
        if (time < best_time)
            best = 1 << i, best_time = time;
    }
    return best;
}
