/* SPDX-License-Identifier: MIT */
/* The thread that watches in every rank: it reads the control channel, says that the rank lives and what it does, and
 * ends the process when the coordinator says so or is gone. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <time.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/session/watchdog.h"
#include "common/launch/internal.h"

/* ---- the end that comes from outside ---- */

static void *let_go(void *arg)
{
    launch *l = arg;
    launch_callback all[LAUNCH_CALLBACKS];
    pthread_mutex_lock(&l->lock);
    memcpy(all, l->on_end, sizeof all);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < LAUNCH_CALLBACKS; i++)
        if (all[i].fn)
            all[i].fn(all[i].user);
    return NULL;
}

void launch_join_within(pthread_t thread, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds;
    pthread_timedjoin_np(thread, NULL, &until);
}

_Noreturn static void end_now(launch *l, int code, const char *text)
{
    pthread_t helper;
    pthread_mutex_lock(&l->lock);
    channel_close(&l->c); /* rank 0's own coordinator must not wait for it */
    pthread_mutex_unlock(&l->lock);
    if (pthread_create(&helper, NULL, let_go, l) == 0)
        launch_join_within(helper, 1);
    if (l->coordinator) /* the others must hear of it first */
        launch_join_within(l->coordinator_thread, 2);
    watchdog_end(code, text);
}

/* ---- the watcher ---- */

static void take_answer(launch *l, const void *data, size_t bytes)
{
    if (!l->answer || l->answered || bytes != l->answer_bytes)
        return;
    if (bytes)
        memcpy(l->answer, data, bytes);
    l->answered = true;
    pthread_cond_broadcast(&l->changed);
}

static void take_pong(launch *l, const void *data, size_t bytes)
{
    const double now = l->now();
    if (bytes != sizeof l->pong)
        return;
    memcpy(&l->pong, data, sizeof l->pong);
    l->ponged = l->pong.number == l->pings;
    l->pong_at = now;
    pthread_cond_broadcast(&l->changed);
}

/* Under the lock. True when the coordinator ends this process: then *code says how. */
static bool take_messages(launch *l, int *code)
{
    control_kind kind;
    size_t bytes;
    int32_t number;
    channel_flush(&l->c);
    channel_fill(&l->c);
    for (const void *data; (data = channel_next(&l->c, &kind, &bytes));) {
        l->heard = host_seconds();
        if (kind == CONTROL_GATHERED)
            take_answer(l, data, bytes);
        if (kind == CONTROL_PONG)
            take_pong(l, data, bytes);
        if (kind == CONTROL_END && bytes >= sizeof number) {
            memcpy(&number, data, sizeof number);
            *code = number;
            return true;
        }
    }
    return false;
}

static void run_watch(launch *l)
{
    launch_callback now[LAUNCH_CALLBACKS];
    pthread_mutex_lock(&l->lock);
    memcpy(now, l->on_watch, sizeof now);
    l->inside_watch = 1;
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < LAUNCH_CALLBACKS; i++)
        if (now[i].fn)
            now[i].fn(now[i].user);
    pthread_mutex_lock(&l->lock);
    l->inside_watch = 0;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* Under the lock. What the rank's other threads did shows in its phase and in the session's beats. */
static void publish(launch *l)
{
    const char *phase = phase_get();
    unsigned long beats = watchdog_beats();
    l->status.beats++;
    if (strncmp(phase, l->status.phase, sizeof l->status.phase - 1) != 0 || beats != l->session_beats)
        launch_publish(l);
    else if (l->slot)
        status_write(l->slot, &l->status);
    l->session_beats = beats;
    if (!l->slot)
        channel_put(&l->c, CONTROL_STATUS, &l->status, sizeof l->status, NULL, 0);
}

/* Under the lock. The coordinator of ranks that somebody else started says several times a second that it runs: without a
 * word for --timeout rank 0 is stopped, or its host hangs. `gap_s`: for so long this process did not look itself. */
static bool silent_coordinator(launch *l, double gap_s)
{
    if (gap_s > 1)
        l->heard += gap_s;
    return !l->slot && !l->coordinator && l->timeout_s > 0 && host_seconds() - l->heard > l->timeout_s;
}

static void *watch(void *arg)
{
    enum { EVERY_MS = 50 };
    launch *l = arg;
    double published = 0, looked = host_seconds();
    char lost[512];
    for (;;) {
        int code = 0;
        pthread_mutex_lock(&l->lock);
        struct pollfd news = {.fd = l->c.fd, .events = (short)(POLLIN | (l->c.out_bytes ? POLLOUT : 0))};
        pthread_mutex_unlock(&l->lock);
        poll(&news, 1, EVERY_MS);

        pthread_mutex_lock(&l->lock);
        if (l->leaving) {
            pthread_mutex_unlock(&l->lock);
            return NULL;
        }
        bool due = host_seconds() - published >= 1e-3 * EVERY_MS, ended = take_messages(l, &code);
        const double now = host_seconds(), gap_s = now - looked;
        const bool broken = l->c.broken, silent = silent_coordinator(l, gap_s);
        looked = now;
        if (due && !ended && !broken)
            publish(l);
        status_describe(&l->status, lost, sizeof lost);
        pthread_mutex_unlock(&l->lock);
        if (ended)
            end_now(l, code, NULL);
        if (broken) {
            char *text = xasprintf("rank %d of %d lost its connection to %s, %s", l->rank, l->size,
                                   l->slot ? "the launcher" : "rank 0, which has died or can't be reached", lost);
            end_now(l, EXIT_CODE_TIMEOUT, text);
        }
        if (silent) {
            char *text =
                xasprintf("rank %d of %d heard nothing from rank 0 for --timeout %g s: rank 0 is stopped, or its "
                          "host hangs; this rank was at: %s",
                          l->rank, l->size, l->timeout_s, lost);
            end_now(l, EXIT_CODE_TIMEOUT, text);
        }
        if (due) {
            published = host_seconds();
            run_watch(l);
        }
    }
}

void launch_watch(launch *l)
{
    if (pthread_create(&l->watcher, NULL, watch, l) != 0)
        die(EXIT_CODE_FAILURE, "can't start the thread that watches a rank");
}
