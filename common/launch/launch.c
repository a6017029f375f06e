/* SPDX-License-Identifier: MIT */
/* A rank's exchanges with the others, its status and its failures; see launch.h. */
#include "common/launch/launch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/launch/internal.h"
#include "common/session/watchdog.h"

int launch_rank(const launch *l)
{
    return l->rank;
}
int launch_size(const launch *l)
{
    return l->size;
}
int launch_local_size(const launch *l)
{
    return l->local_size;
}
int launch_hosts(const launch *l)
{
    return l->hosts;
}
const char *launch_address(const launch *l)
{
    return l->address;
}
double launch_timeout_s(const launch *l)
{
    return l->timeout_s;
}

/* ---- exchanges ---- */

/* The coordinator ends this process, from the watcher; nobody else has anything left to do. */
_Noreturn static void wait_for_end(launch *l, int code, const char *text)
{
    for (int i = 0; i < 100; i++)
        usleep(50 * 1000);
    warn("rank %d: %s", l->rank, text);
    _exit(code);
}

void launch_gather(launch *l, const char *name, const void *mine, size_t bytes, void *all)
{
    control_gather asked = {.bytes = bytes};
    snprintf(asked.name, sizeof asked.name, "%s", name);
    OWNED char *both = xmalloc(sizeof asked + bytes);
    memcpy(both, &asked, sizeof asked);
    if (bytes)
        memcpy(both + sizeof asked, mine, bytes);

    pthread_mutex_lock(&l->lock);
    l->answer = all ? all : both; /* nothing is written there when bytes is 0 */
    l->answer_bytes = (size_t)l->size * bytes;
    l->answered = false;
    l->status.waiting = 1;
    launch_publish(l);
    channel_put(&l->c, CONTROL_GATHER, both, sizeof asked + bytes, NULL, 0);
    while (!l->answered)
        pthread_cond_wait(&l->changed, &l->lock);
    l->answer = NULL;
    l->status.waiting = 0;
    l->status.moves++;
    pthread_mutex_unlock(&l->lock);
}

void *launch_gathered(launch *l, const char *name, const void *mine, size_t bytes)
{
    void *all = xmalloc((size_t)l->size * bytes);
    launch_gather(l, name, mine, bytes, all);
    return all;
}

void launch_share(launch *l, const char *name, void *data, size_t bytes, int root)
{
    OWNED char *all = launch_gathered(l, name, data, bytes);
    memcpy(data, all + (size_t)root * bytes, bytes);
}

void launch_barrier(launch *l, const char *name)
{
    launch_gather(l, name, NULL, 0, NULL);
}

bool launch_all(launch *l, const char *name, bool mine)
{
    const char own = mine;
    bool every = true;
    OWNED char *all = launch_gathered(l, name, &own, 1);
    for (int r = 0; r < l->size; r++)
        every = every && all[r];
    return every;
}

double launch_most(launch *l, const char *name, double mine, int ranks)
{
    OWNED double *all = launch_gathered(l, name, &mine, sizeof mine);
    double most = 0;
    for (int r = 0; r < ranks; r++)
        most = all[r] > most || isnan(all[r]) ? all[r] : most;
    return most;
}

double *launch_most_each(launch *l, const char *name, const double *mine, int n, int ranks)
{
    double *most = xcalloc((size_t)n, sizeof *most);
    OWNED double *all = launch_gathered(l, name, mine, (size_t)n * sizeof *mine);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < n; i++)
            most[i] = fmax(most[i], all[(size_t)r * (size_t)n + (size_t)i]);
    return most;
}

double launch_sum(launch *l, const char *name, double mine, int ranks)
{
    OWNED double *all = launch_gathered(l, name, &mine, sizeof mine);
    double sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += all[r];
    return sum;
}

/* ---- status and failure ---- */

void launch_publish(launch *l)
{
    l->status.moves++;
    snprintf(l->status.phase, sizeof l->status.phase, "%s", phase_get());
    if (l->slot)
        status_write(l->slot, &l->status);
}

