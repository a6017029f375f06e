/* SPDX-License-Identifier: MIT */
/* FLOPs and bytes; the only place that computes them. */
#include "common/formulas/attention.h"

double gemm_flops(int64_t m, int64_t n, int64_t k)
{
    return 2.0 * (double)m * (double)n * (double)k;
}

/* The sum of what `of` counts in each document. */
static double sum_of_documents(const sb_attention *s, double (*of)(const sb_attention *))
{
    double sum = 0;
    for (int64_t i = 0; i < s->documents; i++) {
        sb_attention one = *s;
        one.packed = false;
        one.seq_q = s->cu_seqlens_q[i + 1] - s->cu_seqlens_q[i];
        one.seq_k = s->cu_seqlens_k[i + 1] - s->cu_seqlens_k[i];
        sum += of(&one);
    }
    return sum;
}

int64_t attention_head_dim_v(const sb_attention *s)
{
    return s->head_dim_v ? s->head_dim_v : s->head_dim;
}

/* Pairs of one head as FLOPs count them: half of all for a causal mask, but in a window those that are there. */
static double counted_pairs(const sb_attention *s)
{
    if (s->packed)
        return sum_of_documents(s, counted_pairs);
    if (s->windowed)
        return attention_pairs(s);
    const double all = (double)s->seq_q * (double)s->seq_k;
    return s->causal ? all / 2 : all;
}

/* The operations of each head's products, which have `columns` columns together. */
static double product_flops(const sb_attention *s, int64_t columns)
{
    return 2.0 * (double)s->batch * (double)s->heads * (double)columns * counted_pairs(s);
}

double attention_forward_flops(const sb_attention *s)
{
    return product_flops(s, s->head_dim + attention_head_dim_v(s)); /* Q K^T, P V */
}

double attention_backward_flops(const sb_attention *s)
{
    return product_flops(s, 3 * s->head_dim + 2 * attention_head_dim_v(s)); /* Q K^T again, dQ, dK; dO V^T, dV */
}

static double pairs_in_window(const sb_attention *s)
{
    const bool ends = s->causal || s->window_right >= 0;
    const int64_t right = s->causal ? 0 : s->window_right;
    double pairs = 0;
    for (int64_t i = 0; i < s->seq_q; i++) {
        const int64_t own = i + s->seq_k - s->seq_q; /* the key of its position */
        const int64_t first = s->window_left >= 0 && own > s->window_left ? own - s->window_left : 0;
        const int64_t end = ends && own + right + 1 < s->seq_k ? own + right + 1 : s->seq_k;
        pairs += end > first ? (double)(end - first) : 0;
    }
    return pairs;
}

double attention_pairs(const sb_attention *s)
{
    double sq = (double)s->seq_q, sk = (double)s->seq_k;
    if (s->packed)
        return sum_of_documents(s, attention_pairs);
    if (s->windowed)
        return pairs_in_window(s);
    if (!s->causal)
        return sq * sk;
    if (sq <= sk) /* all but the triangle right of the diagonal */
        return sq * sk - sq * (sq - 1) / 2;
    return sk * (sk + 1) / 2; /* the first sq - sk queries see no key */
}

/* Bytes of a (B, heads, seq, D) tensor and a (B, heads, seq, Dv) one together. */
static double pair_bytes(const sb_attention *s, int64_t heads, int64_t seq, int elem_bytes)
{
    const int64_t columns = s->head_dim + attention_head_dim_v(s);
    return (double)s->batch * (double)heads * (double)seq * (double)columns * elem_bytes;
}

static double lse_bytes(const sb_attention *s)
{
    return (double)s->batch * (double)s->heads * (double)s->seq_q * 4;
}

double attention_forward_bytes(const sb_attention *s, int elem_bytes)
{
    const double qo = pair_bytes(s, s->heads, s->seq_q, elem_bytes);
    const double kv = pair_bytes(s, s->heads_kv, s->seq_k, elem_bytes);
    return qo + kv + lse_bytes(s);
}

double attention_backward_bytes(const sb_attention *s, int elem_bytes)
{
    const double qo = pair_bytes(s, s->heads, s->seq_q, elem_bytes);
    const double kv = pair_bytes(s, s->heads_kv, s->seq_k, elem_bytes);
    return 2 * qo + 2 * kv + lse_bytes(s); /* dq, dO beside q, o, and dk, dv beside k, v */
}

double attention_matrix_bytes(const sb_attention *s, int elem_bytes)
{
    return (double)s->batch * (double)s->heads * (double)s->seq_q * (double)s->seq_k * elem_bytes;
}
