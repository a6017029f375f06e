/* SPDX-License-Identifier: MIT */
/* See forced_kernels.h. */
#include "tests/gpu/forced_kernels.h"

#ifdef HAVE_CUDA
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/shared/internal.h"

static sb_status hopper(const sb_context *ctx)
{
    if (ctx->cc_major != 9 || ctx->cc_minor != 0)
        return sb_error(SB_UNSUPPORTED, "this kernel needs compute capability 9.0");
    return SB_OK;
}

static sb_status supported(sb_context *ctx, const sb_attention *a, flash_backward_kernel kernel)
{
    const sb_status there = hopper(ctx);
    if (there)
        return there;
    if (a->forward_only || a->dtype == SB_TF32)
        return sb_error(SB_UNSUPPORTED, "a backward kernel of bf16, fp16 and fp32");
    if (a->windowed || a->packed)
        return sb_error(SB_UNSUPPORTED, "flash does not choose where there is a window, or documents");
    const sb_status status = flash_hopper_backward_takes(a, kernel);
    return status != SB_OK ? status : sb_flash_op.supported(ctx, a);
}

#define FORCED(NAME, KERNEL)                                                                                           \
    static sb_status NAME##_supported(sb_context *ctx, const sb_attention *a)                                          \
    {                                                                                                                  \
        return supported(ctx, a, KERNEL);                                                                              \
    }                                                                                                                  \
    static size_t NAME##_workspace(sb_context *ctx, const sb_attention *a)                                             \
    {                                                                                                                  \
        return flash_hopper_backward_workspace_with(ctx, a, KERNEL);                                                   \
    }                                                                                                                  \
    static sb_status NAME##_backward(sb_context *ctx, const sb_attention *a, void *stream)                             \
    {                                                                                                                  \
        return flash_hopper_backward_with(ctx, a, KERNEL, stream);                                                     \
    }                                                                                                                  \
    static sb_attention_op NAME##_op(void)                                                                             \
    {                                                                                                                  \
        sb_attention_op op = sb_flash_op;                                                                              \
        op.name = "flash_" #NAME, op.summary = "the " #NAME " backward of flash on Hopper";                            \
        op.supported = NAME##_supported, op.backward_workspace = NAME##_workspace, op.backward = NAME##_backward;      \
        return op;                                                                                                     \
    }
FORCED(wide, FLASH_BACKWARD_WIDE)
FORCED(narrow, FLASH_BACKWARD_NARROW)
FORCED(pair, FLASH_BACKWARD_PAIR)
FORCED(tall, FLASH_BACKWARD_TALL)

static sb_status pairs_supported(sb_context *ctx, const sb_attention *a)
{
    const sb_status there = hopper(ctx);
    if (there)
        return there;
    if (!flash_forward_has_pairs(a))
        return sb_error(SB_UNSUPPORTED,
                        "two tiles share K and V in 16 bits above head_dim 80, without windows and documents");
    return sb_flash_op.supported(ctx, a);
}
static sb_status pairs_forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    return flash_hopper_forward_with(ctx, a, FLASH_FORWARD_PAIRED, stream);
}
static sb_attention_op pairs_op(void)
{
    sb_attention_op op = sb_flash_op;
    op.name = "flash_forward_pairs", op.summary = "the forward of flash on Hopper whose tiles share K and V";
    op.supported = pairs_supported, op.forward = pairs_forward;
    return op;
}

const sb_attention_op *forced_kernels(void)
{
    static sb_attention_op ops[6]; /* the last has no name */
    ops[0] = wide_op(), ops[1] = narrow_op(), ops[2] = pair_op(), ops[3] = tall_op(), ops[4] = pairs_op();
    return ops;
}
#else
const sb_attention_op *forced_kernels(void)
{
    static const sb_attention_op none;
    return &none;
}
#endif
