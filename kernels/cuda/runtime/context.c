/* SPDX-License-Identifier: MIT */
/* Creates and destroys the CUDA context, and turns CUDA and cuBLAS errors into sb_status. */
#include "kernels/cuda/runtime/context.h"

#include <stdlib.h>

sb_status sb_cuda_status(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return SB_OK;
    if (e == cudaErrorNoKernelImageForDevice)
        return sb_error(SB_UNSUPPORTED, "%s: this build has no code for this GPU (make CUDA_ARCH=... builds it)", what);
    return sb_error(e == cudaErrorMemoryAllocation ? SB_NO_MEMORY : SB_DEVICE_ERROR, "%s: %s", what,
                    cudaGetErrorString(e));
}

sb_status sb_cublas_status(cublasStatus_t s, const char *what)
{
    if (s == CUBLAS_STATUS_SUCCESS)
        return SB_OK;
    return sb_error(s == CUBLAS_STATUS_ALLOC_FAILED ? SB_NO_MEMORY : SB_DEVICE_ERROR, "%s: %s", what,
                    cublasGetStatusString(s));
}

sb_status sb_cuda_launched(const char *kernel)
{
    return sb_cuda_status(cudaGetLastError(), kernel);
}

static sb_status query(sb_context *ctx)
{
    const struct {
        enum cudaDeviceAttr attribute;
        int *value;
    } asked[] = {
        {cudaDevAttrComputeCapabilityMajor, &ctx->cc_major},
        {cudaDevAttrComputeCapabilityMinor, &ctx->cc_minor},
        {cudaDevAttrMultiProcessorCount, &ctx->sm_count},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, &ctx->smem_optin_bytes},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        SB_TRY(sb_cuda_status(cudaDeviceGetAttribute(asked[i].value, asked[i].attribute, ctx->ordinal),
                              "device attributes"));
    }
    if (ctx->cc_major < 8)
        return sb_error(SB_UNSUPPORTED, "compute capability %d.%d is below 8.0, the least these kernels run on",
                        ctx->cc_major, ctx->cc_minor);
    return SB_OK;
}

static sb_status make_zeros(sb_context *ctx)
{
    const size_t bytes = 64 * sizeof *ctx->zeros;
    sb_status s = sb_cuda_status(cudaMalloc((void **)&ctx->zeros, bytes), "work counters");
    return s ? s : sb_cuda_status(cudaMemset(ctx->zeros, 0, bytes), "work counters");
}

static sb_status open_cublas(sb_context *ctx)
{
    /* cuBLAS's documentation asks for 32 MiB on Hopper and later, 4 MiB before. */
    ctx->cublas_workspace_bytes = (size_t)(ctx->cc_major >= 9 ? 32 : 4) << 20;
    sb_status s = sb_cublas_status(cublasCreate(&ctx->cublas), "cublasCreate");
    if (s == SB_OK)
        s = sb_cuda_status(cudaMalloc(&ctx->cublas_workspace, ctx->cublas_workspace_bytes), "cuBLAS workspace");
    /* Default math never turns fp32 into tf32; sums of a split reduction stay fp32 for 16-bit outputs too. */
    if (s == SB_OK)
        s = sb_cublas_status(
            cublasSetMathMode(ctx->cublas,
                              (cublasMath_t)(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
            "cublasSetMathMode");
    return s;
}

sb_status sb_cuda_create(int ordinal, sb_context **out)
{
    *out = NULL;
    sb_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return sb_error(SB_NO_MEMORY, "no host memory for a context");
    ctx->ordinal = ordinal;
    sb_status s = sb_cuda_status(cudaSetDevice(ordinal), "cudaSetDevice");
    if (s == SB_OK)
        s = query(ctx);
    if (s == SB_OK)
        s = sb_cuda_status(sb_cuda_starts_early(ctx->cc_major, &ctx->starts_early), "function attributes");
    if (s == SB_OK)
        s = make_zeros(ctx);
    if (s == SB_OK)
        s = open_cublas(ctx);
    if (s != SB_OK) {
        sb_cuda_destroy(ctx);
        return s;
    }
    *out = ctx;
    return SB_OK;
}

void sb_cuda_destroy(sb_context *ctx)
{
    if (!ctx)
        return;
    if (ctx->matmul_plans)
        ctx->matmul_plans_free(ctx->matmul_plans);
    if (ctx->cublas)
        cublasDestroy(ctx->cublas);
    cudaFree(ctx->cublas_workspace);
    cudaFree(ctx->zeros);
    free(ctx);
}

sb_status sb_cublas_stream(sb_context *ctx, void *stream)
{
    /* Setting a stream, even the same one, puts cuBLAS back on a workspace of its own. */
    SB_TRY(sb_cublas_status(cublasSetStream(ctx->cublas, stream), "cublasSetStream"));
    return sb_cublas_status(cublasSetWorkspace(ctx->cublas, ctx->cublas_workspace, ctx->cublas_workspace_bytes),
                            "cublasSetWorkspace");
}

cudaDataType_t sb_cublas_type(sb_dtype t)
{
    switch (t) {
    case SB_BF16: return CUDA_R_16BF;
    case SB_FP16: return CUDA_R_16F;
    case SB_E4M3: return CUDA_R_8F_E4M3;
    case SB_E5M2: return CUDA_R_8F_E5M2;
    case SB_TF32:
    case SB_FP32:
    case SB_BF16X3: break;
    }
    return CUDA_R_32F;
}

cublasComputeType_t sb_cublas_compute(sb_dtype t)
{
    return t == SB_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}
