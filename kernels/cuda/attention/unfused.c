/* SPDX-License-Identifier: MIT */
/* Attention as an eager framework runs it: every step is a kernel of its own that reads and writes the whole S x S
 * matrix, out of place, and the causal mask is a boolean matrix in memory. */
#include "kernels/cuda/attention/scores.h"
#include "kernels/cuda/attention/unfused.h"

#include <math.h>

static size_t mask_bytes(const sb_attention *a, const sb_scores *s)
{
    return a->causal ? s->mask_bytes : 0;
}

static size_t forward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    sb_scores s = sb_scores_of(a);
    return s.bytes + mask_bytes(a, &s);
}

static size_t backward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    sb_scores s = sb_scores_of(a);
    return 2 * s.bytes + mask_bytes(a, &s);
}

/* out = scale * in; with a mask it goes on, as -inf where a key is hidden, to `in`. */
static sb_status scale_and_mask(const sb_attention *a, const sb_scores *s, void *in, void *out, unsigned char *mask,
                                void *stream)
{
    SB_TRY(sb_scores_scale(s, in, out, sb_attention_scale(a), stream));
    if (!a->causal)
        return SB_OK;
    SB_TRY(sb_scores_causal_mask(s, mask, stream));
    return sb_scores_masked_fill(s, out, mask, -INFINITY, in, stream);
}

/* Two buffers alternate, so that P ends in `saved`. */
static sb_status forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_scores s = sb_scores_of(a);
    void *in = a->causal ? a->workspace : a->saved, *out = a->causal ? a->saved : a->workspace;
    SB_TRY(sb_workspace_check(a, forward_workspace(ctx, a)));
    SB_TRY(sb_cublas_stream(ctx, stream));
    SB_PART("scores", sb_scores_from_qk(ctx, a, in));
    SB_PART("mask", scale_and_mask(a, &s, in, out, (unsigned char *)a->workspace + s.bytes, stream));
    SB_PART("softmax", sb_scores_softmax(&s, a->workspace, a->saved, a->lse, 1, false, stream));
    SB_PART("value", sb_scores_to_o(ctx, a, a->saved));
    return SB_OK;
}

/* dS of what is in `from`: in `to`, and behind a mask in `from` again. */
static sb_status mask_and_scale(const sb_attention *a, const sb_scores *s, void *from, void *to, unsigned char *mask,
                                void *stream)
{
    if (!a->causal)
        return sb_scores_scale(s, from, to, sb_attention_scale(a), stream);
    SB_TRY(sb_scores_causal_mask(s, mask, stream));
    SB_TRY(sb_scores_masked_fill(s, from, mask, 0, to, stream));
    return sb_scores_scale(s, to, from, sb_attention_scale(a), stream);
}

static sb_status backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_scores s = sb_scores_of(a);
    char *first = a->workspace, *second = first + s.bytes;
    SB_TRY(sb_workspace_check(a, backward_workspace(ctx, a)));
    SB_TRY(sb_cublas_stream(ctx, stream));
    SB_PART("value", sb_scores_to_dv_dp(ctx, a, a->saved, first));
    SB_PART("softmax", sb_scores_softmax_backward(&s, a->saved, first, second, 1, false, stream));
    SB_PART("mask", mask_and_scale(a, &s, second, first, (unsigned char *)second + s.bytes, stream));
    SB_PART("scores", sb_scores_to_dq_dk(ctx, a, a->causal ? second : first));
    return SB_OK;
}

const sb_attention_op sb_unfused_op = {
    .name = "unfused",
    .summary = "cuBLAS products; scale, mask and softmax as separate kernels over the whole matrix of scores",
    .supported = sb_scores_supported,
    .saved_bytes = sb_scores_saved_bytes,
    .forward_workspace = forward_workspace,
    .backward_workspace = backward_workspace,
    .forward = forward,
    .backward = backward,
};
