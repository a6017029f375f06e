/* SPDX-License-Identifier: MIT */
/* The watchdog thread, which also shows the current phase on a terminal; see watchdog.h. Signal handlers only leave a note
 * for it: blocking the signals would not do, because threads that libraries started before main could still receive
 * them. */
#include "common/session/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/output.h"
#include "common/core/signals.h"
#include "common/rows/rows.h"

static pthread_t thread;
static pthread_mutex_t row_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ulong beats;
static atomic_bool stopping, deferring;
static volatile sig_atomic_t caught;
static double timeout;
static char *rows_at; /* NULL: nowhere */

void watchdog_beat(void)
{
    atomic_fetch_add(&beats, 1);
}
unsigned long watchdog_beats(void)
{
    return atomic_load(&beats);
}
void watchdog_hold(void)
{
    pthread_mutex_lock(&row_lock);
}
void watchdog_release(void)
{
    pthread_mutex_unlock(&row_lock);
}

void watchdog_defer(bool on)
{
    atomic_store(&deferring, on);
}
int watchdog_caught(void)
{
    return caught;
}

void watchdog_end(int code, const char *what)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2; /* a main thread stuck inside a write must not keep the program alive */
    if (pthread_mutex_timedlock(&row_lock, &until) == 0)
        fflush(output());
    progress_clear();
    if (what)
        warn("%s%s%s%s%s", what, *phase_get() ? ", while: " : "", phase_get(),
             rows_at ? "; the rows so far are in " : "", rows_at ? rows_at : "");
    else if (rows_at)
        warn("the rows so far are in %s", rows_at);
    _exit(code);
}

static void *watch(void *arg)
{
    unsigned long seen = atomic_load(&beats);
    char phase[256] = "", text[128];
    double since = host_seconds();
    (void)arg;
    while (!atomic_load(&stopping)) {
        struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
        nanosleep(&pause, NULL);
        if (caught && !atomic_load(&deferring)) {
            snprintf(text, sizeof text, "stopped by %s", caught == SIGINT ? "SIGINT" : "SIGTERM");
            watchdog_end(128 + caught, text);
        }
        unsigned long now = atomic_load(&beats);
        const char *doing = phase_get();
        if (now != seen || strcmp(doing, phase) != 0) {
            seen = now;
            snprintf(phase, sizeof phase, "%s", doing);
            since = host_seconds();
        }
        if (pthread_mutex_trylock(&row_lock) == 0) { /* not into a row that is being printed */
            progress_phase(doing);
            pthread_mutex_unlock(&row_lock);
        }
        if (timeout > 0 && host_seconds() - since > timeout) {
            snprintf(text, sizeof text, "no progress for --timeout %g s", timeout);
            watchdog_end(EXIT_CODE_TIMEOUT, text);
        }
    }
    return NULL;
}

static void note_signal(int number)
{
    caught = number;
}

void watchdog_start(double timeout_s)
{
    /* RESETHAND: a second Ctrl-C ends the program at once, whatever this one waits for. */
    const int flags = SA_RESTART | (int)SA_RESETHAND;
    timeout = timeout_s;
    atomic_store(&stopping, false);
    signal_catch(SIGINT, note_signal, flags);
    signal_catch(SIGTERM, note_signal, flags);
    if (pthread_create(&thread, NULL, watch, NULL) != 0)
        die(EXIT_CODE_FAILURE, "cannot start the watchdog thread");
}

void watchdog_rows(const char *path)
{
    watchdog_hold();
    free(rows_at);
    rows_at = path ? xstrdup(path) : NULL;
    watchdog_release();
}

void watchdog_stop(void)
{
    atomic_store(&stopping, true);
    pthread_join(thread, NULL);
    signal_release(SIGINT);
    signal_release(SIGTERM);
    watchdog_rows(NULL);
}
