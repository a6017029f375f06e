/* SPDX-License-Identifier: MIT */
/* The oracle: attention of chosen rows in fp64, straight from the definition, with a two-pass softmax. Every conversion,
 * product and sum is double; the scores of one row are the only thing kept, so it is slow and easy to believe. */
#include "kernels/cpu/cpu.h"

#include "common/core/numeric.h"

#include <math.h>

/* One (batch entry, query head) at a time, as double; the workspace holds all of it. */
typedef struct oracle {
    const sb_attention *a;
    double scale;
    int bh, bh_kv;       /* which head is loaded below; -1: none */
    double *q, *d_o;     /* (Sq, D) (Sq, Dv) */
    double *k, *v;       /* (Sk, D) (Sk, Dv) */
    double *p, *dp;      /* (Sk): one query row's probabilities, and the gradient of its scores */
    double *lse, *delta; /* (B*H, Sq): of every query row; a head's are NAN until some key row needs them */
} oracle;

static size_t row_count(const sb_attention *a)
{
    return (size_t)a->batch * a->heads * a->seq_q;
}

size_t cpu_reference_workspace(sb_context *ctx, const sb_attention *a, bool backward)
{
    (void)ctx;
    const size_t d = a->head_dim, d_v = sb_head_dim_v(a);
    size_t doubles = d * a->seq_q + (d + d_v) * a->seq_k + a->seq_k;
    if (backward)
        doubles += d_v * a->seq_q + a->seq_k + 2 * row_count(a);
    return doubles * sizeof(double);
}

static double *take(double **workspace, size_t n)
{
    double *p = *workspace;
    *workspace += n;
    return p;
}

static void load_head(const sb_attention *a, const sb_tensor *x, int b, int h, int n, int d, double *out)
{
    for (int s = 0; s < n; s++) {
        int64_t at = b * x->stride_b + h * x->stride_h + s * x->stride_s;
        const uint16_t *half = (const uint16_t *)x->data + at;
        const float *single = (const float *)x->data + at;
        double *row = out + (size_t)s * d;
        for (int i = 0; i < d; i++)
            row[i] = a->dtype == SB_BF16   ? bf16_to_float(half[i])
                     : a->dtype == SB_FP16 ? fp16_to_float(half[i])
                                           : single[i];
    }
}

static void load_heads(oracle *r, int bh)
{
    const sb_attention *a = r->a;
    int b = bh / a->heads, h = bh % a->heads, h_kv = h / (a->heads / a->heads_kv);
    if (bh == r->bh)
        return;
    const int d = a->head_dim, d_v = sb_head_dim_v(a);
    load_head(a, &a->q, b, h, a->seq_q, d, r->q);
    if (r->d_o)
        load_head(a, &a->d_o, b, h, a->seq_q, d_v, r->d_o);
    if (b * a->heads_kv + h_kv != r->bh_kv) {
        load_head(a, &a->k, b, h_kv, a->seq_k, d, r->k);
        load_head(a, &a->v, b, h_kv, a->seq_k, d_v, r->v);
    }
    r->bh = bh;
    r->bh_kv = b * a->heads_kv + h_kv;
}

/* Eight partial sums, so that the compiler may use vector registers without reordering what is written here. */
static double dot(const double *x, const double *y, int n)
{
    double part[8] = {0}, sum = 0;
    for (int i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++)
            part[j] += x[i + j] * y[i + j];
    for (int j = 0; j < 8; j++)
        sum += part[j];
    return sum;
}

/* Sum of the squares of the n terms of dot(x, y). */
static double squares_of_terms(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i] * x[i] * y[i];
    return sum;
}

/* out (D) += sum over the first n rows of x (n, D) times weight (n). */
static void add_rows(const double *weight, const double *x, int n, int d, double *out)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++)
            out[i] += weight[j] * x[(size_t)j * d + i];
}

/* p of one query row of the loaded head, its output o (Dv), and the log-sum-exp as the result. */
static double forward_row(oracle *r, int query, double *o)
{
    const sb_attention *a = r->a;
    int d = a->head_dim, d_v = sb_head_dim_v(a), first = sb_first_key(a, query), n = sb_visible_keys(a, query);
    double max = -INFINITY, sum = 0;

    for (int j = first; j < n; j++) {
        r->p[j] = r->scale * dot(r->q + (size_t)query * d, r->k + (size_t)j * d, d);
        max = fmax(max, r->p[j]);
    }
    for (int j = first; j < n; j++)
        sum += exp(r->p[j] - max);
    double lse = n > first ? max + log(sum) : -INFINITY;
    for (int j = first; j < n; j++)
        r->p[j] = exp(r->p[j] - max) / sum;
    for (int i = 0; i < d_v; i++)
        o[i] = 0;
    add_rows(r->p + first, r->v + (size_t)first * d_v, n - first, d_v, o);
    return lse;
}

static void query_row(oracle *r, int query, double *o_out, double *lse_out, double *dq_out, double *terms_out)
{
    const sb_attention *a = r->a;
    int d = a->head_dim, d_v = sb_head_dim_v(a), first = sb_first_key(a, query), n = sb_visible_keys(a, query);
    double o[SB_HEAD_DIM_MAX];

    double lse = forward_row(r, query, o);
    if (lse_out)
        *lse_out = lse;
    for (int i = 0; o_out && i < d_v; i++)
        o_out[i] = o[i];
    if (!dq_out)
        return;
    const double *d_o = r->d_o + (size_t)query * d_v;
    double delta = dot(o, d_o, d_v), squares = 0;
    for (int j = first; j < n; j++) {
        const double *k = r->k + (size_t)j * d, *v = r->v + (size_t)j * d_v, weight = r->scale * r->p[j];
        r->dp[j] = weight * (dot(d_o, v, d_v) - delta);
        squares += weight * weight * squares_of_terms(d_o, v, d_v) * dot(k, k, d);
    }
    if (terms_out)
        *terms_out = sqrt(squares);
    for (int i = 0; i < d; i++)
        dq_out[i] = 0;
    add_rows(r->dp + first, r->k + (size_t)first * d, n - first, d, dq_out);
}

