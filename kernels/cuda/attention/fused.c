/* SPDX-License-Identifier: MIT */
/* Attention with the softmax fused: the same cuBLAS products as unfused, and one kernel for scale, mask and softmax in
 * place (one for its gradient), which is what a compiler makes of the eager code. */
#include "kernels/cuda/attention/scores.h"
#include "kernels/cuda/attention/unfused.h"
#include "kernels/shared/parts.h"

static size_t forward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    (void)a;
    return 0;
}

static size_t backward_workspace(sb_context *ctx, const sb_attention *a)
{
    return sb_scores_saved_bytes(ctx, a);
}

static sb_status forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_scores s = sb_scores_of(a);
    sb_status status = sb_cublas_stream(ctx, stream);
    sb_part_begin("scores");
    if (status == SB_OK)
        status = sb_scores_from_qk(ctx, a, a->saved);
    sb_part_end();
    sb_part_begin("softmax");
    if (status == SB_OK)
        status = sb_scores_softmax(&s, a->saved, a->saved, a->lse, sb_attention_scale(a), a->causal, stream);
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
    void *matrix = a->workspace; /* dP, then dS */
    sb_status status = sb_workspace_check(a, backward_workspace(ctx, a));
    if (status == SB_OK)
        status = sb_cublas_stream(ctx, stream);
    sb_part_begin("value");
    if (status == SB_OK)
        status = sb_scores_to_dv(ctx, a, a->saved);
    if (status == SB_OK)
        status = sb_scores_from_do_v(ctx, a, matrix);
    sb_part_end();
    sb_part_begin("softmax");
    if (status == SB_OK)
        status = sb_scores_softmax_backward(&s, a->saved, matrix, matrix, sb_attention_scale(a), a->causal, stream);
    sb_part_end();
    sb_part_begin("scores");
    if (status == SB_OK)
        status = sb_scores_to_dq_dk(ctx, a, matrix);
    sb_part_end();
    return status;
}

const sb_attention_op sb_fused_op = {
    .name = "fused",
    .summary = "cuBLAS products; one kernel for scale, mask and softmax, one for its gradient",
    .supported = sb_scores_supported,
    .saved_bytes = sb_scores_saved_bytes,
    .forward_workspace = forward_workspace,
    .backward_workspace = backward_workspace,
    .forward = forward,
    .backward = backward,
};
