/* SPDX-License-Identifier: MIT */
/* Attention through the whole S x S matrix, head by head: "unfused" makes separate passes for scale, mask and softmax as
 * an eager framework does, "fused" one pass for all three. Forward keeps P in the tensor's dtype for backward. */
#include "kernels/cpu/cpu.h"
#include "kernels/shared/parts.h"

#include <math.h>

/* What sits between the GEMMs. Forward turns Q K^T (Sq, Sk) into P and writes lse (Sq); backward turns dP (Sq, Sk) into
 * the gradient of Q K^T, given P. */
typedef struct middle {
    void (*forward)(const sb_attention *a, float *s, float *lse);
    void (*backward)(const sb_attention *a, const float *p, float *dp);
} middle;

/* Softmax of the first n scores of a row in place, zero for the rest; returns the log of the sum of exponentials. */
static float softmax_row(float *s, int n, int seq_k)
{
    float max = -INFINITY;
    double sum = 0;
    for (int j = 0; j < n; j++)
        max = s[j] > max ? s[j] : max;
    for (int j = 0; j < n; j++) {
        s[j] = expf(s[j] - max);
        sum += s[j];
    }
    float inverse = (float)(1 / sum);
    for (int j = 0; j < n; j++)
        s[j] *= inverse;
    for (int j = n; j < seq_k; j++)
        s[j] = 0;
    return n > 0 ? max + (float)log(sum) : -INFINITY;
}

/* dS = P (dP - sum_j P dP) scale, in place of dP. */
static void softmax_row_backward(const float *p, float *dp, int seq_k, float scale)
{
    double delta = 0;
    for (int j = 0; j < seq_k; j++)
        delta += (double)p[j] * dp[j];
    for (int j = 0; j < seq_k; j++)
        dp[j] = p[j] * (dp[j] - (float)delta) * scale;
}

static void scale_pass(const sb_attention *a, float *s)
{
    float scale = sb_attention_scale(a);
    for (size_t i = 0; i < (size_t)a->seq_q * a->seq_k; i++)
        s[i] *= scale;
}

static void mask_pass(const sb_attention *a, float *s, float value)
{
    for (int i = 0; i < a->seq_q; i++)
        for (int j = 0, first = sb_first_key(a, i), end = sb_visible_keys(a, i); j < a->seq_k; j++)
            if (j < first || j >= end)
                s[(size_t)i * a->seq_k + j] = value;
}

static void unfused_forward(const sb_attention *a, float *s, float *lse)
{
    scale_pass(a, s);
    mask_pass(a, s, -INFINITY);
    for (int i = 0; i < a->seq_q; i++) /* exp(-inf) makes the masked zeros, except in a row that has nothing else */
        lse[i] =
            softmax_row(s + (size_t)i * a->seq_k, sb_visible_keys(a, i) > sb_first_key(a, i) ? a->seq_k : 0, a->seq_k);
}

static void unfused_backward(const sb_attention *a, const float *p, float *dp)
{
    for (int i = 0; i < a->seq_q; i++)
        softmax_row_backward(p + (size_t)i * a->seq_k, dp + (size_t)i * a->seq_k, a->seq_k, 1);
    mask_pass(a, dp, 0);
    scale_pass(a, dp);
}

static void fused_forward(const sb_attention *a, float *s, float *lse)
{
    float scale = sb_attention_scale(a);
    for (int i = 0; i < a->seq_q; i++) {
        float *row = s + (size_t)i * a->seq_k;
        int first = sb_first_key(a, i), n = sb_visible_keys(a, i);
        for (int j = 0; j < n; j++)
            row[j] = j < first ? 0 : row[j] * scale;
        lse[i] = softmax_row(row + first, n - first, a->seq_k - first);
    }
}

static void fused_backward(const sb_attention *a, const float *p, float *dp)
{
    float scale = sb_attention_scale(a);
    for (int i = 0; i < a->seq_q; i++)
        softmax_row_backward(p + (size_t)i * a->seq_k, dp + (size_t)i * a->seq_k, a->seq_k, scale);
}

static size_t matrix_size(const sb_attention *a)
{
    return (size_t)a->seq_q * a->seq_k;
}

static char *saved_matrix(const sb_attention *a, int b, int h)
{
    return (char *)a->saved + ((size_t)b * a->heads + h) * matrix_size(a) * sb_dtype_bytes(a->dtype);
}

size_t cpu_matrix_saved_bytes(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    return (size_t)a->batch * a->heads * matrix_size(a) * sb_dtype_bytes(a->dtype);
}

size_t cpu_matrix_forward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    return (((size_t)a->seq_q + a->seq_k) * (a->head_dim + sb_head_dim_v(a)) + matrix_size(a)) * sizeof(float);
}

size_t cpu_matrix_backward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    const size_t d = a->head_dim, d_v = sb_head_dim_v(a); /* q, dq, dO; k, dk, v, dv; P, dS */
    return ((2 * d + d_v) * a->seq_q + 2 * (d + d_v) * a->seq_k + 2 * matrix_size(a)) * sizeof(float);
}

static sb_status check(const sb_attention *a, size_t workspace_bytes)
{
    const sb_status status = sb_attention_check_host(a, workspace_bytes);
    if (status == SB_OK && !a->saved)
        return sb_error(SB_INVALID, "unfused and fused attention need the buffer `saved`");
    return status;
}