/* lse and delta of every row of the loaded head, once. */
static void row_statistics(oracle *r)
{
    const sb_attention *a = r->a;
    double *lse = r->lse + (size_t)r->bh * a->seq_q, *delta = r->delta + (size_t)r->bh * a->seq_q, o[SB_HEAD_DIM_MAX];
    const int d_v = sb_head_dim_v(a);
    if (!isnan(lse[0]))
        return;
    for (int i = 0; i < a->seq_q; i++) {
        lse[i] = forward_row(r, i, o);
        delta[i] = dot(o, r->d_o + (size_t)i * d_v, d_v);
    }
}

/* Adds what the loaded query head gives to dk (D), dv (Dv) and the squares of dk's terms of one key. */
static void key_row(oracle *r, int key, double *dk, double *dv, double *squares)
{
    const sb_attention *a = r->a;
    int d = a->head_dim, d_v = sb_head_dim_v(a);
    const double *lse = r->lse + (size_t)r->bh * a->seq_q, *delta = r->delta + (size_t)r->bh * a->seq_q;
    const double *k = r->k + (size_t)key * d, *v = r->v + (size_t)key * d_v;

    row_statistics(r);
    for (int i = 0; i < a->seq_q; i++) {
        if (key < sb_first_key(a, i) || key >= sb_visible_keys(a, i))
            continue;
        const double *q = r->q + (size_t)i * d, *d_o = r->d_o + (size_t)i * d_v;
        double p = exp(r->scale * dot(q, k, d) - lse[i]);
        double ds = r->scale * p * (dot(d_o, v, d_v) - delta[i]);
        *squares += r->scale * p * r->scale * p * squares_of_terms(d_o, v, d_v) * dot(q, q, d);
        if (dk)
            add_rows(&ds, q, 1, d, dk);
        if (dv)
            add_rows(&p, d_o, 1, d_v, dv);
    }
}

static bool in_range(const int *x, int n, int limit)
{
    for (int i = 0; i < n; i++)
        if (x[i] < 0 || x[i] >= limit)
            return false;
    return true;
}

sb_status cpu_reference(sb_context *ctx, const sb_attention *a, const sb_attention_rows *rows, void *stream)
{
    (void)stream;
    const size_t d = a->head_dim, d_v = sb_head_dim_v(a);
    bool queries = rows->o || rows->lse || rows->dq, keys = rows->dk || rows->dv, backward = rows->dq || keys;
    SB_TRY(sb_attention_check(a));
    SB_TRY(sb_documents_check(a));
    SB_TRY(sb_workspace_check(a, cpu_reference_workspace(ctx, a, backward)));
    if (queries && !(in_range(rows->bh, rows->n, a->batch * a->heads) && in_range(rows->q_row, rows->n, a->seq_q)))
        return sb_error(SB_INVALID, "a query row of the reference lies outside of the tensor");
    if (keys && !(in_range(rows->bh_kv, rows->n, a->batch * a->heads_kv) && in_range(rows->k_row, rows->n, a->seq_k)))
        return sb_error(SB_INVALID, "a key row of the reference lies outside of the tensor");

    /* the workspace, which holds one head at a time */
    double *w = a->workspace;
    oracle r = {.a = a, .bh = -1, .bh_kv = -1};
    r.scale = a->scale != 0 ? a->scale : 1 / sqrt((double)d);
    r.q = take(&w, d * a->seq_q);
    r.k = take(&w, d * a->seq_k);
    r.v = take(&w, d_v * a->seq_k);
    r.p = take(&w, a->seq_k);
    if (backward) {
        r.d_o = take(&w, d_v * a->seq_q);
        r.dp = take(&w, a->seq_k);
        r.lse = take(&w, row_count(a));
        r.delta = take(&w, row_count(a));
        for (size_t i = 0; i < row_count(a); i++)
            r.lse[i] = NAN;
    }
    /* O, lse and dQ of the chosen query rows */
    for (int s = 0; queries && s < rows->n; s++) {
        load_heads(&r, rows->bh[s]);
        query_row(&r, rows->q_row[s], rows->o ? rows->o + s * d_v : NULL, rows->lse ? rows->lse + s : NULL,
                  rows->dq ? rows->dq + s * d : NULL, rows->dq_terms ? rows->dq_terms + s : NULL);
    }
    /* dK and dV of the chosen key rows, summed over the heads of their group */
    int group = a->heads / a->heads_kv;
    for (int s = 0; keys && s < rows->n; s++) {
        double *dk = rows->dk ? rows->dk + s * d : NULL, *dv = rows->dv ? rows->dv + s * d_v : NULL, squares = 0;
        for (size_t i = 0; dk && i < d; i++)
            dk[i] = 0;
        for (size_t i = 0; dv && i < d_v; i++)
            dv[i] = 0;
        for (int g = 0; g < group; g++) { /* heads of a batch entry are numbered on, so this holds across entries too */
            load_heads(&r, rows->bh_kv[s] * group + g);
            key_row(&r, rows->k_row[s], dk, dv, &squares);
        }
        if (rows->dk_terms)
            rows->dk_terms[s] = sqrt(squares);
    }
    return SB_OK;
}
