/* The op "flash_portable": FlashAttention-2 on mma.sync, for every dtype and every GPU from sm_80 up. Always
 * deterministic. */
#include "kernels/cuda/flash_portable.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/flash.h"
#include "kernels/internal.h"

namespace
{

using flash_portable::launchers;

constexpr int forward_tensors = 4, all_tensors = 8;

/* What the 16-byte copies need. Forward has the first four of these tensors. */
sb_status check_tensors(const sb_attention *a, int count, bool pointers)
{
    const struct {
        const char *name;
        const sb_tensor &tensor;
    } all[all_tensors] = {{"q", a->q},     {"k", a->k},   {"v", a->v},   {"o", a->o},
                          {"d_o", a->d_o}, {"dq", a->dq}, {"dk", a->dk}, {"dv", a->dv}};
    const int unit = 16 / sb_dtype_bytes(a->dtype);
    for (int i = 0; i < count; i++) {
        const sb_tensor &t = all[i].tensor;
        if (t.stride_b % unit || t.stride_h % unit || t.stride_s % unit)
            return sb_error(SB_UNSUPPORTED, "every stride of %s must be a multiple of %d elements (16 bytes)",
                            all[i].name, unit);
        if (pointers && !t.data)
            return sb_error(SB_INVALID, "%s is NULL", all[i].name);
        if (pointers && (uintptr_t)t.data % 16)
            return sb_error(SB_UNSUPPORTED, "%s must be 16-byte aligned", all[i].name);
    }
    return pointers && !a->lse ? sb_error(SB_INVALID, "lse is NULL") : SB_OK;
}

sb_status check_problem(sb_context *ctx, const sb_attention *a)
{
    sb_status s = sb_attention_check(a);
    if (s != SB_OK)
        return s;
    if (ctx->cc_major < 8)
        return sb_error(SB_UNSUPPORTED, "flash_portable needs compute capability 8.0 or later, this device has %d.%d",
                        ctx->cc_major, ctx->cc_minor);
    const int64_t most_rows = 1 << 30; /* of all heads, counted in int */
    if ((int64_t)a->batch * a->heads * a->seq_q > most_rows || (int64_t)a->batch * a->heads_kv * a->seq_k > most_rows)
        return sb_error(SB_UNSUPPORTED,
                        "flash_portable takes at most 2^30 rows (batch * heads * seq) of queries or keys");
    return SB_OK;
}

const launchers &launchers_of(sb_dtype t)
{
    switch (t) {
    case SB_BF16: return flash_portable::bf16_launchers;
    case SB_FP16: return flash_portable::fp16_launchers;
    case SB_TF32: return flash_portable::tf32_launchers;
    default: return flash_portable::fp32_launchers;
    }
}

sb_attention with_scale(const sb_attention *a)
{
    sb_attention resolved = *a;
    resolved.scale = sb_attention_scale(a);
    return resolved;
}

sb_status supported(sb_context *ctx, const sb_attention *a)
{
    sb_status s = check_problem(ctx, a);
    return s == SB_OK ? check_tensors(a, all_tensors, false) : s;
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
    sb_status s = check_problem(ctx, a);
    if (s == SB_OK)
        s = check_tensors(a, forward_tensors, true);
    if (s != SB_OK)
        return s;
    return sb_cuda_status(launchers_of(a->dtype).forward(with_scale(a), (cudaStream_t)stream),
                          "flash_portable forward");
}

sb_status backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    sb_status s = check_problem(ctx, a);
    if (s == SB_OK)
        s = check_tensors(a, all_tensors, true);
    if (s == SB_OK)
        s = sb_workspace_check(a, backward_workspace(ctx, a));
    if (s != SB_OK)
        return s;
    return sb_cuda_status(launchers_of(a->dtype).backward(with_scale(a), (cudaStream_t)stream),
                          "flash_portable backward");
}

} // namespace

extern "C" const sb_attention_op sb_flash_portable_op = {
    "flash_portable", "FlashAttention-2 with mma.sync: any GPU from sm_80 up, every dtype, always deterministic",
    supported,        no_bytes,
    no_bytes,         backward_workspace,
    forward,          backward,
};
