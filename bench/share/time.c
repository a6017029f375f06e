/* SPDX-License-Identifier: MIT */
/* Timing of a case: blocks of steps back to back, then as many of the same walk without communication, whose numbers are no model's
 * any more, though parameters stay as they are; what a step sends, alone; and a step of the whole model on one rank. A step lasts from its start to the start of the next one, and step
 * i of a block is that of the slowest rank. */
#include "bench/share/share.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/model/context.h"
#include "bench/model/timing.h"
#include "common/core/cache.h"
#include "common/core/error.h"
#include "common/session/profile.h"
#include "common/session/watchdog.h"

enum { BLOCKS = 4, FEW_BLOCKS = 2, MANY_ITERS = 40, ALONE_CALLS = 10 };

void share_times_free(share_times *m)
{
    samples_free(&m->step);
    samples_free(&m->compute);
}

/* n calls after one that is not measured. */
static void time_calls(share_case *k, team *x, void (*call)(team *x), int n, bool counts, double *ms)
{
    device *d = x->at.d;
    device_event **at = marks_begin(d, n);
    call(x);
    device_sense_begin(d);
    for (int i = 0; i <= n; i++) {
        device_event_record(d, at[i]);
        if (i < n)
            call(x);
    }
    device_state_note(k->s->dev);
    team_settle(x);
    device_sense_end(d, counts);
    marks_end(d, at, n, ms);
}

static void block(share_case *k, team *x, void (*call)(team *x), int n, bool counts, samples *out)
{
    OWNED double *mine = xcalloc((unsigned long)n, sizeof *mine);
    launch_barrier(k->l, "block");
    if (x->member)
        time_calls(k, x, call, n, counts, mine);
    watchdog_beat();
    OWNED double *slowest = launch_most_each(k->l, "times", mine, n, k->ranks);
    for (int i = 0; i < n; i++)
        samples_add(out, slowest[i]);
}

/* The first step, the capture, and more steps. False after setting the row's status. */
static bool warm_up(share_case *k, team *x, double *loss_first)
{
    replica_problem problem;
    for (int i = 0, n = (int)option_int(k->s->opt, "warmup"); i < n; i++) {
        team_step(x);
        team_settle(x);
        if (i > 0)
            continue;
        *loss_first = launch_sum(k->l, "loss", x->member ? trainer_loss(x->t) : 0, k->ranks) / k->ranks;
        if (k->graph && !team_capture(x, &problem))
            return share_problem(k, &problem);
    }
    return true;
}

static void communicate(team *x, bool on)
{
    team_communicate(x, on);
    if (x->member)
        trainer_set_lr(x->t, on ? x->o.lr : 0);
}

/* Ranks that share layers have the same loss: they compute it of the same numbers. */
static bool same_loss(share_case *k, team *x, int b, share_times *m)
{
    const double loss = x->member ? trainer_loss(x->t) : NAN;
    OWNED double *all = launch_gathered(k->l, "loss", &loss, sizeof loss);
    for (int r = 0; r < k->ranks && b == 0; r++)
        m->loss_last += all[r] / k->ranks;
    for (int r = 0; r < k->ranks && row_status_get(k->w) == ROW_OK; r++) {
        const int first = r - r % k->m.tp; /* of those that have the same tokens */
        if (!isfinite(all[r]) || all[r] != all[first])
            row_status_set(k->w, ROW_FAIL, "after timed block %d the loss of rank %d is %.9g, that of rank %d %.9g",
                           b + 1, r, all[r], first, all[first]);
    }
    return row_status_get(k->w) == ROW_OK;
}

