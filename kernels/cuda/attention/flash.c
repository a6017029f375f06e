/* SPDX-License-Identifier: MIT */
/* "flash": the Hopper kernels on compute capability 9.0 for bf16, fp16 and fp32, the portable ones otherwise. */
#include "kernels/cuda/attention/flash.h"

#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/shared/internal.h"

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
           !(a->deterministic && a->windowed && most > 128) && !(most <= 128 && sb_head_dim_v(a) != a->head_dim);
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