static sb_status matrix_forward(const sb_attention *a, const middle *mid)
{
    SB_TRY(check(a, cpu_matrix_forward_workspace(NULL, a)));
    int seq_q = a->seq_q, seq_k = a->seq_k, d = a->head_dim, d_v = sb_head_dim_v(a), group = a->heads / a->heads_kv;
    float *w = a->workspace;
    float *q = cpu_take(&w, (size_t)seq_q * d), *k = cpu_take(&w, (size_t)seq_k * d);
    float *v = cpu_take(&w, (size_t)seq_k * d_v), *o = cpu_take(&w, (size_t)seq_q * d_v);
    float *p = cpu_take(&w, matrix_size(a)); /* (Sq, Sk) */

    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++) {
            if (h % group == 0) {
                cpu_load_rows(a, &a->k, b, h / group, 0, seq_k, d, k);
                cpu_load_rows(a, &a->v, b, h / group, 0, seq_k, d_v, v);
            }
            cpu_load_rows(a, &a->q, b, h, 0, seq_q, d, q);
            sb_part_begin("scores");
            cpu_gemm(false, true, seq_q, seq_k, d, 1, q, d, k, d, 0, p, seq_k);
            sb_part_end();
            sb_part_begin("softmax");
            mid->forward(a, p, a->lse + ((size_t)b * a->heads + h) * seq_q);
            /* O is made of the P that is kept: rounded to the dtype. */
            cpu_store(a->dtype, saved_matrix(a, b, h), p, matrix_size(a));
            cpu_load(a->dtype, p, saved_matrix(a, b, h), matrix_size(a));
            sb_part_end();
            sb_part_begin("value");
            cpu_gemm(false, false, seq_q, d_v, seq_k, 1, p, seq_k, v, d_v, 0, o, d_v);
            sb_part_end();
            cpu_store_rows(a, &a->o, b, h, 0, seq_q, d_v, o);
        }
    return SB_OK;
}

static sb_status matrix_backward(const sb_attention *a, const middle *mid)
{
    SB_TRY(check(a, cpu_matrix_backward_workspace(NULL, a)));
    int seq_q = a->seq_q, seq_k = a->seq_k, d = a->head_dim, d_v = sb_head_dim_v(a), group = a->heads / a->heads_kv;
    float *w = a->workspace;
    float *q = cpu_take(&w, (size_t)seq_q * d), *d_o = cpu_take(&w, (size_t)seq_q * d_v);
    float *dq = cpu_take(&w, (size_t)seq_q * d);
    float *k = cpu_take(&w, (size_t)seq_k * d), *v = cpu_take(&w, (size_t)seq_k * d_v);
    float *dk = cpu_take(&w, (size_t)seq_k * d), *dv = cpu_take(&w, (size_t)seq_k * d_v);
    float *p = cpu_take(&w, matrix_size(a)), *ds = cpu_take(&w, matrix_size(a)); /* (Sq, Sk) */

    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++) {
            float add = h % group == 0 ? 0 : 1; /* the heads of a group add up in one dK, dV */
            if (h % group == 0) {
                cpu_load_rows(a, &a->k, b, h / group, 0, seq_k, d, k);
                cpu_load_rows(a, &a->v, b, h / group, 0, seq_k, d_v, v);
            }
            cpu_load_rows(a, &a->q, b, h, 0, seq_q, d, q);
            cpu_load_rows(a, &a->d_o, b, h, 0, seq_q, d_v, d_o);
            cpu_load(a->dtype, p, saved_matrix(a, b, h), matrix_size(a));
            sb_part_begin("value");
            cpu_gemm(true, false, seq_k, d_v, seq_q, 1, p, seq_k, d_o, d_v, add, dv, d_v);
            cpu_gemm(false, true, seq_q, seq_k, d_v, 1, d_o, d_v, v, d_v, 0, ds, seq_k);
            sb_part_end();
            sb_part_begin("softmax");
            mid->backward(a, p, ds);
            cpu_round_operand(a->dtype, ds, matrix_size(a));
            sb_part_end();
            sb_part_begin("scores");
            cpu_gemm(false, false, seq_q, d, seq_k, 1, ds, seq_k, k, d, 0, dq, d);
            cpu_gemm(true, false, seq_k, d, seq_q, 1, ds, seq_k, q, d, add, dk, d);
            sb_part_end();
            cpu_store_rows(a, &a->dq, b, h, 0, seq_q, d, dq);
            if (h % group == group - 1) {
                cpu_store_rows(a, &a->dk, b, h / group, 0, seq_k, d, dk);
                cpu_store_rows(a, &a->dv, b, h / group, 0, seq_k, d_v, dv);
            }
        }
    return SB_OK;
}

static const middle unfused = {unfused_forward, unfused_backward}, fused = {fused_forward, fused_backward};

sb_status cpu_unfused_forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    (void)ctx, (void)stream;
    return matrix_forward(a, &unfused);
}

sb_status cpu_unfused_backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    (void)ctx, (void)stream;
    return matrix_backward(a, &unfused);
}

sb_status cpu_fused_forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    (void)ctx, (void)stream;
    return matrix_forward(a, &fused);
}

sb_status cpu_fused_backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    (void)ctx, (void)stream;
    return matrix_backward(a, &fused);
}
