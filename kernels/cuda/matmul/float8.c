/* SPDX-License-Identifier: MIT */
/* Which products of float8 cuBLASLt can run: by the compute capability, the library's version, and the shape. Rules of the
 * cuBLAS manual, section "8-bit and 4-bit Floating Point Data Types Usage"; scales by row and by block are Hopper's alone there. */
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/train.h"
#include "kernels/shared/float8.h"

enum { SIZE_UNIT = 16 /* of every dimension and distance between rows, in elements */ };

bool matmul_is_float8(const sb_matmul *p)
{
    return p->dtype == SB_E4M3 || p->dtype == SB_E5M2;
}

/* The library and its headers, for scales by row and by block. */
static sb_status check_library(sb_scaling scaling)
{
#if CUBLAS_VERSION >= 120900
    if (scaling == SB_SCALE_TENSOR || cublasLtGetVersion() >= 120900)
        return SB_OK;
#else
    if (scaling == SB_SCALE_TENSOR)
        return SB_OK;
#endif
    return sb_error(SB_UNSUPPORTED,
                    "float8 products scaled by %s need cuBLAS 12.9 or newer; this build was made with %d.%d",
                    sb_scaling_name(scaling), CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR);
}

static sb_status check_device(const sb_context *ctx, sb_scaling scaling)
{
    const int capability = 10 * ctx->cc_major + ctx->cc_minor;
    const bool tensor = scaling == SB_SCALE_TENSOR;
    if (scaling == SB_SCALE_1X32)
        return sb_error(
            SB_UNSUPPORTED,
            "float8 products scaled by 1x32 need compute capability 10.0 and a kernel that is not here yet; the CPU "
            "backend runs every scaling");
    if (tensor ? capability >= 89 : capability == 90)
        return SB_OK;
    return sb_error(
        SB_UNSUPPORTED,
        "float8 products scaled by %s need compute capability %s; this GPU has %d.%d%s; the CPU backend runs "
        "every scaling",
        sb_scaling_name(scaling), tensor ? "8.9 or above" : "9.0 exactly", ctx->cc_major, ctx->cc_minor,
        !tensor && capability >= 89 ? ", which takes scaling by tensor" : "");
}

sb_status sb_cuda_float8_supported(sb_context *ctx, sb_scaling scaling)
{
    const sb_status s = check_device(ctx, scaling);
    return s == SB_OK ? check_library(scaling) : s;
}

sb_status matmul_float8_check(const sb_context *ctx, const sb_matmul *p)
{
    sb_status s = check_device(ctx, p->scaling_a);
    if (s == SB_OK)
        s = check_library(p->scaling_a);
    if (s != SB_OK)
        return s;
    if (p->m % SIZE_UNIT != 0 || p->n % SIZE_UNIT != 0 || p->k % SIZE_UNIT != 0 || p->lda % SIZE_UNIT != 0 ||
        p->ldb % SIZE_UNIT != 0)
        return sb_error(SB_UNSUPPORTED,
                        "matmul: float8 products need m %d, n %d, k %d, lda %d and ldb %d to be multiples of %d", p->m,
                        p->n, p->k, p->lda, p->ldb, SIZE_UNIT);
    const void *pointers[] = {p->a, p->b, p->c ? p->c : p->d, p->d, p->scale_a, p->scale_b};
    for (int i = 0; i < 6; i++)
        if (matmul_alignment(pointers[i]) < (i < 4 ? MATMUL_MAX_ALIGNMENT : (int)sizeof(float)))
            return sb_error(SB_UNSUPPORTED, "matmul: operands of float8 products must be aligned to %d bytes",
                            MATMUL_MAX_ALIGNMENT);
    return SB_OK;
}
