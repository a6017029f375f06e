/* SPDX-License-Identifier: MIT */
/* Status codes, the message of a thread's last error, and the argument checks that every backend shares. */
#include "kernels/shared/internal.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_message[512];

const char *sb_status_name(sb_status s)
{
    switch (s) {
    case SB_OK: return "ok";
    case SB_UNSUPPORTED: return "unsupported";
    case SB_INVALID: return "invalid";
    case SB_NO_MEMORY: return "no memory";
    case SB_DEVICE_ERROR: return "device error";
    }
    return "unknown status";
}

const char *sb_last_message(void)
{
    return last_message;
}

sb_status sb_error(sb_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(last_message, sizeof last_message, fmt, args);
    va_end(args);
    return status;
}

const char *sb_dtype_name(sb_dtype t)
{
    static const char *const names[] = {
        [SB_BF16] = "bf16",     [SB_FP16] = "fp16", [SB_TF32] = "tf32", [SB_FP32] = "fp32",
        [SB_BF16X3] = "bf16x3", [SB_E4M3] = "e4m3", [SB_E5M2] = "e5m2"};
    return names[t];
}

int sb_dtype_bytes(sb_dtype t)
{
    return t == SB_E4M3 || t == SB_E5M2 ? 1 : t == SB_BF16 || t == SB_FP16 ? 2 : 4;
}

const sb_attention_op *sb_attention_find(const sb_kernels *k, const char *name)
{
    for (const sb_attention_op *op = k->attention; op->name; op++)
        if (strcmp(op->name, name) == 0)
            return op;
    return NULL;
}

int sb_head_dim_v(const sb_attention *a)
{
    return a->head_dim_v ? a->head_dim_v : a->head_dim;
}

int sb_head_dim_most(const sb_attention *a)
{
    return a->head_dim_v > a->head_dim ? a->head_dim_v : a->head_dim;
}

static sb_status check_head_dim(const char *name, int head_dim)
{
    if (head_dim < SB_HEAD_DIM_MIN || head_dim > SB_HEAD_DIM_MAX || head_dim % SB_HEAD_DIM_STEP != 0)
        return sb_error(SB_UNSUPPORTED, "%s %d is not a multiple of %d from %d to %d", name, head_dim, SB_HEAD_DIM_STEP,
                        SB_HEAD_DIM_MIN, SB_HEAD_DIM_MAX);
    return SB_OK;
}

sb_status sb_attention_check(const sb_attention *a)
{
    if (a->batch < 1 || a->heads < 1 || a->heads_kv < 1 || a->seq_q < 1 || a->seq_k < 1 || a->head_dim < 1)
        return sb_error(SB_INVALID,
                        "batch %d, heads %d, heads_kv %d, seq_q %d, seq_k %d and head_dim %d must all be at least 1",
                        a->batch, a->heads, a->heads_kv, a->seq_q, a->seq_k, a->head_dim);
    if ((int64_t)a->batch * a->heads > INT_MAX / a->seq_q || (int64_t)a->batch * a->heads_kv > INT_MAX / a->seq_k)
        return sb_error(SB_UNSUPPORTED, "batch * heads * seq is above %d, the most rows that a tensor may have",
                        INT_MAX);
    if (a->heads % a->heads_kv != 0)
        return sb_error(SB_INVALID, "heads (%d) must be a multiple of heads_kv (%d)", a->heads, a->heads_kv);
    if ((int)a->dtype < SB_BF16 || (int)a->dtype > SB_BF16X3)
        return sb_error(SB_INVALID, "dtype %d is none of bf16 (0), fp16 (1), tf32 (2), fp32 (3), bf16x3 (4)",
                        (int)a->dtype);
    if (!isfinite(a->scale) || a->scale < 0)
        return sb_error(SB_INVALID, "scale must be positive and finite, or 0 for 1/sqrt(head_dim), not %g", a->scale);
    SB_TRY(check_head_dim("head_dim", a->head_dim));
    SB_TRY(check_head_dim("head_dim_v", sb_head_dim_v(a)));
    if (a->windowed && (a->window_left < -1 || a->window_right < -1 || (a->causal && a->window_right > 0)))
        return sb_error(SB_INVALID,
                        "a window has -1 (all keys) or more on each side, and none on the right of a causal mask, not "
                        "%d and %d",
                        a->window_left, a->window_right);
    if (a->packed && (a->batch != 1 || a->documents < 1))
        return sb_error(SB_INVALID, "packed attention has one batch entry of at least one document, not %d of %d",
                        a->batch, a->documents);
    return SB_OK;
}

