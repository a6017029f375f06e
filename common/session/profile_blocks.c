/* SPDX-License-Identifier: MIT */
/* Blocks of steps without and with a recording, in turn, and the choice of the step that is shown; see profile.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/session/profile_internal.h"
#include "common/session/watchdog.h"

enum { WARM_UP = 3, STEPS_MIN = 5 };
static const double block_ms = 2;

bool profile_first_rank(const session *s)
{
    return !s->peers || s->peers->rank == 0;
}

/* ---- ranks ---- */

void profile_share(const session *s, const profile_how *how, void *data, size_t bytes)
{
    if (how->together && s->peers)
        s->peers->share(s->peers->user, data, bytes);
}

bool profile_on_all(const session *s, const profile_how *how, bool mine)
{
    if (!how->together || !s->peers)
        return mine;
    OWNED char *all = xmalloc((size_t)s->peers->size);
    const char own = mine;
    s->peers->gather(s->peers->user, &own, 1, all);
    for (int i = 0; i < s->peers->size; i++)
        mine = mine && all[i];
    return mine;
}

/* ---- recording ---- */

static void wait_for(const profile_work *x)
{
    if (x->how->settle)
        x->how->settle(x->arg);
    device_sync(x->how->dev);
}

/* Steps back to back, one more than are wanted: a step ends where the next begins. */
static bool run_block(profile_work *x, bool recorded)
{
    device *d = x->how->dev;
    device_event *at[PROFILE_STEPS_MAX + 1];
    bool ok = true;
    for (int i = 0; i <= x->steps; i++)
        at[i] = device_event_create(d);
    ok = x->fn(x->arg); /* the host gets ahead; the first recorded one is slower */
    const double start = host_seconds();
    for (int i = 0; ok && i <= x->steps; i++) {
        if (recorded)
            recorder_step(i);
        device_event_record(d, at[i]);
        ok = x->fn(x->arg);
    }
    if (recorded)
        recorder_step(-1);
    wait_for(x);
    const double host_ms = (host_seconds() - start) * 1e3;
    for (int i = 0; ok && i < x->steps; i++)
        samples_add(recorded ? &x->recorded_ms : &x->event_ms, device_event_ms(d, at[i], at[i + 1]));
    if (!recorded)
        samples_add(&x->host_ms, host_ms / (x->steps + 1));
    for (int i = 0; i <= x->steps; i++)
        device_event_destroy(d, at[i]);
    watchdog_beat();
    return ok;
}

static bool record_block(profile_work *x, int block, char *why, size_t why_bytes)
{
    if (!recorder_start(x->how->dev, why, why_bytes))
        return false;
    const bool ran = run_block(x, true);
    x->r[block] = recorder_stop(x->how->dev, why, why_bytes);
    if (!ran)
        snprintf(why, why_bytes, "a step failed");
    else if (x->r[block])
        x->window_count[block] = record_windows(x->r[block], x->windows[block], x->steps);
    return ran && x->r[block];
}

static bool warm_up(profile_work *x, double *ms)
{
    *ms = INFINITY;
    for (int i = 0; i < WARM_UP; i++) {
        const double start = host_seconds();
        if (!x->fn(x->arg))
            return false;
        wait_for(x);
        *ms = fmin(*ms, (host_seconds() - start) * 1e3);
        watchdog_beat();
    }
    return true;
}

static bool record(profile_work *x, char *why, size_t why_bytes)
{
    double ms = INFINITY;
    bool ok = !x->how->member || warm_up(x, &ms);
    if (!ok)
        snprintf(why, why_bytes, "a step failed");
    x->steps = (int)fmin(PROFILE_STEPS_MAX, fmax(STEPS_MIN, ceil(block_ms / ms)));
    profile_share(x->s, x->how, &x->steps, sizeof x->steps);
    for (int block = 0; block < PROFILE_BLOCKS; block++) {
        if (!profile_on_all(x->s, x->how, ok))
            return false;
        if (!x->how->member)
            continue;
        ok = run_block(x, false) && record_block(x, block, why, why_bytes);
        if (!ok && !*why)
            snprintf(why, why_bytes, "a step failed");
    }
    return profile_on_all(x->s, x->how, ok);
}

/* ---- the step of median length ---- */

typedef struct length {
    double us;
    int block, step;
} length;

static profile_choice choose(const profile_work *x)
{
    length all[PROFILE_BLOCKS * PROFILE_STEPS_MAX];
    int n = 0;
    for (int block = 0; block < PROFILE_BLOCKS; block++)
        for (int i = 0; i < x->window_count[block]; i++)
            all[n++] = (length){x->windows[block][i].to_us - x->windows[block][i].from_us, block, i};
    if (n == 0)
        return (profile_choice){.block = -1};
    qsort(all, (size_t)n, sizeof *all, ascending);
    const length *l = &all[(n - 1) / 2];
    return (profile_choice){l->block, l->step, x->windows[l->block][l->step].from_us};
}

static clock_reading read_clock(const session *s, const profile_how *how)
{
    return how->together && s->peers ? s->peers->clock(s->peers->user) : (clock_reading){0};
}

/* By how much times of two ranks may be off: twice what the worst of them is. */
static double move_to_one_clock(profile_work *x, const clock_reading *before, const clock_reading *after)
{
    const session *s = x->s;
    if (!x->how->together || !s->peers)
        return 0;
    const host_clock clock = host_clock_of(before, after);
    double worst = 0, *all = xcalloc((size_t)s->peers->size, sizeof *all);
    s->peers->gather(s->peers->user, &clock.err_us, sizeof clock.err_us, all);
    for (int i = 0; i < s->peers->size; i++)
        worst = fmax(worst, all[i]);
    free(all);
    for (int block = 0; block < PROFILE_BLOCKS; block++) {
        if (x->r[block])
            recording_move(x->r[block], &clock);
        for (int i = 0; i < x->window_count[block]; i++) {
            record_window *w = &x->windows[block][i];
            w->from_us = host_clock_rank_0_s(&clock, w->from_us * 1e-6) * 1e6;
            w->to_us = host_clock_rank_0_s(&clock, w->to_us * 1e-6) * 1e6;
        }
    }
    return 2 * worst;
}

/* The same step on every rank, rank 0's. */
profile_choice profile_choose(const profile_work *x, bool ok)
{
    const session *s = x->s;
    profile_choice c = ok && x->how->member ? choose(x) : (profile_choice){.block = -1};
    if (!x->how->together || !s->peers)
        return c;
    profile_share(s, x->how, &c, sizeof c);
    if (x->how->member && c.block >= 0 && c.step >= x->window_count[c.block])
        c.block = -1;
    double mine = x->how->member && c.block >= 0 ? x->windows[c.block][c.step].from_us : INFINITY;
    OWNED double *all = xcalloc((size_t)s->peers->size, sizeof *all);
    s->peers->gather(s->peers->user, &mine, sizeof mine, all);
    for (int i = 0; i < s->peers->size; i++)
        c.base_us = fmin(c.base_us, all[i]);
    return c;
}

void profile_work_free(profile_work *x)
{
    for (int block = 0; block < PROFILE_BLOCKS; block++)
        recording_free(x->r[block]);
    samples_free(&x->event_ms);
    samples_free(&x->recorded_ms);
    samples_free(&x->host_ms);
}

bool profile_blocks(profile_work *x, double *clock_err_us, char *why, size_t why_bytes)
{
    const clock_reading before = read_clock(x->s, x->how);
    const bool ok = record(x, why, why_bytes);
    const clock_reading after = read_clock(x->s, x->how);
    *clock_err_us = move_to_one_clock(x, &before, &after);
    return ok;
}
