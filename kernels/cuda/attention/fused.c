/* SPDX-License-Identifier: MIT */
/* Attention with the softmax fused: the same cuBLAS products as unfused, and one kernel for scale, mask and softmax in
 * place (one for its gradient), which is what a compiler makes of the eager code. */
#include "kernels/cuda/attention/scores.h"
#include "kernels/cuda/attention/unfused.h"

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
    SB_TRY(sb_cublas_stream(ctx, stream));
    SB_PART("scores", sb_scores_from_qk(ctx, a, a->saved));
    SB_PART("softmax", sb_scores_softmax(&s, a->saved, a->saved, a->lse, sb_attention_scale(a), a->causal, stream));
    SB_PART("value", sb_scores_to_o(ctx, a, a->saved));
    return SB_OK;
}

static sb_status backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const sb_scores s = sb_scores_of(a);
    void *matrix = a->workspace; /* dP, then dS */
    SB_TRY(sb_workspace_check(a, backward_workspace(ctx, a)));
    SB_TRY(sb_cublas_stream(ctx, stream));
    SB_PART("value", sb_scores_to_dv_dp(ctx, a, a->saved, matrix));
    SB_PART("softmax",
            sb_scores_softmax_backward(&s, a->saved, matrix, matrix, sb_attention_scale(a), a->causal, stream));
    SB_PART("scores", sb_scores_to_dq_dk(ctx, a, matrix));
    return SB_OK;
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
