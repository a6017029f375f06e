/* SPDX-License-Identifier: MIT */
/* What both backends share: error messages, argument checks, and the meaning of an sb_attention. Not part of the API. */
#pragma once

#include "kernels/kernels.h"

SB_C_BEGIN

/* The head_dims of the ops that take the most; flash on CUDA takes fewer. */
enum { SB_HEAD_DIM_MIN = 16, SB_HEAD_DIM_MAX = 256, SB_HEAD_DIM_STEP = 8 };

/* Keeps the message for sb_last_message of this thread and returns `status`: return sb_error(SB_INVALID, "...", ...). */
sb_status sb_error(sb_status status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns the status of a call that is not SB_OK. */
#define SB_TRY(...)                                                                                                    \
    do {                                                                                                               \
        const sb_status tried = (__VA_ARGS__);                                                                         \
        if (tried != SB_OK)                                                                                            \
            return tried;                                                                                              \
    } while (0)

/* Shapes and dtype only: no pointer is looked at. */
sb_status sb_attention_check(const sb_attention *a);
/* Like sb_attention_check, for ops whose products have no parts: bf16x3 is SB_UNSUPPORTED. */
sb_status sb_attention_check_whole(const sb_attention *a);
/* SB_NO_MEMORY unless the caller's workspace holds at least `need` bytes. */
sb_status sb_workspace_check(const sb_attention *a, size_t need);

/* For ops that can read the arrays of packed documents: SB_OK unless they are not what kernels.h asks for. */
sb_status sb_documents_check(const sb_attention *a);
/* All checks above, which every attention op of the CPU makes before it begins. */
sb_status sb_attention_check_host(const sb_attention *a, size_t workspace_bytes);

/* Columns of v, o, d_o and dv. */
int sb_head_dim_v(const sb_attention *a);
/* The columns of q or of v, whichever are more: what kernels compute that have one width for both. */
int sb_head_dim_most(const sb_attention *a);
/* The factor in front of Q K^T: a->scale, or 1/sqrt(head_dim) when that is 0. */
float sb_attention_scale(const sb_attention *a);
/* Query row i sees keys sb_first_key .. sb_visible_keys - 1: none if both are equal, and from 0, or its document's first, on
 * without a window. Documents are looked up in a->cu_seqlens_*. */
int sb_visible_keys(const sb_attention *a, int query);
int sb_first_key(const sb_attention *a, int query);
/* Keys before and after a query's own position that it sees, as kernels take them: "all" is Sk before and Sq after. */
int sb_window_left(const sb_attention *a);
int sb_window_right(const sb_attention *a);

SB_C_END
