/* SPDX-License-Identifier: MIT */
/* Attention tile by tile with an online softmax (Dao et al., 2022, 2023): O(S D) memory, no S x S matrix. Backward
 * recomputes P from the log-sum-exp. Every sum has a fixed order, so it is always deterministic. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { TILE_Q = 64, TILE_K = 64 };

size_t cpu_flash_saved_bytes(sb_context *ctx, const sb_attention *a)
{
    (void)ctx, (void)a;
    return 0;
}

/* Columns of q or k, and of o or v. */
static size_t both_widths(const sb_attention *a)
{
    return (size_t)a->head_dim + sb_head_dim_v(a);
}

size_t cpu_flash_forward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    return (((size_t)a->seq_k + TILE_Q) * both_widths(a) + TILE_Q * TILE_K) * sizeof(float);
}

size_t cpu_flash_backward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    return (2 * ((size_t)a->seq_k + TILE_Q) * both_widths(a) + 2 * TILE_Q * TILE_K) * sizeof(float);
}

static int least(int x, int y)
{
    return x < y ? x : y;
}

/* The tile of the first key that any query from q0 on sees. */
static int first_tile(const sb_attention *a, int q0)
{
    return sb_first_key(a, q0) / TILE_K * TILE_K;
}

/* Keys of a tile that a query sees: from `first` to before `end`. */
typedef struct range {
    int first, end;
} range;

/* The keys that a query sees among the n of the tile that starts at key k0. */
static range visible_in_tile(const sb_attention *a, int query, int k0, int n)
{
    int first = sb_first_key(a, query) - k0, end = sb_visible_keys(a, query) - k0;
    first = first < 0 ? 0 : least(first, n);
    return (range){first, end < first ? first : least(end, n)};
}

/* Zero what a query does not see of a row of n. */
static void hide(float *row, range seen, int n)
{
    memset(row, 0, seen.first * sizeof *row);
    memset(row + seen.end, 0, (n - seen.end) * sizeof *row);
}

/* One row of the online softmax: scores s of the keys seen become exp(s - max), the others of n zero; max and sum follow,
 * and the row o so far is scaled to the new max. */
static void online_softmax_row(float *s, range seen, int n, float *max, float *sum, float *o, int d)
{
    float new_max = *max;
    for (int j = seen.first; j < seen.end; j++)
        new_max = s[j] > new_max ? s[j] : new_max;
    if (new_max > *max) {
        float shrink = expf(*max - new_max); /* 0 for the first keys of a row */
        for (int i = 0; i < d; i++)
            o[i] *= shrink;
        *sum *= shrink;
        *max = new_max;
    }
    float added = 0;
    for (int j = seen.first; j < seen.end; j++) {
        s[j] = expf(s[j] - new_max);
        added += s[j];
    }
    *sum += added;
    hide(s, seen, n);
}

sb_status cpu_flash_forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    (void)stream;
    SB_TRY(sb_attention_check_host(a, cpu_flash_forward_workspace(ctx, a)));
    int seq_q = a->seq_q, seq_k = a->seq_k, d = a->head_dim, d_v = sb_head_dim_v(a), group = a->heads / a->heads_kv;
    float scale = sb_attention_scale(a), max[TILE_Q], sum[TILE_Q];
    float *w = a->workspace;
    float *k = cpu_take(&w, (size_t)seq_k * d), *v = cpu_take(&w, (size_t)seq_k * d_v);
    float *q = cpu_take(&w, (size_t)TILE_Q * d), *o = cpu_take(&w, (size_t)TILE_Q * d_v);
    float *s = cpu_take(&w, TILE_Q * TILE_K); /* (tile of q, tile of k) */

    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++) {
            float *lse = a->lse + ((size_t)b * a->heads + h) * seq_q;
            if (h % group == 0) {
                cpu_load_rows(a, &a->k, b, h / group, 0, seq_k, d, k);
                cpu_load_rows(a, &a->v, b, h / group, 0, seq_k, d_v, v);
            }
            for (int q0 = 0; q0 < seq_q; q0 += TILE_Q) {
                int m = least(TILE_Q, seq_q - q0), keys = sb_visible_keys(a, q0 + m - 1);
                cpu_load_rows(a, &a->q, b, h, q0, m, d, q);
                memset(o, 0, (size_t)m * d_v * sizeof *o);
                for (int i = 0; i < m; i++) {
                    max[i] = -INFINITY;
                    sum[i] = 0;
                }
                /* S, online softmax, O += P V */
                for (int k0 = first_tile(a, q0); k0 < keys; k0 += TILE_K) {
                    int n = least(TILE_K, keys - k0);
                    cpu_gemm(false, true, m, n, d, scale, q, d, k + (size_t)k0 * d, d, 0, s, n);
                    for (int i = 0; i < m; i++) {
                        range seen = visible_in_tile(a, q0 + i, k0, n);
                        online_softmax_row(s + i * n, seen, n, &max[i], &sum[i], o + (size_t)i * d_v, d_v);
                    }
                    cpu_round_operand(a->dtype, s, (size_t)m * n);
                    cpu_gemm(false, false, m, d_v, n, 1, s, n, v + (size_t)k0 * d_v, d_v, 1, o, d_v);
                }
                /* O divided by the sums, and lse */
                for (int i = 0; i < m; i++) {
                    bool blind = sb_visible_keys(a, q0 + i) == sb_first_key(a, q0 + i);
                    float inverse = blind ? 0 : 1 / sum[i];
                    for (int j = 0; j < d_v; j++)
                        o[(size_t)i * d_v + j] *= inverse;
                    lse[q0 + i] = blind ? -INFINITY : max[i] + logf(sum[i]);
                }
                cpu_store_rows(a, &a->o, b, h, q0, m, d_v, o);
            }
        }
    return SB_OK;
}

