/* SPDX-License-Identifier: MIT */
/* Whether this build's code for the device may start before the kernel ahead of it has ended; see primitives/early.cuh. */
#include "kernels/cuda/runtime/context.h"

namespace
{

/* Never launched: what is asked of it holds for all kernels that are built for the same architectures. */
__global__ void asked_kernel() {}

} // namespace

extern "C" cudaError_t sb_cuda_starts_early(int cc_major, bool *early)
{
    cudaFuncAttributes of;
    *early = false;
    const cudaError_t e = cudaFuncGetAttributes(&of, asked_kernel);
    if (e == cudaSuccess)
        *early = cc_major >= 9 && of.ptxVersion >= 90; /* __CUDA_ARCH__ of the code */
    return e;
}