static sb_status check_documents(const char *name, const int *begin, int documents, int end)
{
    if (!begin)
        return sb_error(SB_INVALID, "%s is NULL", name);
    for (int i = 0; i < documents; i++)
        if (begin[i + 1] < begin[i])
            return sb_error(SB_INVALID, "%s falls from %d to %d behind document %d", name, begin[i], begin[i + 1], i);
    if (begin[0] != 0 || begin[documents] != end)
        return sb_error(SB_INVALID, "%s goes from %d to %d, not from 0 to %d", name, begin[0], begin[documents], end);
    return SB_OK;
}

sb_status sb_documents_check(const sb_attention *a)
{
    if (!a->packed)
        return SB_OK;
    SB_TRY(check_documents("cu_seqlens_q", a->cu_seqlens_q, a->documents, a->seq_q));
    return check_documents("cu_seqlens_k", a->cu_seqlens_k, a->documents, a->seq_k);
}

sb_status sb_attention_check_whole(const sb_attention *a)
{
    const sb_status status = sb_attention_check(a);
    if (status == SB_OK && a->dtype == SB_BF16X3)
        return sb_error(SB_UNSUPPORTED, "only flash and flash_portable on CUDA take bf16x3");
    return status;
}

sb_status sb_workspace_check(const sb_attention *a, size_t need)
{
    if (need > 0 && (!a->workspace || a->workspace_bytes < need))
        return sb_error(SB_NO_MEMORY, "the workspace has %zu bytes, %zu are needed",
                        a->workspace ? a->workspace_bytes : 0, need);
    return SB_OK;
}

sb_status sb_attention_check_host(const sb_attention *a, size_t workspace_bytes)
{
    SB_TRY(sb_attention_check_whole(a));
    SB_TRY(sb_documents_check(a));
    return sb_workspace_check(a, workspace_bytes);
}

float sb_attention_scale(const sb_attention *a)
{
    return a->scale != 0 ? a->scale : 1.0f / sqrtf((float)a->head_dim);
}

static int least(int x, int y)
{
    return x < y ? x : y;
}

int sb_window_left(const sb_attention *a)
{
    return a->windowed && a->window_left >= 0 ? least(a->window_left, a->seq_k) : a->seq_k;
}

int sb_window_right(const sb_attention *a)
{
    return a->causal ? 0 : a->windowed && a->window_right >= 0 ? least(a->window_right, a->seq_q) : a->seq_q;
}

/* Keys of a query's document, or of the whole sequence, from `first` on, and the key of the query's own position. */
typedef struct own_keys {
    int first, count, position;
} own_keys;

static own_keys keys_of(const sb_attention *a, int query)
{
    if (!a->packed)
        return (own_keys){0, a->seq_k, query + a->seq_k - a->seq_q};
    int i = 0, end = a->documents; /* the last document that begins at the query or before it */
    while (end - i > 1) {
        const int middle = i + (end - i) / 2;
        if (a->cu_seqlens_q[middle] <= query)
            i = middle;
        else
            end = middle;
    }
    const int first = a->cu_seqlens_k[i], keys = a->cu_seqlens_k[i + 1] - first;
    return (own_keys){first, keys, query - a->cu_seqlens_q[i + 1] + keys};
}

static int visible(const sb_attention *a, own_keys own)
{
    const int n = own.position + 1 + sb_window_right(a);
    return n < 0 ? 0 : least(n, own.count);
}

int sb_visible_keys(const sb_attention *a, int query)
{
    const own_keys own = keys_of(a, query);
    return own.first + visible(a, own);
}

int sb_first_key(const sb_attention *a, int query)
{
    const own_keys own = keys_of(a, query);
    const int n = own.position - sb_window_left(a);
    return own.first + (n < 0 ? 0 : least(n, visible(a, own)));
}