/* delta (m) = the dot product of O and dO of each row: what softmax's backward subtracts from dP. */
static void delta_rows(const float *o, const float *d_o, int m, int d, float *delta)
{
    for (int i = 0; i < m; i++) {
        double sum = 0;
        for (int j = 0; j < d; j++)
            sum += (double)o[(size_t)i * d + j] * d_o[(size_t)i * d + j];
        delta[i] = (float)sum;
    }
}

sb_status cpu_flash_backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    (void)stream;
    SB_TRY(sb_attention_check_host(a, cpu_flash_backward_workspace(ctx, a)));
    int seq_q = a->seq_q, seq_k = a->seq_k, d = a->head_dim, d_v = sb_head_dim_v(a), group = a->heads / a->heads_kv;
    const size_t key_floats = (size_t)seq_k * d, value_floats = (size_t)seq_k * d_v;
    float scale = sb_attention_scale(a), delta[TILE_Q];
    float *w = a->workspace;
    float *k = cpu_take(&w, key_floats), *v = cpu_take(&w, value_floats);
    float *dk = cpu_take(&w, key_floats), *dv = cpu_take(&w, value_floats);
    float *q = cpu_take(&w, (size_t)TILE_Q * d), *o = cpu_take(&w, (size_t)TILE_Q * d_v);
    float *d_o = cpu_take(&w, (size_t)TILE_Q * d_v), *dq = cpu_take(&w, (size_t)TILE_Q * d);
    float *p = cpu_take(&w, TILE_Q * TILE_K), *ds = cpu_take(&w, TILE_Q * TILE_K); /* (tile of q, tile of k) */

    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++) {
            const float *lse = a->lse + ((size_t)b * a->heads + h) * seq_q;
            if (h % group == 0) { /* the heads of a group add up in one dK, dV */
                cpu_load_rows(a, &a->k, b, h / group, 0, seq_k, d, k);
                cpu_load_rows(a, &a->v, b, h / group, 0, seq_k, d_v, v);
                memset(dk, 0, key_floats * sizeof *dk);
                memset(dv, 0, value_floats * sizeof *dv);
            }
            for (int q0 = 0; q0 < seq_q; q0 += TILE_Q) {
                int m = least(TILE_Q, seq_q - q0), keys = sb_visible_keys(a, q0 + m - 1);
                cpu_load_rows(a, &a->q, b, h, q0, m, d, q);
                cpu_load_rows(a, &a->o, b, h, q0, m, d_v, o);
                cpu_load_rows(a, &a->d_o, b, h, q0, m, d_v, d_o);
                delta_rows(o, d_o, m, d_v, delta);
                memset(dq, 0, (size_t)m * d * sizeof *dq);
                for (int k0 = first_tile(a, q0); k0 < keys; k0 += TILE_K) {
                    int n = least(TILE_K, keys - k0);
                    const size_t at = (size_t)k0 * d, at_v = (size_t)k0 * d_v;
                    /* S and dP, then P and dS from them */
                    cpu_gemm(false, true, m, n, d, scale, q, d, k + at, d, 0, p, n);
                    cpu_gemm(false, true, m, n, d_v, 1, d_o, d_v, v + at_v, d_v, 0, ds, n);
                    for (int i = 0; i < m; i++) {
                        range seen = visible_in_tile(a, q0 + i, k0, n);
                        float *p_row = p + i * n, *ds_row = ds + i * n;
                        for (int j = seen.first; j < seen.end; j++) {
                            p_row[j] = expf(p_row[j] - lse[q0 + i]);
                            ds_row[j] = p_row[j] * (ds_row[j] - delta[i]) * scale;
                        }
                        hide(p_row, seen, n);
                        hide(ds_row, seen, n);
                    }
                    /* dV += P^T dO, dK += dS^T Q, dQ += dS K */
                    cpu_round_operand(a->dtype, p, (size_t)m * n);
                    cpu_round_operand(a->dtype, ds, (size_t)m * n);
                    cpu_gemm(true, false, n, d_v, m, 1, p, n, d_o, d_v, 1, dv + at_v, d_v);
                    cpu_gemm(true, false, n, d, m, 1, ds, n, q, d, 1, dk + at, d);
                    cpu_gemm(false, false, m, d, n, 1, ds, n, k + at, d, 1, dq, d);
                }
                cpu_store_rows(a, &a->dq, b, h, q0, m, d, dq);
            }
            if (h % group == group - 1) {
                cpu_store_rows(a, &a->dk, b, h / group, 0, seq_k, d, dk);
                cpu_store_rows(a, &a->dv, b, h / group, 0, seq_k, d_v, dv);
            }
        }
    return SB_OK;
}
