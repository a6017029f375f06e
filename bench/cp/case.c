/* SPDX-License-Identifier: MIT */
/* A case from its options to its tensors; see case.h. */
#include "bench/cp/case.h"

#include <stdio.h>
#include <string.h>

#include "common/core/error.h"
#include "common/model/dtypes.h"
#include "common/replica/replica.h"

/* ---- agreement ---- */

bool cp_agree(cp_case *k, const char *name)
{
    return replica_agree_row(&(replica_place){.l = k->l, .mem = k->s->mem}, name, k->w, k->shape.ranks, k->wrong);
}

/* ---- set-up ---- */

typedef struct world { /* of the first ranks, with so many thread blocks */
    comm *c;           /* NULL: not made, and why */
    char why[256];
} world;

static void world_close(void *value)
{
    comm_destroy(((world *)value)->c);
}

static comm *communicator(cp_case *k)
{
    const int max_ctas = (int)case_int(k->c, "max-ctas");
    char key[32];
    snprintf(key, sizeof key, "%d %d", k->shape.ranks, max_ctas);
    world *w = cache_find(k->s->kept, "context", key);
    if (!w) {
        w = cache_add(k->s->kept, "context", key, sizeof *w, world_close);
        const comm_options o = {.name = "context", .ranks = k->shape.ranks, .max_ctas = max_ctas, .pairs = true};
        w->c = comm_create(k->l, k->s->dev, &o, w->why, sizeof w->why);
    }
    if (!w->c)
        row_status_set(k->w, ROW_SKIP, "%s", w->why);
    return w->c;
}

static attention_problem problem_of(const bench_case *c)
{
    const int heads_kv = (int)case_int(c, "heads-kv");
    sb_attention a = {.batch = (int)case_int(c, "batch"),
                      .heads = (int)case_int(c, "heads"),
                      .heads_kv = heads_kv ? heads_kv : (int)case_int(c, "heads"),
                      .seq_q = (int)case_int(c, "seq"),
                      .seq_k = (int)case_int(c, "seq"),
                      .head_dim = (int)case_int(c, "head-dim"),
                      .dtype = dtype_named(case_text(c, "dtype")),
                      .causal = case_int(c, "causal") != 0,
                      .deterministic = case_int(c, "deterministic") != 0};
    return (attention_problem){.shape = a, .op = "flash", .seq_first = true};
}

static int groups_of(const bench_case *c, const cp_way *way, const sb_attention *a, int ranks)
{
    if (way->way != CONTEXT_GATHER)
        return way->way == CONTEXT_ALL_TO_ALL ? ranks : 1;
    int groups = (int)case_int(c, "groups");
    if (groups == 0)
        for (groups = 4; a->heads_kv % groups; groups--)
            ;
    return groups;
}

/* Whether the way takes the case; the same on all ranks. */
static bool applicable(cp_case *k)
{
    const sb_attention *a = &k->base;
    const int n = k->shape.ranks;
    if (k->way->way == CONTEXT_ALL_TO_ALL && (a->heads_kv % n || a->heads % n))
        row_status_set(k->w, ROW_SKIP, "an all-to-all gives each of %d ranks as many heads; there are %d of keys", n,
                       a->heads_kv);
    else if (a->heads_kv % k->groups)
        row_status_set(k->w, ROW_SKIP, "%d key and value heads make no %d equal groups", a->heads_kv, k->groups);
    else if (k->plant != PLANT_NONE && !(k->way->plants & 1u << k->plant))
        row_status_set(k->w, ROW_SKIP, "%s has no such error to plant", k->way->name);
    return row_status_get(k->w) == ROW_OK;
}

static void case_of(cp_case *k, session *s, const bench_case *c, row *w)
{
    *k = (cp_case){.s = s, .l = launch_of(s), .c = c, .w = w};
    const attention_problem p = problem_of(c);
    k->base = p.shape;
    k->shape = (context_shape){.ranks = (int)case_int(c, "ranks"),
                               .contiguous = strcmp(case_text(c, "order"), "contiguous") == 0,
                               .causal = k->base.causal,
                               .seq = k->base.seq_q};
    k->rank = launch_rank(k->l);
    k->member = k->rank < k->shape.ranks;
    k->way = cp_ways;
    while (strcmp(k->way->name, case_variant(c)) != 0)
        k->way++;
    k->groups = groups_of(c, k->way, &k->base, k->shape.ranks);
    k->rows = k->base.seq_q / (2 * k->shape.ranks);
    k->element = (size_t)sb_dtype_bytes(k->base.dtype);
    k->wire = k->element == 4 ? COMM_FP32 : k->base.dtype == SB_BF16 ? COMM_BF16 : COMM_FP16;
    k->plant = (cp_plant)option_choice(k->s->opt, "plant-error");
    const bool broken = k->rank == k->shape.ranks - 1;
    for (int i = 0; i < 2; i++)
        k->at[i] = broken && k->plant == PLANT_POSITION
                       ? i
                       : context_chunk(&k->shape, k->rank, broken && k->plant == PLANT_ORDER ? 1 - i : i);
}

