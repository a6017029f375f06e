/* See forced_kernels.h. Forward is that of "flash". */
#include "tests/gpu/forced_kernels.h"

#ifdef HAVE_CUDA
#include "kernels/cuda/context.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/flash_sm90.h"
#include "kernels/internal.h"

static sb_status wide_supported(sb_context *ctx, const sb_attention *a)
{
    if (ctx->cc_major != 9 || ctx->cc_minor != 0)
        return sb_error(SB_UNSUPPORTED, "this kernel needs compute capability 9.0");
    if (a->forward_only || a->dtype == SB_TF32)
        return sb_error(SB_UNSUPPORTED, "a backward kernel of bf16, fp16 and fp32");
    return sb_flash_op.supported(ctx, a);
}

static sb_status narrow_supported(sb_context *ctx, const sb_attention *a)
{
    if (a->dtype == SB_FP32 || a->head_dim > 64)
        return sb_error(SB_UNSUPPORTED, "this kernel takes 16-bit tensors of head_dim 64 or less");
    return wide_supported(ctx, a);
}

static sb_status pair_supported(sb_context *ctx, const sb_attention *a)
{
    if (a->dtype == SB_FP32 || a->head_dim <= 64)
        return sb_error(SB_UNSUPPORTED, "this kernel takes 16-bit tensors of head_dim above 64");
    return wide_supported(ctx, a);
}

static size_t saved_bytes(sb_context *ctx, const sb_attention *a)
{
    return sb_flash_op.saved_bytes(ctx, a);
}

static size_t forward_workspace(sb_context *ctx, const sb_attention *a)
{
    return sb_flash_op.forward_workspace(ctx, a);
}

static sb_status forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    return sb_flash_op.forward(ctx, a, stream);
}

#define FORCED(KERNEL, NAME)                                                                                           \
    static size_t KERNEL##_workspace(sb_context *ctx, const sb_attention *a)                                           \
    {                                                                                                                  \
        return flash_sm90_backward_workspace_with(ctx, a, NAME);                                                       \
    }                                                                                                                  \
    static sb_status KERNEL##_backward(sb_context *ctx, const sb_attention *a, void *stream)                           \
    {                                                                                                                  \
        return flash_sm90_backward_with(ctx, a, NAME, stream);                                                         \
    }
FORCED(wide, FLASH_BACKWARD_WIDE)
FORCED(narrow, FLASH_BACKWARD_NARROW)
FORCED(pair, FLASH_BACKWARD_PAIR)

#define OP(KERNEL)                                                                                                     \
    {                                                                                                                  \
        .name = "flash_" #KERNEL, .summary = "the " #KERNEL " backward of flash on Hopper",                            \
        .supported = KERNEL##_supported, .saved_bytes = saved_bytes, .forward_workspace = forward_workspace,           \
        .backward_workspace = KERNEL##_workspace, .forward = forward, .backward = KERNEL##_backward                    \
    }
const sb_attention_op forced_kernels[] = {OP(wide), OP(narrow), OP(pair), {0}};
#else
const sb_attention_op forced_kernels[] = {{0}};
#endif
