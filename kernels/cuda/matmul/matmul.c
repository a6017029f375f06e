/* SPDX-License-Identifier: MIT */
/* D = op(A) op(B) + C by cuBLASLt, or by a 16-bit or float8 kernel of our own where that was chosen: one look-up of the shape's
 * plan and one call. Adding C costs its bytes, no launch, so a residual stream or a gradient that accumulates is fused.
 * Sums are fp32; split fp32 is in split_products.c. */
#include "kernels/cuda/matmul/matmul.h"

#include <assert.h>
#include <string.h>

#include "kernels/cuda/matmul/hopper/matmul16.h"
#include "kernels/cuda/matmul/hopper/matmul8.h"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((sb_matmul_choice *)0)->algorithm),
              "a choice holds an algorithm");

enum { WORKSPACE_ALIGNMENT = 256 };

static sb_status check_alignment(const char *name, const void *pointer, int bytes)
{
    return matmul_alignment(pointer) >= bytes
               ? SB_OK
               : sb_error(SB_INVALID, "matmul: %s is not aligned to its elements of %d bytes", name, bytes);
}

sb_status matmul_check(const sb_matmul *p)
{
    SB_TRY(sb_matmul_check(p));
    SB_TRY(check_alignment("a", p->a, sb_dtype_bytes(p->dtype)));
    SB_TRY(check_alignment("b", p->b, sb_dtype_bytes(p->dtype)));
    SB_TRY(check_alignment("c", p->c, sb_dtype_bytes(p->dtype_out)));
    SB_TRY(check_alignment("d", p->d, sb_dtype_bytes(p->dtype_out)));
    if ((uintptr_t)p->workspace % WORKSPACE_ALIGNMENT != 0)
        return sb_error(SB_INVALID, "matmul: the workspace is not aligned to %d bytes", WORKSPACE_ALIGNMENT);
    return SB_OK;
}

static matmul_shape shape_of(const sb_context *ctx, const sb_matmul *p)
{
    const void *c = p->c ? p->c : p->d;
    return (matmul_shape){
        .dtype = p->dtype,
        .dtype_b = matmul_is_float8(p) ? p->dtype_b : p->dtype,
        .dtype_out = p->dtype_out == SB_TF32 ? SB_FP32 : p->dtype_out,
        .scaling_a = matmul_is_float8(p) ? p->scaling_a : SB_SCALE_NONE,
        .scaling_b = matmul_is_float8(p) ? p->scaling_b : SB_SCALE_NONE,
        .fast_sums = matmul_is_float8(p) && p->sums == SB_SUMS_FAST,
        .transpose_a = p->transpose_a,
        .transpose_b = p->transpose_b,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .lda = p->lda,
        .ldb = p->ldb,
        .ldc = p->c ? p->ldc : p->ldd,
        .ldd = p->ldd,
        .adds = p->c != NULL,
        .in_place = c == p->d,
        .align_a = matmul_alignment(p->a),
        .align_b = matmul_alignment(p->b),
        .align_c = matmul_alignment(c),
        .align_d = matmul_alignment(p->d),
        .workspace_kib = matmul_workspace_kib(ctx, p->workspace ? p->workspace_bytes : 0),
    };
}

sb_status matmul_plans_of(sb_context *ctx, const sb_matmul *p, matmul_plan_list *out)
{
    if (p->split)
        return matmul_split_plans_of(ctx, p, out);
    if (matmul_is_float8(p)) {
        SB_TRY(matmul_float8_check(ctx, p));
    }
    const matmul_shape shape = shape_of(ctx, p);
    out->count = 1;
    return matmul_plan_find(ctx, &shape, &out->plan[0]);
}

bool matmul_install(sb_context *ctx, const matmul_plan_list *list, const cublasLtMatmulAlgo_t *algorithm)
{
    for (int i = 0; i < list->count; i++)
        if (!matmul_plan_accepts(ctx, list->plan[i], algorithm))
            return false;
    for (int i = 0; i < list->count; i++)
        list->plan[i]->algorithm = *algorithm;
    return true;
}

size_t sb_cuda_matmul_workspace(sb_context *ctx, const sb_matmul *p)
{
    return p->split ? matmul_split_workspace(ctx, p) : matmul_library_bytes(ctx);
}

sb_status sb_cuda_matmul(sb_context *ctx, const sb_matmul *p, void *stream)
{
    static const float one = 1, zero = 0;
    matmul_plan_list plans;
    sb_status s = matmul_check(p);
    if (s != SB_OK)
        return s;
    if (p->split)
        return matmul_split_run(ctx, p, stream);
    if ((s = matmul_plans_of(ctx, p, &plans)) != SB_OK)
        return s;
    const int columns = matmul_own_columns(&plans.plan[0]->algorithm);
    if (columns != 0)
        return matmul16_run(ctx, p, columns, stream);
    const int rows = matmul_own_rows(&plans.plan[0]->algorithm);
    if (rows != 0)
        return matmul8_run(ctx, p, rows, stream);
    const matmul_operands o = {.a = p->a,
                               .b = p->b,
                               .c = p->c ? p->c : p->d,
                               .d = p->d,
                               .alpha = &one,
                               .beta = p->c ? &one : &zero,
                               .scale_a = p->scale_a,
                               .scale_b = p->scale_b,
                               .workspace = p->workspace};
    return matmul_plan_run(ctx, plans.plan[0], &o, stream);
}

/* A choice is made for a shape: pointers that are not known yet stand for aligned ones. */
static sb_matmul with_pointers(const sb_matmul *p)
{
    static _Alignas(WORKSPACE_ALIGNMENT) char somewhere[WORKSPACE_ALIGNMENT];
    sb_matmul shape = *p;
    shape.a = p->a ? p->a : somewhere;
    shape.b = p->b ? p->b : somewhere;
    shape.d = p->d ? p->d : somewhere;
    shape.workspace = p->workspace ? p->workspace : somewhere;
    shape.scale_a = p->scale_a ? p->scale_a : (const float *)somewhere;
    shape.scale_b = p->scale_b ? p->scale_b : (const float *)somewhere;
    return shape;
}

sb_status sb_cuda_matmul_choose(sb_context *ctx, const sb_matmul *p, const sb_matmul_choice *chosen)
{
    matmul_plan_list plans;
    cublasLtMatmulAlgo_t algorithm;
    const sb_matmul shape = with_pointers(p);
    sb_status s = matmul_check(&shape);
    if (s == SB_OK)
        s = matmul_plans_of(ctx, &shape, &plans);
    if (s != SB_OK)
        return s;
    memcpy(&algorithm, chosen->algorithm, sizeof algorithm);
    if (chosen->library != (int64_t)cublasLtGetVersion() || !matmul_install(ctx, &plans, &algorithm))
        return sb_error(SB_UNSUPPORTED,
                        "this GPU or this cuBLASLt cannot run the kept choice \"%.*s\" for m %d, n %d, k %d",
                        (int)sizeof chosen->name, chosen->name, p->m, p->n, p->k);
    return SB_OK;
}
