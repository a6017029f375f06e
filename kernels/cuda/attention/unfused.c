/* SPDX-License-Identifier: MIT */
/* Attention as an eager framework runs it: every step is a kernel of its own that reads and writes the whole S x S
 * matrix, out of place, and the causal mask is a boolean matrix in memory. */
#include "kernels/cuda/attention/scores.h"
#include "kernels/cuda/attention/unfused.h"
#include "kernels/shared/parts.h"

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

/* Two buffers alternate, so that P ends in `saved`. */
static sb_status forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_scores s = sb_scores_of(a);
    void *in = a->causal ? a->workspace : a->saved, *out = a->causal ? a->saved : a->workspace;
    unsigned char *mask = (unsigned char *)a->workspace + s.bytes;
    sb_status status = sb_workspace_check(a, forward_workspace(ctx, a));
    if (status == SB_OK)
        status = sb_cublas_stream(ctx, stream);
    sb_part_begin("scores");
    if (status == SB_OK)
        status = sb_scores_from_qk(ctx, a, in);
    sb_part_end();
    sb_part_begin("mask");
    if (status == SB_OK)
        status = sb_scores_scale(&s, in, out, sb_attention_scale(a), stream);
    if (a->causal) {
        if (status == SB_OK)
            status = sb_scores_causal_mask(&s, mask, stream);
        if (status == SB_OK)
            status = sb_scores_masked_fill(&s, out, mask, -INFINITY, in, stream);
    }
    sb_part_end();
    sb_part_begin("softmax");
    if (status == SB_OK)
        status = sb_scores_softmax(&s, a->workspace, a->saved, a->lse, 1, false, stream);
    sb_part_end();
    sb_part_begin("value");
    if (status == SB_OK)
        status = sb_scores_to_o(ctx, a, a->saved);
    sb_part_end();
    return status;
}

static sb_status backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_scores s = sb_scores_of(a);
    char *first = a->workspace, *second = first + s.bytes;
    unsigned char *mask = (unsigned char *)second + s.bytes;
    char *in = first, *out = second;
    sb_status status = sb_workspace_check(a, backward_workspace(ctx, a));
    if (status == SB_OK)
        status = sb_cublas_stream(ctx, stream);
    sb_part_begin("value");
    if (status == SB_OK)
        status = sb_scores_to_dv(ctx, a, a->saved);
    if (status == SB_OK)
        status = sb_scores_from_do_v(ctx, a, in);
    sb_part_end();
    sb_part_begin("softmax");
    if (status == SB_OK)
        status = sb_scores_softmax_backward(&s, a->saved, in, out, 1, false, stream);
    sb_part_end();
    sb_part_begin("mask");
    if (a->causal) {
        if (status == SB_OK)
            status = sb_scores_causal_mask(&s, mask, stream);
        if (status == SB_OK)
            status = sb_scores_masked_fill(&s, out, mask, 0, in, stream);
        in = second;
        out = first;
    }
    if (status == SB_OK)
        status = sb_scores_scale(&s, out, in, sb_attention_scale(a), stream);
    sb_part_end();
    sb_part_begin("scores");
    if (status == SB_OK)
        status = sb_scores_to_dq_dk(ctx, a, in);
    sb_part_end();
    return status;
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
