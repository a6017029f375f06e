/* SPDX-License-Identifier: MIT */
/* The tensors of an attention problem, and one step over them; see problem.h. */
#include "bench/attention/problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/rng.h"
#include "common/record/nvtx.h"
#include "common/session/status.h"

attention_context *attention_context_of(const attention_case *ac)
{
    return ac->s->user;
}

/* The case's key with the variant cut off. */
static void key_of_case(const bench_case *c, char *out, size_t out_bytes)
{
    const char *key = case_key(c), *variant = strstr(key, " variant=");
    snprintf(out, out_bytes, "%.*s", variant ? (int)(variant - key) : (int)strlen(key), key);
}

double attention_estimate_bytes(const attention_problem *problem, const char *variant)
{
    const sb_attention *s = &problem->shape;
    int elem = sb_dtype_bytes(s->dtype);
    double query = (double)s->batch * (double)s->heads * (double)s->seq_q;
    double key = (double)s->batch * (double)s->heads_kv * (double)s->seq_k;
    double columns = 2 * (double)(s->head_dim + attention_head_dim_v(s)); /* q o dO dq, k v dk dv */
    double tensors = (query + key) * columns * elem + 4 * query;          /* and lse */
    /* P, and beside it in backward dP turned to dS in place (fused) or not (unfused) */
    int matrices = strcmp(variant, "unfused") == 0 ? 3 : strcmp(variant, "fused") == 0 ? 2 : 0;
    return tensors + matrices * attention_matrix_bytes(s, elem);
}

int attention_columns(const attention_case *ac, const sb_tensor *t)
{
    const sb_attention *a = &ac->a;
    const bool of_values = t == &a->v || t == &a->o || t == &a->d_o || t == &a->dv;
    return (int)(of_values ? attention_head_dim_v(&ac->problem.shape) : ac->problem.shape.head_dim);
}

static int64_t elements(const attention_case *ac, const sb_tensor *t, bool keys)
{
    const sb_attention *s = &ac->problem.shape;
    const int64_t rows = keys ? (int64_t)s->heads_kv * s->seq_k : (int64_t)s->heads * s->seq_q;
    return s->batch * rows * attention_columns(ac, t);
}

/* Allocates a (B, H, S, D) or (B, H, S, Dv) tensor in the problem's layout; false when there is no memory. */
static bool tensor_alloc(attention_case *ac, sb_tensor *t, bool keys, const char *tag)
{
    const sb_attention *s = &ac->problem.shape;
    int64_t heads = keys ? s->heads_kv : s->heads, seq = keys ? s->seq_k : s->seq_q, d = attention_columns(ac, t);
    *t = ac->problem.seq_first ? (sb_tensor){NULL, seq * heads * d, d, heads * d}
                               : (sb_tensor){NULL, seq * heads * d, seq * d, d};
    t->data = memory_alloc(ac->s->mem, (size_t)elements(ac, t, keys) * (size_t)sb_dtype_bytes(ac->a.dtype), tag);
    return t->data != NULL;
}

static bool tensor_fill(attention_case *ac, const sb_tensor *t, bool keys, uint32_t stream_id, uint64_t seed)
{
    attention_context *b = attention_context_of(ac);
    sb_status status = b->kernels->fill_normal(b->ctx, ac->a.dtype, t->data, (size_t)elements(ac, t, keys), seed,
                                               stream_id, 1.0f, device_stream(ac->s->dev));
    return status_ok(ac->w, status, "fill");
}

/* All-ones bytes are NaN in every dtype: what a kernel fails to write can't pass the check. */
static void tensor_poison(attention_case *ac, const sb_tensor *t, bool keys)
{
    device_memset(ac->s->dev, t->data, 0xff, (size_t)elements(ac, t, keys) * (size_t)sb_dtype_bytes(ac->a.dtype));
}

bool attention_workspace(attention_case *ac, size_t bytes)
{
    memory_release(ac->s->mem, ac->a.workspace);
    ac->a.workspace = NULL;
    ac->a.workspace_bytes = bytes;
    if (bytes == 0)
        return true;
    ac->a.workspace = memory_alloc(ac->s->mem, bytes, "workspace");
    if (ac->a.workspace)
        device_memset(ac->s->dev, ac->a.workspace, 0xff, bytes);
    return ac->a.workspace != NULL;
}

sb_status attention_case_run(attention_case *ac, bool backward)
{
    range_push(backward ? "backward" : "forward");
    sb_status status = (backward ? ac->op->backward : ac->op->forward)(attention_context_of(ac)->ctx, &ac->a,
                                                                       device_stream(ac->s->dev));
    range_pop();
    return status;
}

static bool step_backward(attention_case *ac)
{
    sb_attention *a = &ac->a;
    if (!tensor_alloc(ac, &a->d_o, false, "d_o") || !tensor_alloc(ac, &a->dq, false, "dq") ||
        !tensor_alloc(ac, &a->dk, true, "dk") || !tensor_alloc(ac, &a->dv, true, "dv") ||
        !attention_workspace(ac, ac->op->backward_workspace(attention_context_of(ac)->ctx, a)) ||
        !tensor_fill(ac, &a->d_o, false, 3, ac->seed))
        return false;
    tensor_poison(ac, &a->dq, false);
    tensor_poison(ac, &a->dk, true);
    tensor_poison(ac, &a->dv, true);
    if (!status_ok(ac->w, attention_case_run(ac, true), "backward"))
        return false;
    device_sync(ac->s->dev);
    return true;
}