static bool allocate(cp_case *k)
{
    const sb_attention *a = &k->base;
    const int g = k->groups, heads = a->heads / g, heads_kv = a->heads_kv / g, d = a->head_dim;
    const size_t lse = sizeof(float) * (size_t)a->batch * (size_t)a->heads * (size_t)k->rows;
    for (int i = 0; i < 2; i++)
        if (!(k->lse[i] = memory_alloc(k->s->mem, lse, "lse")))
            return false;
        else
            device_memset(k->s->dev, k->lse[i], 0xff, lse);
    return cp_tensor_alloc(k, &k->q, g, 2, heads, d, "q") && cp_tensor_alloc(k, &k->k, g, 2, heads_kv, d, "k") &&
           cp_tensor_alloc(k, &k->v, g, 2, heads_kv, d, "v") && cp_tensor_alloc(k, &k->o, g, 2, heads, d, "o") &&
           cp_tensor_alloc(k, &k->d_o, g, 2, heads, d, "d_o") && cp_tensor_alloc(k, &k->dq, g, 2, heads, d, "dq") &&
           cp_tensor_alloc(k, &k->dk, g, 2, heads_kv, d, "dk") && cp_tensor_alloc(k, &k->dv, g, 2, heads_kv, d, "dv") &&
           k->way->allocate(k);
}

/* The workspace of any call of any rank, whose parts the check computes here, too. Fewer keys may need more of it: a kernel
 * that cannot fill the GPU with blocks of queries splits the keys. */
static bool plan(cp_case *k)
{
    const int own[] = {k->at[0], k->at[1]};
    const bool asked = k->base.deterministic;
    k->planning = true;
    for (int rank = 0; rank <= k->shape.ranks; rank++)
        for (int deterministic = asked; deterministic < 2; deterministic++) {
            for (int i = 0; i < 2; i++)
                k->at[i] = rank == k->shape.ranks ? own[i] : context_chunk(&k->shape, rank, i);
            k->base.deterministic = deterministic;
            cp_forward(k);
            cp_backward(k);
        }
    k->base.deterministic = asked;
    k->planning = false;
    if (k->status != SB_OK) {
        row_status_set(k->w, k->status == SB_UNSUPPORTED ? ROW_SKIP : ROW_FAIL, "%s", k->why);
        return false;
    }
    if (k->workspace_bytes)
        k->workspace = memory_alloc(k->s->mem, k->workspace_bytes, "workspace");
    return k->workspace || !k->workspace_bytes;
}

static void streams_open(cp_case *k)
{
    device *d = k->s->dev;
    k->side = device_stream_create(d, STREAM_URGENT, "cp");
    k->begun = device_event_create(d);
    for (int i = 0; i < CP_PLACES; i++) {
        k->arrived[i] = device_event_create(d);
        k->used[i] = device_event_create(d);
        k->computed[i] = device_event_create(d);
        k->returned[i] = device_event_create(d);
    }
}

void cp_finish(cp_case *k)
{
    device *d = k->s->dev;
    if (!k->side)
        return;
    device_stream_destroy(d, k->side);
    device_event_destroy(d, k->begun);
    for (int i = 0; i < CP_PLACES; i++) {
        device_event_destroy(d, k->arrived[i]);
        device_event_destroy(d, k->used[i]);
        device_event_destroy(d, k->computed[i]);
        device_event_destroy(d, k->returned[i]);
    }
}

static void take(cp_case *k, const cp_tensor *t, int group, int which, const sb_tensor *whole)
{
    cp_piece_copy(k, t, cp_piece(k, t, group, which), group, which, whole, false);
}

/* This rank's part of the whole sequence's inputs. */
static void take_inputs(cp_case *k)
{
    const sb_attention *w = &k->whole.a;
    for (int g = 0; g < k->groups; g++)
        for (int i = 0; i < 2; i++) {
            take(k, &k->q, g, i, &w->q);
            take(k, &k->k, g, i, &w->k);
            take(k, &k->v, g, i, &w->v);
            take(k, &k->d_o, g, i, &w->d_o);
        }
}

bool cp_prepare(cp_case *k, session *s, const bench_case *c, row *w)
{
    case_of(k, s, c, w);
    if (!applicable(k) || !(k->comm = communicator(k)))
        return false;
    if (k->member) {
        const attention_problem p = problem_of(c);
        k->has_whole = attention_prepare(&k->whole, s, c, w, &p);
    }
    if (!cp_agree(k, "the whole sequence"))
        return false;
    const size_t before = memory_current(s->mem);
    memory_peak_reset(s->mem);
    if (k->member && allocate(k)) {
        streams_open(k);
        if (plan(k))
            take_inputs(k);
        k->peak_bytes = memory_peak(s->mem) - before;
    }
    return cp_agree(k, "memory");
}
