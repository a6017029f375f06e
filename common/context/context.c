/* SPDX-License-Identifier: MIT */
/* A context from its shape to its passes; see context.h. */
#include "common/context/internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/core/text.h"

context_way context_way_named(const char *name)
{
    int way = 0;
    while (!text_is(context_rows[way].name, name))
        way++;
    return way;
}

int context_groups(int heads_kv)
{
    enum { ENOUGH = 4, MOST = 16 }; /* each group costs launches, and smaller calls */
    for (int groups = ENOUGH; groups <= MOST; groups++)
        if (heads_kv % groups == 0)
            return groups;
    int groups = ENOUGH;
    while (heads_kv % groups)
        groups--;
    return groups;
}

static int turns_of(const context_setup *x)
{
    const int kv = x->way == CONTEXT_ALL_TO_ALL ? x->whole.heads_kv / x->shape.ranks : x->whole.heads_kv;
    return x->way == CONTEXT_RING ? 1 : x->groups ? x->groups : kv ? context_groups(kv) : 1;
}

static int groups_of(const context_setup *x)
{
    return turns_of(x) * (x->way == CONTEXT_ALL_TO_ALL ? x->shape.ranks : 1);
}

const char *context_problem(const context_setup *x, char *out, size_t bytes)
{
    const int n = x->shape.ranks, kv = x->whole.heads_kv, groups = groups_of(x);
    if (x->shape.seq % (2 * n))
        snprintf(out, bytes, "%d tokens are not a multiple of %d, two chunks for each of %d ranks", (int)x->shape.seq,
                 2 * n, n);
    else if (x->way == CONTEXT_ALL_TO_ALL && kv % n)
        snprintf(out, bytes, "an all-to-all gives each of %d ranks as many heads; there are %d of keys", n, kv);
    else if (kv % groups)
        snprintf(out, bytes, "%d key and value heads make no %d equal groups", kv, groups);
    else if (x->fault != CONTEXT_NONE && !(context_rows[x->way].faults & 1u << x->fault))
        snprintf(out, bytes, "%s has no such error to plant", context_rows[x->way].name);
    else
        return NULL;
    return out;
}

/* Asks what a pass takes, of pointers that nobody looks at. */
static void plan_pass(context *k, bool backward)
{
    char *const nowhere = (char *)(uintptr_t)256; /* NOLINT: nothing is there */
    k->carved = nowhere;
    (backward ? k->row->backward : k->row->forward)(k);
    k->carved_bytes[backward] = (size_t)(k->carved - nowhere);
}

static void plan(context *k)
{
    const bool any = k->as.any_rank, asked = k->as.whole.deterministic;
    const int own[] = {k->at[0], k->at[1]}, ranks = k->as.shape.ranks;
    const context_fault fault = k->as.fault;
    k->planning = true;
    for (int rank = any ? 0 : ranks; rank <= ranks; rank++)
        for (int deterministic = asked; deterministic <= (any || asked); deterministic++) {
            for (int i = 0; i < 2; i++)
                k->at[i] = rank == ranks ? own[i] : context_chunk(&k->as.shape, rank, i);
            k->as.fault = rank == ranks ? fault : CONTEXT_NONE; /* which sees fewer keys on one rank */
            k->as.whole.deterministic = deterministic;
            plan_pass(k, false);
            plan_pass(k, true);
        }
    k->as.whole.deterministic = asked;
    k->planning = false;
}

context *context_create(const context_setup *x)
{
    context *k = xcalloc(1, sizeof *k);
    const sb_attention *a = &x->whole;
    *k = (context){
        .as = *x, .row = &context_rows[x->way], .rank = x->rank, .groups = groups_of(x), .turns = turns_of(x)};
    k->rows = (int)x->shape.seq / (2 * x->shape.ranks);
    k->heads = a->heads / k->groups;
    k->heads_kv = a->heads_kv / k->groups;
    k->head_dim = a->head_dim;
    k->element = (size_t)sb_dtype_bytes(a->dtype);
    k->wire = k->element == 4 ? COMM_FP32 : a->dtype == SB_BF16 ? COMM_BF16 : COMM_FP16;
    k->q_piece = (size_t)k->rows * (size_t)a->batch * (size_t)k->heads * (size_t)a->head_dim;
    k->k_piece = k->q_piece / (size_t)k->heads * (size_t)k->heads_kv;
    k->computing = k->moving = true;
    for (int i = 0; i < 2; i++)
        k->at[i] =
            breaks(k, CONTEXT_POSITION) ? i : context_chunk(&x->shape, x->rank, breaks(k, CONTEXT_ORDER) ? 1 - i : i);
    plan(k);
    return k;
}

static void each_event(context *k, device_event *(*make)(device *d), void (*drop)(device *d, device_event *e))
{
    device_event **const pairs[] = {k->arrived, k->first_arrived, k->used, k->computed, k->returned};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int place = 0; place < CONTEXT_PLACES; place++)
            if (make)
                pairs[i][place] = make(k->as.d);
            else
                drop(k->as.d, pairs[i][place]);
}

void context_connect(context *k, comm *c, void *const *at)
{
    k->comm = c;
    for (int r = 0; r < k->as.shape.ranks && at; r++) {
        k->at_rank[r] = at[r];
        k->push[r] = device_stream_create(k->as.d, STREAM_URGENT, "push");
        k->sent[r] = device_event_create(k->as.d);
    }
    k->reached = device_event_create(k->as.d);
    k->side = device_stream_create(k->as.d, STREAM_URGENT, "context");
    each_event(k, device_event_create, NULL);
}

void context_free(context *k)
{
    if (k && k->side) {
        device_stream_destroy(k->as.d, k->side);
        for (int r = 0; r < k->as.shape.ranks && k->at_rank[0]; r++) {
            device_stream_destroy(k->as.d, k->push[r]);
            device_event_destroy(k->as.d, k->sent[r]);
        }
        device_event_destroy(k->as.d, k->reached);
        each_event(k, NULL, device_event_destroy);
    }
    free(k);
}

size_t context_saved_bytes(const context *k)
{
    /* q, o, k and v of all chunks of a rank's heads */
    const size_t pieces = 4 * (k->q_piece + k->k_piece) * (size_t)(k->as.shape.ranks * k->turns);
    return k->as.way == CONTEXT_ALL_TO_ALL ? pieces * k->element : 0;
}

size_t context_workspace(const context *k, bool backward)
{
    return context_aligned(k->op_workspace[backward]) + k->carved_bytes[backward];
}

bool context_run(context *k, const context_pass *p, bool backward, void *main)
{
    if (!k->side)
        die(EXIT_CODE_FAILURE, "bug: a context that nobody connected");
    k->now = k->last[backward] = *p;
    k->passes[backward]++;
    k->main = main;
    k->carved = (char *)p->workspace + context_aligned(k->op_workspace[backward]);
    device_stream_follow(k->as.d, k->side, main);
    (backward ? k->row->backward : k->row->forward)(k);
    return k->status == SB_OK;
}

void context_moves_alone(context *k, void *main)
{
    const bool computing = k->computing, moving = k->moving;
    const int64_t forwards = k->passes[1] ? k->passes[0] / k->passes[1] : 0;
    const context_pass forward = k->last[0], backward = k->last[1];
    k->computing = false;
    k->moving = true;
    for (int64_t i = 0; i < forwards; i++)
        context_run(k, &forward, false, main);
    context_run(k, &backward, true, main);
    k->passes[0] -= forwards;
    k->passes[1]--;
    k->computing = computing;
    k->moving = moving;
}