bool share_time(share_case *k, team *x, share_times *m)
{
    const int iters = k->s->timing.iters, calls = iters < ALONE_CALLS ? iters : ALONE_CALLS;
    const int blocks = iters < FEW_BLOCKS ? iters : iters < MANY_ITERS ? FEW_BLOCKS : BLOCKS;
    const int steps = (iters + blocks - 1) / blocks;
    samples alone = {0};
    *m = (share_times){.alone = NAN};
    phase_set("warm-up of %s", case_name(k->c));
    if (!warm_up(k, x, &m->loss_first))
        return false;
    phase_set("timing of %s", case_name(k->c));
    for (int b = 0; b < blocks; b++) {
        block(k, x, team_step, steps, true, &m->step);
        if (!same_loss(k, x, b, m))
            return false;
    }
    communicate(x, false);
    for (int b = 0; b < blocks; b++)
        block(k, x, team_step, steps, false, &m->compute);
    if (x->member && !isfinite(trainer_loss(x->t)))
        warn("%s: without communication, numbers are not finite, and a GPU at its power limit computes such "
             "numbers faster: compute_ms may be too low",
             case_name(k->c));
    communicate(x, true);
    const double used = (double)x->free_before - (double)device_free_bytes(x->at.d);
    const double most = launch_most(k->l, "device memory", x->member ? used : 0, k->ranks);
    m->used_bytes = device_kind_of(x->at.d) == DEVICE_CPU ? NAN : most;
    phase_set("timing collectives alone of %s", case_name(k->c));
    block(k, x, team_alone, calls, false, &alone);
    m->alone = stats_of(&alone).median;
    samples_free(&alone);
    return true;
}

/* ---- one rank ---- */

typedef struct one_rank {
    double ms;
    int64_t bytes;
} one_rank;

static char *key_of(const share_case *k)
{
    const step_options *o = &k->o;
    const model_config *c = &o->config;
    return xasprintf("%d %d %d %d %d %d x %d x %d %s %d %d/%d %s %d %d/%d %d %d %d clip %g on %d", c->vocab, c->d_model,
                     c->d_ff, c->layers, c->heads, c->heads_kv, o->batch, o->seq, o->precision->name, o->split,
                     o->grad_fp32, o->moments, o->attention, o->deterministic, o->recompute, o->recompute_every,
                     o->loss_chunk, o->micro_batches, o->overlap + 10 * k->graph, o->clip_norm, k->ranks);
}

/* Whether it fits beside what is taken: with a little room for the library's own. */
static bool fits(const share_case *k, int64_t bytes)
{
    const double room = 0.95 * (double)device_free_bytes(k->s->dev);
    return launch_most(k->l, "fits", (double)bytes > room, k->ranks) == 0;
}

static bool measure_one(share_case *k, one_rank *out)
{
    const int iters = k->s->timing.iters, steps = iters < ALONE_CALLS ? iters : ALONE_CALLS;
    samples ms = {0};
    double loss;
    phase_set("one rank with the whole model");
    team *x = share_team(k, &k->o, NULL);
    const bool ok = x && warm_up(k, x, &loss);
    if (ok)
        block(k, x, team_step, steps, false, &ms);
    out->ms = stats_of(&ms).median;
    samples_free(&ms);
    team_free(x);
    memory_release_all(k->s->mem);
    return ok;
}

bool share_one(share_case *k, double *ms, int64_t *bytes)
{
    const model_bench *b = k->s->user;
    OWNED char *key = key_of(k);
    one_rank *one = cache_find(k->s->kept, "one rank", key);
    bool ok = true;
    if (!one) {
        one = cache_add(k->s->kept, "one rank", key, sizeof *one, NULL);
        one->ms = NAN;
        one->bytes = trainer_planned_bytes(k->s->dev, b->kernels, b->ctx, &k->o);
        if (fits(k, one->bytes))
            ok = measure_one(k, one);
    }
    *ms = one->ms;
    *bytes = one->bytes;
    return ok;
}

/* ---- profile: steps, and their twin, the same walk with nothing sent ---- */

static bool profiled_step(void *arg)
{
    team_step(arg);
    return true;
}

static void settle(void *arg)
{
    team_settle(arg);
}

void share_profile(share_case *k, team *x)
{
    replica_problem problem;
    profile_result own, twin;
    profile_how how = {
        .dev = x->at.d, .together = true, .member = x->member, .silent = true, .settle = x->member ? settle : NULL};
    phase_set("first step of %s", case_name(k->c));
    team_step(x); /* loads kernels and connects ranks */
    team_settle(x);
    if (k->graph && !team_capture(x, &problem)) {
        share_problem(k, &problem);
        return;
    }
    team_communicate(x, false);
    session_profile(k->s, "compute-only steps", &how, profiled_step, x, &twin);
    team_communicate(x, true);
    how.silent = false;
    how.twin = &twin;
    session_profile(k->s, "steps", &how, profiled_step, x, &own);
}
