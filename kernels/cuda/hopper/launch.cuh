/* SPDX-License-Identifier: MIT */
/* Launching a Hopper kernel: large shared memory, clusters, and starting before the kernel ahead has ended. */
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/runtime/context.h"

/* The kernel may be launched before the one ahead of it has ended: it must wait itself (wait_for_previous_kernel). */
template <class PARAMS>
sb_status launch_hopper(const char *what, void (*kernel)(PARAMS), dim3 grid, unsigned threads, int smem_bytes,
                        int cluster, cudaStream_t stream, const PARAMS &params)
{
    if (smem_bytes > 48 << 10) {
        const sb_status st =
            sb_cuda_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes), what);
        if (st)
            return st;
    }
    cudaLaunchAttribute attribute[2] = {};
    unsigned count = 0;
    if (cluster > 1) {
        attribute[count].id = cudaLaunchAttributeClusterDimension;
        attribute[count].val.clusterDim.x = cluster;
        attribute[count].val.clusterDim.y = attribute[count].val.clusterDim.z = 1;
        count++;
    }
    attribute[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[count].val.programmaticStreamSerializationAllowed = 1;
    count++;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = dim3(threads);
    config.dynamicSmemBytes = smem_bytes, config.stream = stream;
    config.attrs = attribute, config.numAttrs = count;
    return sb_cuda_status(cudaLaunchKernelEx(&config, kernel, params), what);
}
