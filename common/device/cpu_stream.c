/* SPDX-License-Identifier: MIT */
/* Worker threads as streams; see cpu_stream.h. Each record on a stream makes a new mark, shared by the event and by
 * everything that waits for it: recording an event again neither releases an earlier waiter nor delays it. */
#include "common/device/cpu_stream.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/core/error.h"

/* ---- marks ---- */

typedef struct mark {
    atomic_int users;
    pthread_mutex_t lock;
    pthread_cond_t passed;
    bool done;
    double seconds;
} mark;

struct device_event {
    pthread_mutex_t lock;
    mark *latest;   /* NULL: the caller recorded it, and so passed it, or nobody has */
    double seconds; /* when the caller did; NAN: nobody has */
};

static mark *mark_create(void)
{
    mark *m = xcalloc(1, sizeof *m);
    atomic_init(&m->users, 2); /* the event, and the task that passes it */
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->passed, NULL);
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

/* Waits for the mark and gives up the caller's share of it; returns when it was passed. */
static double mark_wait(mark *m)
{
    pthread_mutex_lock(&m->lock);
    while (!m->done)
        pthread_cond_wait(&m->passed, &m->lock);
    const double seconds = m->seconds;
    pthread_mutex_unlock(&m->lock);
    mark_drop(m);
    return seconds;
}

static void mark_wait_task(void *arg)
{
    mark_wait(*(mark **)arg);
}

static mark *event_latest(device_event *e, double *seconds)
{
    pthread_mutex_lock(&e->lock);
    mark *m = e->latest;
    if (m)
        atomic_fetch_add(&m->users, 1);
    *seconds = e->seconds;
    pthread_mutex_unlock(&e->lock);
    return m;
}

/* Waits for the latest record. */
static double event_seconds(device_event *e)
{
    double seconds;
    mark *m = event_latest(e, &seconds);
    return m ? mark_wait(m) : seconds;
}

/* ---- streams ---- */

typedef struct task {
    struct task *next;
    void (*fn)(void *arg);
    max_align_t arg[];
} task;

typedef struct cpu_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    task *first, **end; /* enqueued and not begun */
    bool closing;
    char name[16];
} cpu_stream;

static task *take(cpu_stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->first && !s->closing)
        pthread_cond_wait(&s->changed, &s->lock);
    task *t = s->first;
    if (t) {
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

void *cpu_stream_create(device *d, stream_priority p, const char *name)
{
    (void)d, (void)p;
    cpu_stream *s = xcalloc(1, sizeof *s);
    strncpy(s->name, name, sizeof s->name - 1);
    s->end = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, work, s) != 0)
        die(EXIT_CODE_FAILURE, "cannot start the thread of stream '%s'", name);
    return s;
}

void cpu_stream_destroy(device *d, void *stream)
{
    (void)d;
    cpu_stream *s = stream;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void cpu_stream_run(device *d, void *stream, void (*fn)(void *arg), const void *arg, size_t bytes)
{
    (void)d;
    cpu_stream *s = stream;
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
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

typedef struct copy_task {
    void *dst;
    const void *src;
    size_t bytes;
} copy_task;

static void copy(void *arg)
{
    const copy_task *t = arg;
    memcpy(t->dst, t->src, t->bytes);
}

void cpu_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes)
{
    cpu_stream_run(d, stream, copy, &(copy_task){dst, src, bytes}, sizeof(copy_task));
}

/* ---- events ---- */

device_event *cpu_event_create(device *d)
{
    (void)d;
    device_event *e = xcalloc(1, sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    e->seconds = NAN;
    return e;
}

void cpu_event_destroy(device *d, device_event *e)
{
    (void)d;
    mark_drop(e->latest);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* On the calling thread a record is a reading of the clock, so that it costs what it times nothing. */
void cpu_stream_record(device *d, void *stream, device_event *e)
{
    mark *m = stream ? mark_create() : NULL;
    pthread_mutex_lock(&e->lock);
    mark *before = e->latest;
    e->latest = m;
    e->seconds = host_seconds();
    pthread_mutex_unlock(&e->lock);
    mark_drop(before);
    if (m)
        cpu_stream_run(d, stream, mark_pass, &m, sizeof m);
}

void cpu_stream_wait(device *d, void *stream, device_event *e)
{
    double seconds;
    mark *m = event_latest(e, &seconds);
    if (m)
        cpu_stream_run(d, stream, mark_wait_task, &m, sizeof m);
}

/* ---- flags: between threads of one process ---- */

static void raise_flag(void *arg)
{
    __atomic_store_n(*(uint32_t **)arg, 1, __ATOMIC_RELEASE);
}

static void lower_flag(void *arg)
{
    uint32_t *flag = *(uint32_t **)arg;
    for (int spins = 0; !__atomic_load_n(flag, __ATOMIC_ACQUIRE);)
        if (++spins < 20)
            sched_yield();
        else
            usleep(20); /* ranks may be more than cores */
    __atomic_store_n(flag, 0, __ATOMIC_RELAXED);
}

void cpu_flag_raise(device *d, void *stream, uint32_t *flag)
{
    cpu_stream_run(d, stream, raise_flag, &flag, sizeof flag);
}

void cpu_flag_lower(device *d, void *stream, uint32_t *flag)
{
    cpu_stream_run(d, stream, lower_flag, &flag, sizeof flag);
}

double cpu_event_ms(device *d, device_event *from, device_event *to)
{
    (void)d;
    const double start = event_seconds(from), end = event_seconds(to);
    return (end - start) * 1e3;
}
