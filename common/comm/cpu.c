/* SPDX-License-Identifier: MIT */
/* Collectives between CPUs: Gloo's calls block, so a stream's worker makes them. */
#ifdef HAVE_GLOO
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/record/record.h"
#include "common/comm/internal.h"

typedef struct gloo_state {
    gloo_link *link; /* NULL on a rank that is no member */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int running; /* ops enqueued and not done, on any stream */
} gloo_state;

typedef struct gloo_task {
    comm *c;
    comm_call call;
    int range; /* of a recording */
} gloo_task;

static bool open_gloo(comm *c, comm *of, const comm_options *o, char *why, size_t why_bytes)
{
    gloo_state *s = xcalloc(1, sizeof *s);
    (void)of, (void)o;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->idle, NULL);
    c->state = s;
    if (c->rank < 0)
        gloo_link_idle(c->l, c->size);
    else
        s->link = gloo_link_open(c->l, c->group, c->rank, c->size, why, why_bytes);
    return c->rank < 0 || s->link;
}

static void close_gloo(comm *c)
{
    gloo_state *s = c->state;
    pthread_mutex_lock(&s->lock);
    while (s->running)
        pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    if (s->link)
        gloo_link_close(s->link);
    pthread_cond_destroy(&s->idle);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void run(void *arg)
{
    const gloo_task *t = arg;
    gloo_state *s = t->c->state;
    char why[512];
    const double start_s = host_seconds();
    if (!gloo_link_run(s->link, &t->call, why, sizeof why))
        launch_fail(t->c->l, EXIT_CODE_FAILURE, "collective #%lu on %s failed: %s", t->call.number, t->c->name, why);
    const double end_s = host_seconds();
    recorder_communicated(comm_op_names[t->call.op], t->range, start_s, end_s);
    launch_collective_done(t->c->l, t->call.number);
    pthread_mutex_lock(&s->lock);
    if (--s->running == 0)
        pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

static void enqueue(comm *c, const comm_call *call, void *stream)
{
    const gloo_task task = {c, *call, recorder_open_range()};
    gloo_state *s = c->state;
    pthread_mutex_lock(&s->lock);
    s->running++;
    pthread_mutex_unlock(&s->lock);
    device_stream_run(c->d, stream, run, &task, sizeof task);
}

static void group(comm *c, bool begin)
{
    (void)c, (void)begin; /* nothing to gain: there is no launch to share */
}

const comm_backend_ops comm_gloo_ops = {
    .name = "gloo", .open = open_gloo, .close = close_gloo, .enqueue = enqueue, .group = group};
#else
typedef int no_gloo_in_this_build; /* a file needs a declaration */
#endif