int launch_communicator(launch *l, const char *name, int first, int place, int size)
{
    enum { RANKS = 1 << 12 }; /* more than --ranks may be */
    pthread_mutex_lock(&l->lock);
    const uint32_t tag = ++l->communicators * RANKS + (uint32_t)first + 1;
    int on = 0;
    while (on < STATUS_COMMUNICATORS && l->status.on[on].tag)
        on++;
    if (on == STATUS_COMMUNICATORS || place < 0)
        on = -1;
    else
        l->status.on[on] = (communicator_status){.tag = tag, .place = (int16_t)place, .size = (int16_t)size};
    if (on >= 0)
        snprintf(l->status.on[on].name, sizeof l->status.on[on].name, "%s", name);
    launch_publish(l);
    pthread_mutex_unlock(&l->lock);
    return on;
}

void launch_communicator_end(launch *l, int on)
{
    if (on < 0)
        return;
    pthread_mutex_lock(&l->lock);
    l->status.on[on] = (communicator_status){0};
    launch_publish(l);
    pthread_mutex_unlock(&l->lock);
}

static uint32_t hash_of(const launch_op *op)
{
    uint32_t hash = (uint32_t)op->count * 2654435761u;
    for (const char *c = op->op; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    for (const char *c = op->dtype; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    return hash;
}

launch_number launch_collective(launch *l, const launch_op *op)
{
    pthread_mutex_lock(&l->lock);
    launch_number n = {.number = ++l->status.enqueued};
    snprintf(l->status.last, sizeof l->status.last, "%s #%lu of %zu %s on %s", op->op, n.number, op->count, op->dtype,
             op->name);
    if (op->on >= 0) {
        communicator_status *c = &l->status.on[op->on];
        n.here = ++c->enqueued;
        if (op->peer >= 0) {
            c->with[op->peer % STATUS_PLACES]++;
        } else {
            c->met++;
            c->what = hash_of(op);
        }
    }
    launch_publish(l);
    pthread_mutex_unlock(&l->lock);
    return n;
}

void launch_collective_done(launch *l, int on, launch_number up_to)
{
    pthread_mutex_lock(&l->lock);
    l->status.done = up_to.number > l->status.done ? up_to.number : l->status.done;
    if (on >= 0 && up_to.here > l->status.on[on].done)
        l->status.on[on].done = up_to.here;
    launch_publish(l);
    pthread_mutex_unlock(&l->lock);
}

static void send_failure(launch *l, int code, const char *text)
{
    const int32_t number = code;
    pthread_mutex_lock(&l->lock);
    channel_put(&l->c, CONTROL_FAIL, &number, sizeof number, text, strlen(text));
    pthread_mutex_unlock(&l->lock);
}

void launch_defer(launch *l, bool on)
{
    watchdog_defer(on);
    if (l->slot)
        atomic_store(&l->slot->defers, on);
}

int launch_asked(const launch *l)
{
    const int told = l->slot ? atomic_load(&l->slot->asked) : 0;
    return told ? told : watchdog_caught();
}

void launch_report(launch *l, int code, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    send_failure(l, code, text);
}

void launch_fail(launch *l, int code, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    send_failure(l, code, text);
    wait_for_end(l, code, text);
}

static void change(launch *l, launch_callback *list, launch_callback from, launch_callback to)
{
    pthread_mutex_lock(&l->lock);
    int i = 0;
    while (i < LAUNCH_CALLBACKS && (list[i].fn != from.fn || list[i].user != from.user))
        i++;
    if (i == LAUNCH_CALLBACKS)
        die(EXIT_CODE_FAILURE, "bug: more than %d communicators, or one is taken away twice", LAUNCH_CALLBACKS);
    list[i] = to;
    while (!to.fn && l->inside_watch) /* whoever takes a callback away may free what it uses */
        pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

void launch_on_end(launch *l, void (*fn)(void *user), void *user)
{
    change(l, l->on_end, (launch_callback){NULL, NULL}, (launch_callback){fn, user});
}
void launch_off_end(launch *l, void (*fn)(void *user), void *user)
{
    change(l, l->on_end, (launch_callback){fn, user}, (launch_callback){NULL, NULL});
}
void launch_on_watch(launch *l, void (*fn)(void *user), void *user)
{
    change(l, l->on_watch, (launch_callback){NULL, NULL}, (launch_callback){fn, user});
}
void launch_off_watch(launch *l, void (*fn)(void *user), void *user)
{
    change(l, l->on_watch, (launch_callback){fn, user}, (launch_callback){NULL, NULL});
}
