/* SPDX-License-Identifier: MIT */
/* The CPU backend's table: every op of kernels/kernels.h in fp32, synchronous, on one thread beyond what the BLAS uses. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"

#include "common/core/rng.h"

#include <stdlib.h>
#include <string.h>

struct sb_context {
    int ordinal;
};

static sb_status create(int ordinal, sb_context **out)
{
    if (ordinal != 0)
        return sb_error(SB_INVALID, "the cpu backend has one device, 0, not %d", ordinal);
    *out = malloc(sizeof **out);
    if (!*out)
        return sb_error(SB_NO_MEMORY, "no memory for a context");
    (*out)->ordinal = ordinal;
    return SB_OK;
}

static void destroy(sb_context *ctx)
{
    free(ctx);
}

static sb_status gemm(sb_context *ctx, sb_dtype dtype, int m, int n, int k, const void *a, const void *b, void *c,
                      void *stream)
{
    if (m < 1 || n < 1 || k < 1)
        return sb_error(SB_INVALID, "m %d, n %d and k %d of a gemm must all be at least 1", m, n, k);
    const sb_matmul p = {.dtype = dtype,
                         .dtype_out = dtype,
                         .transpose_b = true,
                         .m = m,
                         .n = n,
                         .k = k,
                         .lda = k,
                         .ldb = k,
                         .ldd = n,
                         .a = a,
                         .b = b,
                         .d = c};
    return cpu_matmul(ctx, &p, stream);
}

static sb_status fill_normal_from(sb_context *ctx, sb_dtype dtype, void *out, size_t n, uint64_t seed,
                                  uint32_t stream_id, uint64_t first, float scale, void *stream)
{
    enum { BLOCK = 1024 };
    float block[BLOCK];
    (void)ctx, (void)stream;

    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        rng_normal(block, count, seed, stream_id, first + i, scale);
        cpu_store(dtype, (char *)out + i * sb_dtype_bytes(dtype), block, count);
    }
    return SB_OK;
}

static sb_status fill_normal(sb_context *ctx, sb_dtype dtype, void *out, size_t n, uint64_t seed, uint32_t stream_id,
                             float scale, void *stream)
{
    return fill_normal_from(ctx, dtype, out, n, seed, stream_id, 0, scale, stream);
}

static sb_status copy(sb_context *ctx, void *dst, const void *src, size_t bytes, void *stream)
{
    (void)ctx, (void)stream;
    memcpy(dst, src, bytes);
    return SB_OK;
}

static sb_status nothing(sb_context *ctx, void *stream)
{
    (void)ctx, (void)stream;
    return SB_OK;
}

static sb_status supported(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    return sb_attention_check_whole(a);
}

static const sb_attention_op attention[] = {
    {"unfused", "GEMMs, scale, mask and softmax as separate passes over an S x S matrix", supported,
     cpu_matrix_saved_bytes, cpu_matrix_forward_workspace, cpu_matrix_backward_workspace, cpu_unfused_forward,
     cpu_unfused_backward},
    {"fused", "GEMMs, and one pass over an S x S matrix for scale, mask and softmax", supported, cpu_matrix_saved_bytes,
     cpu_matrix_forward_workspace, cpu_matrix_backward_workspace, cpu_fused_forward, cpu_fused_backward},
    {"flash", "tiles with an online softmax, memory linear in S, backward from the log-sum-exp", supported,
     cpu_flash_saved_bytes, cpu_flash_forward_workspace, cpu_flash_backward_workspace, cpu_flash_forward,
     cpu_flash_backward},
    {0},
};

const sb_kernels *sb_kernels_cpu(void)
{
    static const sb_kernels table = {
        .name = "cpu",
        .create = create,
        .destroy = destroy,
        .attention = attention,
        .reference_workspace = cpu_reference_workspace,
        .reference = cpu_reference,
        .gemm = gemm,
        .fill_normal = fill_normal,
        .fill_normal_from = fill_normal_from,
        .copy = copy,
        .nothing = nothing,
        .train = &cpu_train_ops,
    };
    return &table;
}
