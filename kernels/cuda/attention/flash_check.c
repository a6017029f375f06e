/* SPDX-License-Identifier: MIT */
/* What "flash" and "flash_portable" take on CUDA: widths, sizes, strides, alignment. */
#include "kernels/cuda/attention/flash.h"

#include "kernels/cuda/runtime/context.h"
#include "kernels/shared/internal.h"

/* The most columns: of 16-bit elements, and of 32-bit ones, whose tiles would not fit in shared memory. */
enum { WIDEST = 256, WIDEST_FP32 = 128 };

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
    if (a->packed && a->documents >= 1 << 23) /* the backward pads each by up to 128 rows, which are counted in int */
        return sb_error(SB_UNSUPPORTED, "flash takes fewer than 2^23 documents, not %d", a->documents);
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
