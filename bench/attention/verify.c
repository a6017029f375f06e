/* SPDX-License-Identifier: MIT */
/* Checks the attention benches' outputs against the fp64 oracle on sampled rows. See verify.h. */
#include "bench/attention/problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/check.h"
#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"
#include "common/session/status.h"

enum {
    SAMPLED_ROWS = 32, /* query rows and key rows compared on a large shape */
    ALL_ROWS_MAX = 256 /* shapes with at most this many rows are compared whole */
};

/* The oracle's answer for the last case, kept because every variant of a case has the same inputs. */
typedef struct oracle {
    char key[512];
    bool backward; /* has gradients too */
    sb_attention_rows rows;
} oracle;

static void oracle_clear(void *data)
{
    oracle *o = data;
    free((void *)o->rows.bh); /* one block holds the four index arrays */
    free(o->rows.o);          /* and one the results */
    *o = (oracle){0};
}

static oracle *oracle_of(const attention_case *ac)
{
    return session_cache(ac->s, "attention oracle", sizeof(oracle), oracle_clear);
}

static const sb_attention_rows *rows_of(const attention_case *ac)
{
    return &oracle_of(ac)->rows;
}

/* The first row of a random document, or the one before it; -1 where it has none. */
static int border_row(const attention_case *ac, uint32_t stream, int i, bool keys)
{
    const sb_attention *s = &ac->problem.shape;
    const int *begin = keys ? s->cu_seqlens_k : s->cu_seqlens_q;
    const int document = (int)(rng_uniform(ac->seed, stream, (uint64_t)i) * (double)s->documents);
    const int row = begin[document] - i / 3 % 2;
    return row < begin[s->documents] ? row : -1;
}

/* A third of the sample are rows at the borders of documents, if there are any. */
static int packed_row(const attention_case *ac, uint32_t stream, int i, bool keys, int otherwise)
{
    const int row = ac->a.packed && i % 3 == 0 ? border_row(ac, stream + 8, i, keys) : -1;
    return row >= 0 ? row : otherwise;
}

/* Row i of the sample: first the ends and the edges of 64- and 128-row tiles, then random ones. */
static int sample_row(uint64_t seed, uint32_t stream, int i, int extent)
{
    const int edges[] = {0, extent - 1, 1, 63, 64, 65, 127, 128, extent - 2, extent / 2};
    if (i < (int)(sizeof edges / sizeof *edges) && edges[i] >= 0 && edges[i] < extent)
        return edges[i];
    return (int)(rng_uniform(seed, stream, (uint64_t)i) * extent);
}

static void oracle_choose(const attention_case *ac, oracle *o)
{
    const sb_attention *a = &ac->a;
    int64_t queries = (int64_t)a->batch * a->heads * a->seq_q, keys = (int64_t)a->batch * a->heads_kv * a->seq_k;
    int64_t most = queries > keys ? queries : keys;
    bool whole = most <= ALL_ROWS_MAX;
    int n = whole ? (int)most : SAMPLED_ROWS;
    int *index = xcalloc((unsigned long)n * 4, sizeof *index);
    const size_t block = (size_t)n * (size_t)a->head_dim, block_v = (size_t)n * (size_t)attention_columns(ac, &a->v);
    double *result = xcalloc(2 * block + 2 * block_v + 3 * (size_t)n, sizeof *result),
           *of_rows = result + 2 * block + 2 * block_v;

    for (int i = 0; i < n; i++) {
        index[i] = whole ? (int)(i % queries) / a->seq_q : sample_row(ac->seed, 16, i, a->batch * a->heads);
        index[n + i] =
            whole ? (int)(i % queries) % a->seq_q : packed_row(ac, 17, i, false, sample_row(ac->seed, 17, i, a->seq_q));
        index[2 * n + i] = whole ? (int)(i % keys) / a->seq_k : sample_row(ac->seed, 18, i, a->batch * a->heads_kv);
        index[3 * n + i] =
            whole ? (int)(i % keys) % a->seq_k : packed_row(ac, 19, i, true, sample_row(ac->seed, 19, i, a->seq_k));
    }
    o->rows = (sb_attention_rows){.n = n,
                                  .bh = index,
                                  .q_row = index + n,
                                  .bh_kv = index + 2 * n,
                                  .k_row = index + 3 * n,
                                  .o = result,
                                  .dq = o->backward ? result + block_v : NULL,
                                  .dk = o->backward ? result + block_v + block : NULL,
                                  .dv = o->backward ? result + block_v + 2 * block : NULL,
                                  .lse = of_rows,
                                  .dq_terms = o->backward ? of_rows + n : NULL,
                                  .dk_terms = o->backward ? of_rows + 2 * n : NULL};
}

/* Makes the oracle hold the answer for this case. */
static bool oracle_ask(attention_case *ac)
{
    const attention_context *b = attention_context_of(ac);
    oracle *o = oracle_of(ac);
    const bool backward = !ac->a.forward_only;
    if (strcmp(o->key, ac->key) == 0 && (o->backward || !backward))
        return true;
    oracle_clear(o);
    o->backward = backward;
    oracle_choose(ac, o);
    if (!attention_workspace(ac, b->kernels->reference_workspace(b->ctx, &ac->a, backward)) ||
        !status_ok(ac->w, b->kernels->reference(b->ctx, &ac->a, &o->rows, device_stream(ac->s->dev)), "oracle"))
        return false;
    snprintf(o->key, sizeof o->key, "%s", ac->key);
    return attention_workspace(ac, 0);
}

