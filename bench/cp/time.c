/* SPDX-License-Identifier: MIT */
/* The clock of a case: forward and backward of the ranks together, the same without moves, the moves alone, and the whole
 * sequence on one rank. A sample starts after a barrier and is one pass; kinds of passes alternate, so that clocks and neighbours are
 * the same for all. */
#include "bench/cp/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/record/nvtx.h"
#include "common/session/measure.h"
#include "common/session/profile.h"
#include "common/session/watchdog.h"

void cp_times_free(cp_times *t)
{
    for (int kind = 0; kind < CP_KINDS; kind++) {
        samples_free(&t->fwd[kind]);
        samples_free(&t->bwd[kind]);
    }
}

/* ---- the whole sequence on one rank ---- */

static bool whole_forward(void *arg)
{
    return attention_case_run(arg, false) == SB_OK;
}

static bool whole_backward(void *arg)
{
    return attention_case_run(arg, true) == SB_OK;
}

typedef struct one_rank {
    double fwd, bwd;
} one_rank;

static void time_whole(cp_case *k, one_rank *one)
{
    sb_context *ctx = attention_context_of(&k->whole)->ctx;
    const size_t forward = k->whole.op->forward_workspace(ctx, &k->whole.a);
    const size_t backward = k->whole.op->backward_workspace(ctx, &k->whole.a);
    const measure_how how = measure_default(k->s);
    if (!attention_workspace(&k->whole, forward > backward ? forward : backward) ||
        !measure_with(k->s, NULL, "whole forward", &how, whole_forward, &k->whole, &one->fwd) ||
        !measure_with(k->s, NULL, "whole backward", &how, whole_backward, &k->whole, &one->bwd))
        *one = (one_rank){NAN, NAN};
    attention_workspace(&k->whole, 0);
}

/* Rank 0 alone, once for all cases of a shape; the others wait. */
static void one_rank_of(cp_case *k, cp_times *t)
{
    const sb_attention *a = &k->setup.whole;
    char key[160];
    snprintf(key, sizeof key, "%d %d %d %d %d %d causal %d deterministic %d", a->batch, a->heads, a->heads_kv, a->seq_q,
             a->head_dim, a->dtype, a->causal, a->deterministic);
    one_rank *one = cache_find(k->s->kept, "one rank", key);
    if (!one) {
        one = cache_add(k->s->kept, "one rank", key, sizeof *one, NULL);
        phase_set("timing of the whole sequence on one rank, %s", case_name(k->c));
        if (launch_rank(k->l) == 0)
            time_whole(k, one);
        launch_share(k->l, "one rank", one, sizeof *one, 0);
    }
    t->one_fwd = one->fwd;
    t->one_bwd = one->bwd;
}

/* ---- the ranks together ---- */

static double sample(cp_case *k, bool backward, int kind, device_event *from, device_event *to)
{
    device *d = k->s->dev;
    k->x->computing = kind != CP_MOVES;
    k->x->moving = kind != CP_COMPUTE;
    comm_barrier(k->comm, device_stream(d));
    device_event_record(d, from);
    cp_pass(k, backward);
    device_event_record(d, to);
    const double ms = device_event_ms(d, from, to);
    watchdog_beat();
    return ms;
}

/* out: (n, kinds, 2). Every kind of the backward follows a whole forward, whose results it reads. */
static void take_samples(cp_case *k, int n, double *out)
{
    device *d = k->s->dev;
    device_event *from = device_event_create(d), *to = device_event_create(d);
    device_sense_begin(d);
    for (int i = 0; i < n; i++)
        for (int kind = 0; kind < CP_KINDS; kind++)
            for (int backward = 0; backward < 2; backward++)
                out[(i * CP_KINDS + kind) * 2 + backward] = sample(k, backward, kind, from, to);
    device_sense_end(d, true);
    device_event_destroy(d, from);
    device_event_destroy(d, to);
}

/* As many as --iters and --max-time ask for, the same on all ranks; after the warm-up. */
static int samples_of(cp_case *k)
{
    const timing *t = &k->s->timing;
    const int warmup = t->warmup > 0 ? t->warmup : 1;
    OWNED double *ignored = xcalloc((unsigned long)warmup * CP_KINDS * 2, sizeof *ignored);
    const double start = host_seconds();
    if (k->member)
        take_samples(k, warmup, ignored);
    const double each = launch_most(k->l, "estimate", (host_seconds() - start) / warmup, k->setup.shape.ranks);
    return measure_iters(t, each);
}

static bool once(void *arg)
{
    cp_case *k = arg;
    k->x->computing = k->x->moving = true;
    return cp_pass(k, false) && cp_pass(k, true);
}

bool cp_time(cp_case *k, cp_times *t)
{
    *t = (cp_times){.one_fwd = NAN};
    if (session_profiling(k->s)) {
        profile_result ignored;
        const profile_how how = {.dev = k->s->dev, .together = true, .member = k->member};
        session_profile(k->s, "attention", &how, once, k, &ignored);
        return false;
    }
    one_rank_of(k, t);
    phase_set("timing of %s", case_name(k->c));
    scope_push("timing");
    const int n = samples_of(k), each = CP_KINDS * 2;
    OWNED double *mine = xcalloc((unsigned long)n * (unsigned long)each, sizeof *mine);
    if (k->member)
        take_samples(k, n, mine);
    OWNED double *slowest = launch_most_each(k->l, "samples", mine, n * each, k->setup.shape.ranks);
    for (int i = 0; i < n * each; i++)
        samples_add(i % 2 ? &t->bwd[i / 2 % CP_KINDS] : &t->fwd[i / 2 % CP_KINDS], slowest[i]);
    k->x->received_bytes = 0;
    k->x->computing = k->x->moving = true;
    if (k->member) {
        cp_pass(k, false);
        cp_pass(k, true);
        device_sync(k->s->dev);
        measure_again(k->s, "attention", once, k);
    }
    t->moved_bytes = launch_most(k->l, "moved", k->x->received_bytes, k->setup.shape.ranks);
    scope_pop();
    cp_ran(k);
    return cp_agree(k, "timing");
}
