/* SPDX-License-Identifier: MIT */
/* "flash": the Hopper kernels on compute capability 9.0 for bf16, fp16 and fp32, the portable ones otherwise. */
#include "kernels/cuda/attention/flash.h"

#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/shared/internal.h"

/* The most columns: of 16-bit elements, and of 32-bit ones, whose tiles would not fit in shared memory. */
enum { WIDEST = 256, WIDEST_FP32 = 128 };

/* Windows and documents have Hopper kernels of 16 bits, but for the deterministic backward, of windows above head_dim 128 and of
 * documents above 64. Values of another width have a Hopper forward of 16 bits, and a backward above 128. */
static bool hopper_forward(const sb_context *ctx, const sb_attention *a)
{
    return ctx->cc_major == 9 && ctx->cc_minor == 0 && a->dtype != SB_TF32 &&
           !((a->windowed || a->packed) && flash_in_parts(a)) &&
           !(flash_in_parts(a) && sb_head_dim_v(a) != a->head_dim);
}
static bool hopper_backward(const sb_context *ctx, const sb_attention *a)
{
    const int most = sb_head_dim_most(a);
    return hopper_forward(ctx, a) && !(a->deterministic && a->packed && most > 64) &&
           !(a->deterministic && a->windowed && most > WIDEST_FP32) &&
           !(most <= WIDEST_FP32 && sb_head_dim_v(a) != a->head_dim);
}

enum { FORWARD_TENSORS = 4, ALL_TENSORS = 8 };

/* Forward has the first four of these tensors. */
static sb_status check_tensors(const sb_attention *a, int count, bool pointers)
{
    const struct {
        const char *name;
        const sb_tensor *tensor;
    } all[ALL_TENSORS] = {{"q", &a->q},     {"k", &a->k},   {"v", &a->v},   {"o", &a->o},
                          {"d_o", &a->d_o}, {"dq", &a->dq}, {"dk", &a->dk}, {"dv", &a->dv}};
    const int unit = 16 / sb_dtype_bytes(a->dtype);
    for (int i = 0; i < count; i++) {
        const sb_tensor *t = all[i].tensor;
        if (t->stride_b % unit || t->stride_h % unit || t->stride_s % unit)
            return sb_error(SB_UNSUPPORTED, "every stride of %s must be a multiple of %d elements (16 bytes)",
                            all[i].name, unit);
        if (pointers && !t->data)
            return sb_error(SB_INVALID, "%s is NULL", all[i].name);
        if (pointers && (uintptr_t)t->data % 16)
            return sb_error(SB_UNSUPPORTED, "%s must be 16-byte aligned", all[i].name);
    }
    return pointers && !a->lse ? sb_error(SB_INVALID, "lse is NULL") : SB_OK;
}

static sb_status check(sb_context *ctx, const sb_attention *a, int tensors, bool pointers)
{
    sb_status s = sb_attention_check(a);
    if (s != SB_OK)
        return s;
    if (ctx->cc_major < 8)
        return sb_error(SB_UNSUPPORTED, "flash needs compute capability 8.0 or later, this device has %d.%d",
                        ctx->cc_major, ctx->cc_minor);
    const int widest = sb_dtype_bytes(a->dtype) == 2 ? WIDEST : WIDEST_FP32;
    if (sb_head_dim_most(a) > widest)
        return sb_error(SB_UNSUPPORTED, "head_dim%s %d is above %d, the most that flash takes of 32-bit elements",
                        a->head_dim > widest ? "" : "_v", a->head_dim > widest ? a->head_dim : a->head_dim_v, widest);
    const int64_t most_rows = 1 << 30; /* rows of all heads are counted in int */
    if ((int64_t)a->batch * a->heads * a->seq_q > most_rows || (int64_t)a->batch * a->heads_kv * a->seq_k > most_rows)
        return sb_error(SB_UNSUPPORTED, "flash takes at most 2^30 rows (batch * heads * seq) of queries or keys");
    if (a->packed && (int64_t)a->heads * a->documents > most_rows)
        return sb_error(SB_UNSUPPORTED, "flash takes at most 2^30 documents of all heads (heads * documents)");
    if (a->packed && pointers && (!a->cu_seqlens_q || !a->cu_seqlens_k))
        return sb_error(SB_INVALID, "%s is NULL", a->cu_seqlens_q ? "cu_seqlens_k" : "cu_seqlens_q");
    return check_tensors(a, tensors, pointers);
}

sb_status flash_supported(sb_context *ctx, const sb_attention *a)
{
    return check(ctx, a, a->forward_only ? FORWARD_TENSORS : ALL_TENSORS, false);
}

sb_status flash_check_forward(sb_context *ctx, const sb_attention *a)
{
    return check(ctx, a, FORWARD_TENSORS, true);
}

sb_status flash_check_backward(sb_context *ctx, const sb_attention *a)
{
    return check(ctx, a, ALL_TENSORS, true);
}

static size_t saved_bytes(sb_context *ctx, const sb_attention *a)
{
    (void)ctx, (void)a;
    return 0; /* backward needs o and lse only */
}

static size_t forward_workspace(sb_context *ctx, const sb_attention *a)
{
    return hopper_forward(ctx, a) ? flash_hopper_forward_workspace(ctx, a)
                                  : sb_flash_portable_op.forward_workspace(ctx, a);
}

static size_t backward_workspace(sb_context *ctx, const sb_attention *a)
{
    return hopper_backward(ctx, a) ? flash_hopper_backward_workspace(ctx, a)
                                   : sb_flash_portable_op.backward_workspace(ctx, a);
}

static sb_status forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_status st = flash_check_forward(ctx, a);
    if (st)
        return st;
    return hopper_forward(ctx, a) ? flash_hopper_forward(ctx, a, stream) : sb_flash_portable_op.forward(ctx, a, stream);
}

static sb_status backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_status st = flash_check_backward(ctx, a);
    if (st)
        return st;
    return hopper_backward(ctx, a) ? flash_hopper_backward(ctx, a, stream)
                                   : sb_flash_portable_op.backward(ctx, a, stream);
}

const sb_attention_op sb_flash_op = {
    .name = "flash",
    .summary = "FlashAttention: tiles, online softmax, no S x S matrix; wgmma and TMA on Hopper, mma.sync elsewhere",
    .supported = flash_supported,
    .saved_bytes = saved_bytes,
    .forward_workspace = forward_workspace,
    .backward_workspace = backward_workspace,
    .forward = forward,
    .backward = backward,
};
