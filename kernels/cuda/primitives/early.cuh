/* SPDX-License-Identifier: MIT */
/* Kernels that start before the one ahead of them in the stream has ended (programmatic dependent launch, from compute capability
 * 9.0 on): their blocks are placed while its last ones run, and wait there. For the short kernels between the products of a step,
 * which take no longer than their launch. CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization". */
#ifndef STEPBENCH_CUDA_PRIMITIVES_EARLY_CUH
#define STEPBENCH_CUDA_PRIMITIVES_EARLY_CUH

#include "kernels/cuda/runtime/context.h"

/* First of all, in every thread: nothing of the kernels ahead may be read or overwritten before. And the end of this kernel is then the
 * end of all before it. */
__device__ __forceinline__ void wait_if_early()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); /* the next one waits likewise */
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* A kernel that calls wait_if_early. */
template <class... PARAMS, class... ARGUMENTS>
void launch_early(const sb_context *ctx, void (*kernel)(PARAMS...), dim3 grid, dim3 threads, size_t smem_bytes,
                  cudaStream_t stream, ARGUMENTS... arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = threads, config.dynamicSmemBytes = smem_bytes, config.stream = stream;
    config.attrs = &early, config.numAttrs = ctx->starts_early;
    cudaLaunchKernelEx(&config, kernel, PARAMS(arguments)...); /* sb_cuda_launched has its status */
}

#endif
