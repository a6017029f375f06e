/* "flash": the Hopper kernels on compute capability 9.0 for bf16, fp16 and fp32, the portable ones otherwise. */
#include "kernels/cuda/flash.h"

#include "kernels/cuda/context.h"
#include "kernels/cuda/flash_sm90.h"
#include "kernels/internal.h"

static bool hopper(const sb_context *ctx, const sb_attention *a)
{
    return ctx->cc_major == 9 && ctx->cc_minor == 0 && a->dtype != SB_TF32;
}

static sb_status supported(sb_context *ctx, const sb_attention *a)
{
    return sb_flash_portable_op.supported(ctx, a);
}

static size_t saved_bytes(sb_context *ctx, const sb_attention *a)
{
    (void)ctx, (void)a;
    return 0; /* backward needs o and lse only */
}

static size_t forward_workspace(sb_context *ctx, const sb_attention *a)
{
    return hopper(ctx, a) ? flash_sm90_forward_workspace(ctx, a) : sb_flash_portable_op.forward_workspace(ctx, a);
}

static size_t backward_workspace(sb_context *ctx, const sb_attention *a)
{
    return hopper(ctx, a) ? flash_sm90_backward_workspace(ctx, a) : sb_flash_portable_op.backward_workspace(ctx, a);
}

static sb_status forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_status st = supported(ctx, a);
    if (st)
        return st;
    return hopper(ctx, a) ? flash_sm90_forward(ctx, a, stream) : sb_flash_portable_op.forward(ctx, a, stream);
}

static sb_status backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_status st = supported(ctx, a);
    if (st)
        return st;
    return hopper(ctx, a) ? flash_sm90_backward(ctx, a, stream) : sb_flash_portable_op.backward(ctx, a, stream);
}

const sb_attention_op sb_flash_op = {
    .name = "flash",
    .summary = "FlashAttention: tiles, online softmax, no S x S matrix; wgmma and TMA on Hopper, mma.sync elsewhere",
    .supported = supported,
    .saved_bytes = saved_bytes,
    .forward_workspace = forward_workspace,
    .backward_workspace = backward_workspace,
    .forward = forward,
    .backward = backward,
};
