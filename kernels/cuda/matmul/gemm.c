/* SPDX-License-Identifier: MIT */
/* C = A B^T by cuBLAS: the ceiling that bench_roofline measures. */
#include "kernels/cuda/runtime/backend.h"
#include "kernels/cuda/runtime/context.h"

sb_status sb_cuda_gemm(sb_context *ctx, sb_dtype dtype, int m, int n, int k, const void *a, const void *b, void *c,
                       void *stream)
{
    const float one = 1, zero = 0;
    const cudaDataType_t type = sb_cublas_type(dtype);
    if (m < 1 || n < 1 || k < 1)
        return sb_error(SB_INVALID, "m %d, n %d and k %d of a gemm must all be at least 1", m, n, k);
    SB_TRY(sb_cublas_stream(ctx, stream));
    /* cuBLAS is column-major, where row-major C is its transpose: C^T = B A^T. */
    return sb_cublas_status(cublasGemmEx(ctx->cublas, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, b, type, k, a, type, k,
                                         &zero, c, type, n, sb_cublas_compute(dtype), CUBLAS_GEMM_DEFAULT),
                            "gemm");
}
