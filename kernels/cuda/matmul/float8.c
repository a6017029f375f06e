/* SPDX-License-Identifier: MIT */
/* Which products of float8 cuBLASLt can run here: by the gate that both backends have, and by shape, after the cuBLAS manual,
 * section "8-bit and 4-bit Floating Point Data Types Usage". */
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/train.h"
#include "kernels/shared/float8.h"

enum { SIZE_UNIT = 16 /* of every dimension and distance between rows, in elements */ };

bool matmul_is_float8(const sb_matmul *p)
{
    return p->dtype == SB_E4M3 || p->dtype == SB_E5M2;
}

/* What this build was made with, and what runs. */
static int library(void)
{
    const int runs = (int)cublasLtGetVersion();
    return runs < CUBLAS_VERSION ? runs : CUBLAS_VERSION;
}

sb_status sb_cuda_float8_supported(sb_context *ctx, sb_scaling scaling)
{
    return sb_float8_gate(scaling, 10 * ctx->cc_major + ctx->cc_minor, library());
}

sb_status matmul_float8_check(const sb_context *ctx, const sb_matmul *p)
{
    SB_TRY(sb_float8_gate(p->scaling_a, 10 * ctx->cc_major + ctx->cc_minor, library()));
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
