/* SPDX-License-Identifier: MIT */
/* The whole sequence on one rank, as the ranks compute it: the calls of each rank one after another, by the same op in the same
 * shapes, and sums of dk and dv rounded where the ranks round them. It knows neither pieces nor moves. */
#include "bench/cp/case.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

typedef struct part { /* a call: some queries and the keys from the first on, of a group of heads */
    int first, rows, keys, group, groups;
} part;

static sb_tensor tensor(cp_case *k, int heads)
{
    const int64_t row = (int64_t)heads * k->setup.whole.head_dim, all = row * k->setup.whole.seq_q;
    const size_t bytes = (size_t)(all * k->setup.whole.batch) * k->x->element;
    return (sb_tensor){memory_alloc(k->s->mem, bytes, "parts"), all, k->setup.whole.head_dim, row};
}

/* From a token on, the heads of a group. */
static sb_tensor at(const cp_case *k, sb_tensor t, int token, int heads, const part *p)
{
    const int64_t head = (int64_t)p->group * (heads / p->groups);
    t.data = (char *)t.data + (size_t)(token * t.stride_s + head * t.stride_h) * k->x->element;
    return t;
}

/* lse: (B, heads of the group, rows) on the device, to its place. */
static void keep_lse(cp_case *k, const part *p, const float *lse, float *whole)
{
    const int heads = k->setup.whole.heads / p->groups;
    const size_t n = (size_t)p->rows;
    OWNED float *host = xcalloc((size_t)k->setup.whole.batch * (size_t)heads * n, sizeof *host);
    device_sync(k->s->dev);
    device_download(k->s->dev, host, lse, (size_t)k->setup.whole.batch * (size_t)heads * n * sizeof *host);
    for (int b = 0; b < k->setup.whole.batch; b++)
        for (int h = 0; h < heads; h++)
            memcpy(whole +
                       ((size_t)b * (size_t)k->setup.whole.heads + (size_t)(p->group * heads + h)) *
                           (size_t)k->setup.whole.seq_q +
                       p->first,
                   host + (size_t)(b * heads + h) * n, n * sizeof *host);
}

/* Forward and backward of a part; dk and dv are written. */
static void run(cp_case *k, const part *p, float *lse, const cp_results *out, const sb_tensor *dk, const sb_tensor *dv)
{
    const sb_attention *w = &k->whole.a;
    const int heads = k->setup.whole.heads, heads_kv = k->setup.whole.heads_kv;
    sb_attention a = k->x->as.whole; /* with the backward that the ranks run, deterministic or not */
    a.heads = heads / p->groups;
    a.heads_kv = heads_kv / p->groups;
    a.seq_q = p->rows;
    a.seq_k = p->keys;
    a.q = at(k, w->q, p->first, heads, p);
    a.d_o = at(k, w->d_o, p->first, heads, p);
    a.k = at(k, w->k, 0, heads_kv, p);
    a.v = at(k, w->v, 0, heads_kv, p);
    a.o = at(k, out->o, p->first, heads, p);
    a.dq = at(k, out->dq, p->first, heads, p);
    a.dk = at(k, *dk, 0, heads_kv, p);
    a.dv = at(k, *dv, 0, heads_kv, p);
    a.lse = lse;
    context_attend(k->x, a, false);
    context_attend(k->x, a, true);
    keep_lse(k, p, lse, out->lse);
}

/* to = from, or to + from, over the first `tokens` of the sequence. */
static void add(cp_case *k, sb_dtype type, const sb_tensor *to, sb_dtype type_from, const sb_tensor *from, int tokens,
                bool sum)
{
    const size_t row = (size_t)k->setup.whole.heads_kv * (size_t)k->setup.whole.head_dim;
    for (int b = 0; b < k->setup.whole.batch; b++) {
        char *x = (char *)to->data + (size_t)(b * to->stride_b * sb_dtype_bytes(type));
        const char *y = (const char *)from->data + (size_t)(b * from->stride_b * sb_dtype_bytes(type_from));
        const int64_t ld = (int64_t)row;
        context_add(k->x, (context_operand){type_from, y, ld}, (context_operand){type, sum ? x : NULL, ld},
                    (context_operand){type, x, ld}, (size_t)tokens, row);
    }
}

static bool all_to_all(cp_case *k, float *lse, const cp_results *out)
{
    for (int g = 0; g < k->x->groups; g++)
        run(k, &(part){0, k->setup.whole.seq_q, k->setup.whole.seq_q, g, k->x->groups}, lse, out, &out->dk, &out->dv);
    return true;
}

static bool gather(cp_case *k, float *lse, const cp_results *out)
{
    const context_shape *s = &k->setup.shape;
    const size_t sums = (size_t)k->setup.whole.batch * (size_t)out->dk.stride_b * sizeof(float);
    const sb_tensor *to[] = {&out->dk, &out->dv};
    sb_tensor shares[2][2], sum[2]; /* of the first and second chunk's queries: dk, dv; sums in fp32 */
    for (int t = 0; t < 2; t++) {
        shares[0][t] = tensor(k, k->setup.whole.heads_kv);
        shares[1][t] = tensor(k, k->setup.whole.heads_kv);
        sum[t] = *to[t];
        sum[t].data = memory_alloc(k->s->mem, sums, "parts");
        if (!shares[0][t].data || !shares[1][t].data || !sum[t].data)
            return false;
        device_memset(k->s->dev, sum[t].data, 0, sums);
    }
    for (int r = 0; r < s->ranks; r++) {
        for (int i = 0; i < 2; i++)
            for (int g = 0; g < k->x->groups; g++) {
                const int chunk = context_chunk(s, r, i), seen = s->causal ? chunk + 1 : 2 * s->ranks;
                run(k, &(part){chunk * k->x->rows, k->x->rows, seen * k->x->rows, g, k->x->groups}, lse, out,
                    &shares[i][0], &shares[i][1]);
            }
        const int both = (s->causal ? context_chunk(s, r, 0) + 1 : 2 * s->ranks) * k->x->rows;
        for (int t = 0; t < 2; t++) {
            add(k, k->setup.whole.dtype, &shares[1][t], k->setup.whole.dtype, &shares[0][t], both, true);
            add(k, SB_FP32, &sum[t], k->setup.whole.dtype, &shares[1][t], context_seen(s, r) * k->x->rows, true);
        }
    }
    for (int t = 0; t < 2; t++)
        add(k, k->setup.whole.dtype, to[t], SB_FP32, &sum[t], k->setup.whole.seq_q, false);
    return true;
}

bool cp_parts(cp_case *k, cp_results *out)
{
    const size_t n = (size_t)k->setup.whole.batch * (size_t)k->setup.whole.heads * (size_t)k->setup.whole.seq_q;
    float *lse = memory_alloc(k->s->mem, n * sizeof *lse, "parts");
    *out =
        (cp_results){tensor(k, k->setup.whole.heads), tensor(k, k->setup.whole.heads),
                     tensor(k, k->setup.whole.heads_kv), tensor(k, k->setup.whole.heads_kv), xcalloc(n, sizeof(float))};
    if (!lse || !out->o.data || !out->dq.data || !out->dk.data || !out->dv.data)
        return false;
    return (k->setup.way == CONTEXT_ALL_TO_ALL ? all_to_all : gather)(k, lse, out) && k->x->status == SB_OK;
}
