/* SPDX-License-Identifier: MIT */
/* Kernels that start before the one ahead of them in the stream has ended (programmatic dependent launch, from compute capability
 * 9.0 on; before that the functions do nothing): their blocks are placed while its last ones run, and wait there. CUDA C++ Programming
 * Guide, "Programmatic Dependent Launch and Synchronization". */
#pragma once

#include "kernels/cuda/runtime/context.h"

/* Until the kernels ahead are complete and their writes are visible. Every kernel of a chain must wait, so that the end of the last
 * one means the end of all. */
__device__ __forceinline__ void wait_for_previous_kernel()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* The next kernel may be launched as soon as every block has said so. */
__device__ __forceinline__ void let_next_kernel_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/* Does both. A short kernel between the products of a step, which takes no longer than its launch, calls it first in every thread. */
__device__ __forceinline__ void wait_if_early()
{
    let_next_kernel_start();
    wait_for_previous_kernel();
}

/* A kernel that waits; `may`: whether the device can start it early, see sb_context. */
template <class... PARAMS, class... ARGUMENTS>
void launch_early_if(bool may, void (*kernel)(PARAMS...), dim3 grid, dim3 threads, size_t smem_bytes,
                     cudaStream_t stream, ARGUMENTS... arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = threads, config.dynamicSmemBytes = smem_bytes, config.stream = stream;
    config.attrs = &early, config.numAttrs = may;
    cudaLaunchKernelEx(&config, kernel, PARAMS(arguments)...); /* sb_cuda_launched has its status */
}

template <class... PARAMS, class... ARGUMENTS>
void launch_early(const sb_context *ctx, void (*kernel)(PARAMS...), dim3 grid, dim3 threads, size_t smem_bytes,
                  cudaStream_t stream, ARGUMENTS... arguments)
{
    launch_early_if(ctx->starts_early, kernel, grid, threads, smem_bytes, stream, arguments...);
}
