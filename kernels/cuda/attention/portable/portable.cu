/* SPDX-License-Identifier: MIT */
/* The op "flash_portable": FlashAttention-2 on mma.sync, for every dtype and every GPU from sm_80 up. Always
 * deterministic. */
#include "kernels/cuda/attention/portable/portable.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/attention/flash.h"
#include "kernels/shared/internal.h"

namespace
{

using flash_portable::launchers;

const launchers &launchers_of(const sb_attention *a)
{
    const bool wide = sb_head_dim_most(a) > 128;
    switch (a->dtype) {
    case SB_BF16: return wide ? flash_portable::bf16_wide_launchers : flash_portable::bf16_launchers;
    case SB_FP16: return wide ? flash_portable::fp16_wide_launchers : flash_portable::fp16_launchers;
    case SB_TF32: return flash_portable::tf32_launchers;
    case SB_BF16X3: return flash_portable::bf16x3_launchers;
    default: return flash_portable::fp32_launchers;
    }
}

/* With the scale, the width of values and the sides of the window that are meant. */
sb_attention resolve(const sb_attention *a)
{
    sb_attention resolved = *a;
    resolved.scale = sb_attention_scale(a);
    resolved.head_dim_v = sb_head_dim_v(a);
    resolved.window_left = sb_window_left(a), resolved.window_right = sb_window_right(a);
    return resolved;
}

size_t no_bytes(sb_context *, const sb_attention *)
{
    return 0;
}

size_t backward_workspace(sb_context *, const sb_attention *a)
{ /* flash_portable::query_stats of every query */
    return (size_t)a->batch * a->heads * a->seq_q * 2 * sizeof(float);
}

sb_status forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    SB_TRY(flash_check_forward(ctx, a));
    return sb_cuda_status(launchers_of(a).forward(resolve(a), (cudaStream_t)stream), "flash_portable forward");
}

sb_status backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    SB_TRY(flash_check_backward(ctx, a));
    SB_TRY(sb_workspace_check(a, backward_workspace(ctx, a)));
    return sb_cuda_status(launchers_of(a).backward(resolve(a), (cudaStream_t)stream), "flash_portable backward");
}

} // namespace

extern "C" const sb_attention_op sb_flash_portable_op = {
    "flash_portable", "FlashAttention-2 with mma.sync: any GPU from sm_80 up, every dtype, always deterministic",
    flash_supported,  no_bytes,
    no_bytes,         backward_workspace,
    forward,          backward,
};
