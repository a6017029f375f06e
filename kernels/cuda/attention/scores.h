/* SPDX-License-Identifier: MIT */
/* The matrix of scores S = Q K^T of one attention call, one per query head, held in memory: its layout, the kernels
 * that read and write all of it at memory bandwidth, and the cuBLAS products around it. Shared by unfused and fused.
 *
 * Layout, also of `saved` (which holds P = softmax(S)): (B, H, Sq, pitch) in the tensor dtype, pitch = Sk rounded up to
 * 8 elements so that rows stay 16-byte aligned. Elements Sk..pitch-1 of a row are padding that no result depends on. */
#pragma once

#include "kernels/cuda/runtime/context.h"
#include "kernels/shared/internal.h"
#include "kernels/shared/parts.h"

/* SB_TRY of a call that is a part of the op. */
#define SB_PART(name, ...)                                                                                             \
    do {                                                                                                               \
        sb_part_begin(name);                                                                                           \
        const sb_status of_part = (__VA_ARGS__);                                                                       \
        sb_part_end();                                                                                                 \
        SB_TRY(of_part);                                                                                               \
    } while (0)

SB_C_BEGIN

typedef struct sb_scores {
    sb_dtype dtype;
    int heads; /* B * H */
    int seq_q, seq_k;
    int64_t pitch;       /* elements from a row to the next */
    int64_t head_stride; /* elements from a head to the next */
    size_t bytes;        /* scores of all heads, a multiple of 256 */
    size_t mask_bytes;   /* the boolean mask that all heads share, (Sq, pitch), a multiple of 256 */
} sb_scores;

sb_scores sb_scores_of(const sb_attention *a);
/* Unfused and fused attention share these. */
sb_status sb_scores_supported(sb_context *ctx, const sb_attention *a);
size_t sb_scores_saved_bytes(sb_context *ctx, const sb_attention *a);

/* out = factor * in */
sb_status sb_scores_scale(const sb_scores *s, const void *in, void *out, float factor, void *stream);
/* mask[i][j] = 1 where query i may not see key j */
sb_status sb_scores_causal_mask(const sb_scores *s, unsigned char *mask, void *stream);
/* out = mask ? value : in */
sb_status sb_scores_masked_fill(const sb_scores *s, const void *in, const unsigned char *mask, float value, void *out,
                                void *stream);
/* p = softmax(scale * in + causal mask) by rows; a row that sees no key is 0. `p` may be `in`. lse: (B, H, Sq). */
sb_status sb_scores_softmax(const sb_scores *s, const void *in, void *p, float *lse, float scale, bool causal,
                            void *stream);
/* ds = scale * p * (dp - sum_j p dp) by rows. With `causal` what the mask hides is not read and is 0. `ds` may be
 * `dp`. */
sb_status sb_scores_softmax_backward(const sb_scores *s, const void *p, const void *dp, void *ds, float scale,
                                     bool causal, void *stream);

/* The products of attention; `matrix` is what the letter in the name says. Call sb_cublas_stream before. */
sb_status sb_scores_from_qk(sb_context *ctx, const sb_attention *a, void *matrix);    /* S  = Q K^T  */
sb_status sb_scores_to_o(sb_context *ctx, const sb_attention *a, const void *matrix); /* O  = P V    */
/* dV = P^T dO, and dP = dO V^T */
sb_status sb_scores_to_dv_dp(sb_context *ctx, const sb_attention *a, const void *p, void *dp);
sb_status sb_scores_to_dq_dk(sb_context *ctx, const sb_attention *a, const void *matrix); /* dQ = dS K, dK = dS^T Q */

SB_C_END