/* Borders of a case's documents, kept until the next case has some. */
typedef struct borders {
    int *q, *k;
} borders;

static void borders_clear(void *data)
{
    borders *b = data;
    free(b->q);
    free(b->k);
    *b = (borders){0};
}

/* Its documents' borders, into host memory. Keys are divided as queries are where there are as many. */
static void documents_of_case(attention_case *ac)
{
    sb_attention *sh = &ac->problem.shape;
    if (!sh->packed)
        return;
    borders *kept = session_cache(ac->s, "borders of documents", sizeof *kept, borders_clear);
    borders_clear(kept);
    const bool random = ac->problem.random_lengths;
    const uint64_t seed = rng_hash((uint64_t)option_int(ac->s->opt, "seed"), "lengths"); /* one for all cases */
    kept->q = documents_draw(sh->documents, sh->seq_q, random, seed, 0);
    kept->k = documents_draw(sh->documents, sh->seq_k, random, seed, sh->seq_k == sh->seq_q ? 0 : 1);
    sh->cu_seqlens_q = kept->q, sh->cu_seqlens_k = kept->k;
}

/* ... and from there onto the device. */
static const int *borders_upload(attention_case *ac, const int *from)
{
    const size_t bytes = sizeof *from * ((size_t)ac->a.documents + 1);
    int *to = memory_alloc(ac->s->mem, bytes, "cu_seqlens");
    if (to)
        device_upload(ac->s->dev, to, from, bytes);
    return to;
}

bool attention_step(attention_case *ac)
{
    session *s = ac->s;
    sb_context *ctx = attention_context_of(ac)->ctx;
    sb_attention *a = &ac->a;
    size_t lse_bytes = sizeof(float) * (size_t)a->batch * (size_t)a->heads * (size_t)a->seq_q;
    uint64_t seed = ac->seed;

    memory_peak_reset(s->mem);
    if (a->packed && (!(a->cu_seqlens_q = borders_upload(ac, ac->problem.shape.cu_seqlens_q)) ||
                      !(a->cu_seqlens_k = borders_upload(ac, ac->problem.shape.cu_seqlens_k))))
        return false;
    if (!tensor_alloc(ac, &a->q, false, "q") || !tensor_alloc(ac, &a->k, true, "k") ||
        !tensor_alloc(ac, &a->v, true, "v") || !tensor_alloc(ac, &a->o, false, "o") ||
        !(a->lse = memory_alloc(s->mem, lse_bytes, "lse")))
        return false;
    ac->saved_bytes = ac->op->saved_bytes(ctx, a);
    if (ac->saved_bytes && !(a->saved = memory_alloc(s->mem, ac->saved_bytes, "saved")))
        return false;
    if (!attention_workspace(ac, ac->op->forward_workspace(ctx, a)) || !tensor_fill(ac, &a->q, false, 0, seed) ||
        !tensor_fill(ac, &a->k, true, 1, seed) || !tensor_fill(ac, &a->v, true, 2, seed))
        return false;
    tensor_poison(ac, &a->o, false);
    device_memset(s->dev, a->lse, 0xff, lse_bytes);
    if (ac->saved_bytes)
        device_memset(s->dev, a->saved, 0xff, ac->saved_bytes);
    if (!status_ok(ac->w, attention_case_run(ac, false), "forward") || !attention_workspace(ac, 0))
        return false;
    device_sync(s->dev);
    ac->before_backward_bytes = memory_current(s->mem);
    if (!a->forward_only && !step_backward(ac))
        return false;
    ac->peak_bytes = memory_peak(s->mem);
    return attention_workspace(ac, 0);
}

/* An op without a backward for this case is taken forward alone, and the row says so. */
static bool supported(attention_case *ac)
{
    sb_context *ctx = attention_context_of(ac)->ctx;
    const sb_status both = ac->op->supported(ctx, &ac->a);
    if (both != SB_UNSUPPORTED)
        return status_ok(ac->w, both, NULL);
    char why[256];
    snprintf(why, sizeof why, "%s", sb_last_message());
    ac->a.forward_only = true;
    if (!status_ok(ac->w, ac->op->supported(ctx, &ac->a), NULL))
        return false;
    row_status_set(ac->w, ROW_OK, "forward only: %s", why);
    return true;
}

bool attention_describe(attention_case *ac, session *s, const bench_case *c, row *w, const attention_problem *problem)
{
    *ac = (attention_case){.s = s,
                           .w = w,
                           .problem = *problem,
                           .a = problem->shape,
                           .err_o = NAN,
                           .err_dq = NAN,
                           .err_dk = NAN,
                           .err_dv = NAN};
    key_of_case(c, ac->key, sizeof ac->key);
    ac->seed = rng_hash((uint64_t)option_int(s->opt, "seed"), ac->key);
    documents_of_case(ac);
    attention_context *b = attention_context_of(ac);
    const char *op = problem->op ? problem->op : case_variant(c);
    ac->op = sb_attention_find(b->kernels, op);
    if (!ac->op) {
        row_status_set(w, ROW_SKIP, "the %s backend has no %s attention", b->kernels->name, op);
        return false;
    }
    return supported(ac);
}