double attention_element(sb_dtype dtype, const void *data, size_t i)
{
    if (dtype == SB_BF16)
        return bf16_to_float(((const uint16_t *)data)[i]);
    if (dtype == SB_FP16)
        return fp16_to_float(((const uint16_t *)data)[i]);
    return ((const float *)data)[i];
}

/* unfused and fused add up all keys, or all queries, in one chain of cuBLAS's, whose rounding grows with the root of its length
 * (4.5e-6 at 65536 in fp32); flash rounds tile by tile. */
static check_bound bound_of(const attention_case *ac, bool backward, const double *terms)
{
    const sb_attention *a = &ac->a;
    check_bound b = terms ? check_terms_bound(sb_dtype_name(ac->a.dtype), terms)
                          : check_attention_bound(sb_dtype_name(ac->a.dtype), backward);
    if (a->dtype != SB_FP32 || strncmp(ac->op->name, "flash", 5) == 0)
        return b;
    const double longer = sqrt(1 + fmax(a->seq_q, a->seq_k) / 4096.0);
    b.rel_l2 *= longer, b.rel_row *= longer, b.max_abs *= longer;
    return b;
}

/* Compares the sampled rows of one tensor with the oracle's; false after making the row `fail`. */
static bool compare(attention_case *ac, const char *name, const sb_tensor *t, bool keys, const double *want,
                    double *err)
{
    const sb_attention *a = &ac->a;
    const sb_attention_rows *r = rows_of(ac);
    int heads = keys ? a->heads_kv : a->heads, d = attention_columns(ac, t);
    size_t elem = (size_t)sb_dtype_bytes(a->dtype);
    OWNED double *got = xcalloc((unsigned long)r->n * (unsigned long)d, sizeof *got);
    OWNED void *raw = xmalloc((unsigned long)d * elem);

    for (int i = 0; i < r->n; i++) {
        int bh = keys ? r->bh_kv[i] : r->bh[i], seq = keys ? r->k_row[i] : r->q_row[i];
        int64_t at = bh / heads * t->stride_b + bh % heads * t->stride_h + seq * t->stride_s;
        device_download(ac->s->dev, raw, (const char *)t->data + (size_t)at * elem, (size_t)d * elem);
        for (int j = 0; j < d; j++)
            got[(size_t)i * (size_t)d + (size_t)j] = attention_element(a->dtype, raw, (size_t)j);
    }
    const double *terms = t == &a->dq ? r->dq_terms : t == &a->dk ? r->dk_terms : NULL;
    check_bound bound = bound_of(ac, t != &a->o, terms);
    check_result result = check_compare(want, got, (size_t)r->n * (size_t)d, (size_t)d, bound);
    *err = result.nonfinite ? NAN : result.rel_l2;
    if (!result.ok && row_status_get(ac->w) == ROW_OK) {
        int i = (int)(result.worst / (size_t)d);
        char text[256];
        check_describe(&result, bound, text, sizeof text);
        row_status_set(ac->w, ROW_FAIL, "wrong %s at (head %d, row %d, element %d): %s", name,
                       keys ? r->bh_kv[i] : r->bh[i], keys ? r->k_row[i] : r->q_row[i], (int)(result.worst % (size_t)d),
                       text);
    }
    return result.ok;
}

static bool compare_lse(attention_case *ac)
{
    const sb_attention_rows *r = rows_of(ac);
    OWNED double *got = xcalloc((unsigned long)r->n, sizeof *got);
    for (int i = 0; i < r->n; i++) {
        float x;
        device_download(ac->s->dev, &x, ac->a.lse + (size_t)r->bh[i] * (size_t)ac->a.seq_q + r->q_row[i], sizeof x);
        got[i] = x;
    }
    check_bound bound = bound_of(ac, false, NULL);
    check_result result = check_logarithms(r->lse, got, (size_t)r->n, bound);
    if (!result.ok && row_status_get(ac->w) == ROW_OK) {
        char text[256];
        check_describe(&result, bound, text, sizeof text);
        row_status_set(ac->w, ROW_FAIL, "wrong lse at (head %d, row %d): %s", r->bh[result.worst],
                       r->q_row[result.worst], text);
    }
    return result.ok;
}

bool attention_verify(attention_case *ac)
{
    const sb_attention *a = &ac->a;
    if (!oracle_ask(ac))
        return false;
    const sb_attention_rows *r = rows_of(ac);
    bool ok = compare(ac, "o", &a->o, false, r->o, &ac->err_o);
    ok = compare_lse(ac) && ok;
    if (a->forward_only)
        return ok;
    ok = compare(ac, "dq", &a->dq, false, r->dq, &ac->err_dq) && ok; /* each is compared: a fail row has all errors */
    ok = compare(ac, "dk", &a->dk, true, r->dk, &ac->err_dk) && ok;
    ok = compare(ac, "dv", &a->dv, true, r->dv, &ac->err_dv) && ok;
    return ok;
}
