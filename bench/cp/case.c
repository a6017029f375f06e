/* SPDX-License-Identifier: MIT */
/* A case from its options to its tensors; see case.h. */
#include "bench/cp/case.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/text.h"
#include "common/model/dtypes.h"
#include "common/replica/replica.h"

/* ---- agreement ---- */

bool cp_agree(cp_case *k, const char *name)
{
    return replica_agree_row(&(replica_place){.l = k->l, .mem = k->s->mem}, name, k->w, k->setup.shape.ranks, k->wrong);
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
    snprintf(key, sizeof key, "%d %d", k->setup.shape.ranks, max_ctas);
    world *w = cache_find(k->s->kept, "context", key);
    if (!w) {
        w = cache_add(k->s->kept, "context", key, sizeof *w, world_close);
        const comm_options o = {.name = "context", .ranks = k->setup.shape.ranks, .max_ctas = max_ctas, .pairs = true};
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

static void case_of(cp_case *k, session *s, const bench_case *c, row *w)
{
    *k = (cp_case){.s = s, .l = launch_of(s), .c = c, .w = w};
    const attention_context *at = s->user;
    const attention_problem p = problem_of(c);
    const int ranks = (int)case_int(c, "ranks"), rank = launch_rank(k->l);
    k->member = rank < ranks;
    k->copies = text_is(case_text(c, "transport"), "copy");
    k->setup = (context_setup){.d = s->dev,
                               .kernels = at->kernels,
                               .ctx = at->ctx,
                               .op = sb_attention_find(at->kernels, p.op),
                               .whole = p.shape,
                               .shape = {.ranks = ranks,
                                         .contiguous = strcmp(case_text(c, "order"), "contiguous") == 0,
                                         .causal = p.shape.causal,
                                         .seq = p.shape.seq_q},
                               .way = context_way_named(case_variant(c)),
                               .rank = k->member ? rank : 0,
                               .groups = (int)case_int(c, "groups"),
                               .fault = (context_fault)option_choice(s->opt, "plant-error"),
                               .pieces = true,
                               .any_rank = true};
}

static bool applicable(cp_case *k)
{
    char why[200];
    if (context_problem(&k->setup, why, sizeof why))
        row_status_set(k->w, ROW_SKIP, "%s", why);
    else if ((k->copies || device_kind_of(k->s->dev) == DEVICE_CPU) && case_int(k->c, "max-ctas"))
        row_status_set(k->w, ROW_SKIP, "--max-ctas is for NCCL");
    return row_status_get(k->w) == ROW_OK;
}

/* The next bytes of what other ranks reach, too; before it is there, they are only counted. */
static void *taken(cp_case *k, size_t bytes)
{
    char *base =
        k->memory ? shared_at(k->memory)[k->setup.rank] : (char *)(uintptr_t)256; /* NOLINT: nothing is there */
    void *at = base + k->taken;
    k->taken += (bytes + 255) / 256 * 256;
    return at;
}

/* NaN: what nobody writes can't pass the check. */
static void *filled(cp_case *k, size_t bytes, const char *tag)
{
    void *data = k->copies ? taken(k, bytes) : memory_alloc(k->s->mem, bytes, tag);
    if (data && (!k->copies || k->memory))
        device_memset(k->s->dev, data, 0xff, bytes);
    return data;
}

size_t cp_elements(const cp_case *k, const cp_tensor *t)
{
    return t->keys ? k->x->k_piece : k->x->q_piece;
}

static bool tensor_alloc(cp_case *k, cp_tensor *t, context_tensor *pass, bool keys, const char *tag)
{
    *t = (cp_tensor){.keys = keys};
    const int64_t piece = (int64_t)cp_elements(k, t),
                  row = (int64_t)(keys ? k->x->heads_kv : k->x->heads) * k->x->head_dim;
    t->at = (context_tensor){filled(k, 2 * (size_t)(piece * k->x->groups) * k->x->element, tag), row,
                             row * k->setup.whole.batch, 2 * piece, piece};
    *pass = t->at;
    return t->at.data;
}

static bool allocate(cp_case *k)
{
    const sb_attention *a = &k->setup.whole;
    const size_t forward = context_workspace(k->x, false), backward = context_workspace(k->x, true);
    const size_t saved = context_saved_bytes(k->x);
    context_pass *p = &k->pass;
    p->lse = filled(k, 2 * sizeof(float) * (size_t)a->batch * (size_t)a->heads * (size_t)k->x->rows, "lse");
    p->workspace = filled(k, forward > backward ? forward : backward, "workspace");
    p->saved = saved ? filled(k, saved, "whole heads") : NULL;
    return p->lse && p->workspace && (p->saved || !saved) && tensor_alloc(k, &k->q, &p->q, false, "q") &&
           tensor_alloc(k, &k->k, &p->k, true, "k") && tensor_alloc(k, &k->v, &p->v, true, "v") &&
           tensor_alloc(k, &k->o, &p->o, false, "o") && tensor_alloc(k, &k->d_o, &p->d_o, false, "d_o") &&
           tensor_alloc(k, &k->dq, &p->dq, false, "dq") && tensor_alloc(k, &k->dk, &p->dk, true, "dk") &&
           tensor_alloc(k, &k->dv, &p->dv, true, "dv");
}

/* Places are the same on all ranks: each counts the same tensors. */
static bool open_memory(cp_case *k)
{
    char why[256] = "";
    k->taken = CONTEXT_WORDS_BYTES;
    allocate(k);
    if (launch_most(k->l, "bytes", (double)k->taken, launch_size(k->l)) > (double)k->taken)
        die(EXIT_CODE_FAILURE, "bug: ranks that copy into each other's memory need %zu bytes and more", k->taken);
    k->memory = shared_open(k->l, k->s->dev, NULL, k->setup.shape.ranks, k->taken, why, sizeof why);
    k->taken = CONTEXT_WORDS_BYTES;
    if (!k->memory)
        row_status_set(k->w, ROW_SKIP, "%s", why);
    return k->memory;
}

bool cp_ran(cp_case *k)
{
    const context *x = k->x;
    if (x->status != SB_OK && row_status_get(k->w) == ROW_OK)
        row_status_set(k->w, x->status == SB_UNSUPPORTED ? ROW_SKIP : ROW_FAIL, "%s", x->why);
    return x->status == SB_OK;
}

bool cp_pass(cp_case *k, bool backward)
{
    return context_run(k->x, &k->pass, backward, device_stream(k->s->dev));
}

void cp_finish(cp_case *k)
{
    context_free(k->x);
    shared_close(k->memory);
}

/* ---- pieces ---- */

void cp_take_piece(cp_case *k, const cp_tensor *t, void *piece, int group, int which, const sb_tensor *whole)
{
    const context *x = k->x;
    const int64_t row = t->at.b, token = (int64_t)context_chunk(&x->as.shape, x->rank, which) * x->rows;
    const sb_dtype dtype = x->as.whole.dtype;
    for (int b = 0; b < x->as.whole.batch; b++) {
        const int64_t from = b * whole->stride_b + group * row + token * whole->stride_s;
        context_add(k->x, (context_operand){dtype, (char *)whole->data + from * (int64_t)x->element, whole->stride_s},
                    (context_operand){.data = NULL},
                    (context_operand){dtype, (char *)piece + b * row * (int64_t)x->element, t->at.s}, (size_t)x->rows,
                    (size_t)row);
    }
}

static void take(cp_case *k, const cp_tensor *t, int group, int which, const sb_tensor *whole)
{
    cp_take_piece(k, t, context_piece(k->x, &t->at, group, which), group, which, whole);
}

/* This rank's part of the whole sequence's inputs. */
static void take_inputs(cp_case *k)
{
    const sb_attention *w = &k->whole.a;
    k->x->main = device_stream(k->s->dev);
    for (int g = 0; g < k->x->groups; g++)
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
    k->x = context_create(&k->setup);
    if (k->copies && !open_memory(k))
        return false;
    if (k->member) {
        context_connect(k->x, k->comm, k->memory ? shared_at(k->memory) : NULL);
        if (cp_ran(k) && allocate(k))
            take_inputs(k);
        k->peak_bytes = memory_peak(s->mem) - before + (k->copies ? k->taken : 0);
    }
    return cp_agree(k, "memory");
}
