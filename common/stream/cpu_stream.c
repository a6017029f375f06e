/* SPDX-License-Identifier: MIT */
/* Worker threads as streams; see cpu_stream.h. Each record makes a new mark, shared by the event and by everything
 * that waits for it: recording an event again neither releases an earlier waiter nor delays it. */
#include "common/stream/cpu_stream.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/profile/timeline.h"

/* ---- marks ---- */

typedef struct mark {
    atomic_int users;
    pthread_mutex_t lock;
    pthread_cond_t passed;
    bool done;
    double seconds;
} mark;

struct cpu_event {
    pthread_mutex_t lock;
    mark *latest; /* NULL: never recorded */
};

static mark *mark_create(void)
{
    mark *m = xcalloc(1, sizeof *m);
    atomic_init(&m->users, 1);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->passed, NULL);
    return m;
}

static mark *mark_share(mark *m)
{
    if (m)
        atomic_fetch_add(&m->users, 1);
    return m;
}

static void mark_drop(mark *m)
{
    if (!m || atomic_fetch_sub(&m->users, 1) != 1)
        return;
    pthread_cond_destroy(&m->passed);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void mark_pass(void *arg)
{
    mark *m = *(mark **)arg;
    pthread_mutex_lock(&m->lock);
    m->done = true;
    m->seconds = host_seconds();
    pthread_cond_broadcast(&m->passed);
    pthread_mutex_unlock(&m->lock);
    mark_drop(m);
}

/* Takes over the caller's share. */
static double mark_wait(mark *m)
{
    if (!m)
        return NAN;
    const double start = host_seconds();
    pthread_mutex_lock(&m->lock);
    while (!m->done)
        pthread_cond_wait(&m->passed, &m->lock);
    double seconds = m->seconds;
    pthread_mutex_unlock(&m->lock);
    mark_drop(m);
    timeline_span(LANE_WAIT, "wait", start, host_seconds());
    return seconds;
}

static void mark_wait_task(void *arg)
{
    mark_wait(*(mark **)arg);
}

static mark *event_latest(cpu_event *e)
{
    pthread_mutex_lock(&e->lock);
    mark *m = mark_share(e->latest);
    pthread_mutex_unlock(&e->lock);
    return m;
}

/* ---- streams ---- */

typedef struct task {
    struct task *next;
    void (*fn)(void *arg);
    max_align_t arg[];
} task;

struct cpu_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    task *first, **end; /* enqueued and not begun */
    bool busy, closing;
    char name[16];
};

static task *take(cpu_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->busy = false;
    pthread_cond_broadcast(&s->changed);
    while (!s->first && !s->closing)
        pthread_cond_wait(&s->changed, &s->lock);
    task *t = s->first;
    if (t) {
        s->busy = true;
        s->first = t->next;
        if (!s->first)
            s->end = &s->first;
    }
    pthread_mutex_unlock(&s->lock);
    return t;
}

static void *work(void *arg)
{
    cpu_stream *s = arg;
    pthread_setname_np(pthread_self(), s->name);
    for (task *t; (t = take(s));) {
        t->fn(t->arg);
        free(t);
    }
    return NULL;
}

cpu_stream *cpu_stream_create(const char *name)
{
    cpu_stream *s = xcalloc(1, sizeof *s);
    strncpy(s->name, name, sizeof s->name - 1);
    s->end = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, work, s) != 0)
        die(EXIT_CODE_FAILURE, "cannot start the thread of stream '%s'", name);
    return s;
}

void cpu_stream_destroy(cpu_stream *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void cpu_stream_run(cpu_stream *s, void (*fn)(void *arg), const void *arg, size_t bytes)
{
    task *t = xmalloc(sizeof *t + bytes);
    t->next = NULL;
    t->fn = fn;
    if (bytes)
        memcpy(t->arg, arg, bytes);
    if (!s) {
        fn(t->arg);
        free(t);
        return;
    }
    pthread_mutex_lock(&s->lock);
    *s->end = t;
    s->end = &t->next;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void cpu_stream_sync(cpu_stream *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ---- events ---- */

cpu_event *cpu_event_create(void)
{
    cpu_event *e = xcalloc(1, sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    return e;
}

void cpu_event_destroy(cpu_event *e)
{
    if (!e)
        return;
    mark_drop(e->latest);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

void cpu_stream_record(cpu_stream *s, cpu_event *e)
{
    mark *m = mark_create(), *before;
    pthread_mutex_lock(&e->lock);
    before = e->latest;
    e->latest = mark_share(m);
    pthread_mutex_unlock(&e->lock);
    mark_drop(before);
    cpu_stream_run(s, mark_pass, &m, sizeof m);
}

void cpu_stream_wait(cpu_stream *s, cpu_event *e)
{
    mark *m = event_latest(e);
    if (m)
        cpu_stream_run(s, mark_wait_task, &m, sizeof m);
}

void cpu_event_sync(cpu_event *e)
{
    mark_wait(event_latest(e));
}

bool cpu_event_done(cpu_event *e)
{
    mark *m = event_latest(e);
    if (!m)
        return true;
    pthread_mutex_lock(&m->lock);
    bool done = m->done;
    pthread_mutex_unlock(&m->lock);
    mark_drop(m);
    return done;
}

double cpu_event_ms(cpu_event *from, cpu_event *to)
{
    double start = mark_wait(event_latest(from)), end = mark_wait(event_latest(to));
    return (end - start) * 1e3;
}
