/* SPDX-License-Identifier: MIT */
/* Collectives between CPUs: Gloo's calls block, so a stream's worker makes them. A rank that is alone needs no Gloo. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/record/record.h"
#include "common/comm/internal.h"

typedef struct gloo_state {
    gloo_link *link; /* NULL on a rank that is no member, or alone */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    unsigned done;       /* ops */
    int running;         /* tasks enqueued and not done, on any stream */
    comm_call *pairwise; /* sends and receives of the open group, or of an op that has none */
    int pairwise_n, pairwise_room;
} gloo_state;

typedef struct gloo_task {
    comm *c;
    comm_call call;
    comm_call *pairwise; /* NULL: the call; else sends and receives at once. The task frees them. */
    int pairwise_n;
    int range; /* of a recording */
} gloo_task;

static bool open_gloo(comm *c, comm *of, const comm_options *o, char *why, size_t why_bytes)
{
    gloo_state *s = xcalloc(1, sizeof *s);
    (void)of, (void)o;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->idle, NULL);
    c->state = s;
    const bool linked = c->rank >= 0 && c->size > 1;
    if (linked)
        s->link = gloo_link_open(c->l, c->members[0], c->rank, c->size, why, why_bytes);
    else
        gloo_link_idle(c->l);
    return !linked || s->link;
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
    free(s->pairwise);
    free(s);
}

/* A single rank is its own sum. */
static bool run_alone(const comm_call *k)
{
    if (k->op != COMM_BARRIER && k->send != k->recv)
        memcpy(k->recv, k->send, k->count * comm_dtype_bytes(k->t));
    return true;
}

static bool run_calls(const gloo_task *t, char *why, size_t why_bytes)
{
    const gloo_state *s = t->c->state;
    if (!s->link)
        return run_alone(&t->call);
    return t->pairwise ? gloo_link_exchange(s->link, t->pairwise, t->pairwise_n, why, why_bytes)
                       : gloo_link_run(s->link, &t->call, why, why_bytes);
}

static void run(void *arg)
{
    const gloo_task *t = arg;
    gloo_state *s = t->c->state;
    char why[512];
    const double start_s = host_seconds();
    if (!run_calls(t, why, sizeof why))
        launch_fail(t->c->l, EXIT_CODE_FAILURE, "collective #%lu on %s failed: %s", t->call.number.number, t->c->name,
                    why);
    const double end_s = host_seconds();
    recorder_communicated(comm_op_names[t->call.op], t->range, start_s, end_s);
    pthread_mutex_lock(&s->lock);
    s->done += t->pairwise ? (unsigned)t->pairwise_n : 1;
    const launch_number so_many = {t->call.number.number, s->done};
    pthread_mutex_unlock(&s->lock);
    launch_collective_done(t->c->l, t->c->on, so_many);
    free(t->pairwise);
    pthread_mutex_lock(&s->lock);
    if (--s->running == 0)
        pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

static void run_later(comm *c, const gloo_task *task, void *stream)
{
    gloo_state *s = c->state;
    pthread_mutex_lock(&s->lock);
    s->running++;
    pthread_mutex_unlock(&s->lock);
    device_stream_run(c->d, stream, run, task, sizeof *task);
}

static void run_pairwise(comm *c, void *stream)
{
    gloo_state *s = c->state;
    if (!s->pairwise_n)
        return;
    const gloo_task task = {c, s->pairwise[s->pairwise_n - 1], s->pairwise, s->pairwise_n, recorder_open_range()};
    s->pairwise = NULL; /* the task's now */
    s->pairwise_n = s->pairwise_room = 0;
    run_later(c, &task, stream);
}

static void enqueue(comm *c, const comm_call *call, void *stream)
{
    gloo_state *s = c->state;
    if (!comm_pairwise(call->op)) {
        run_later(c, &(gloo_task){c, *call, NULL, 0, recorder_open_range()}, stream);
        return;
    }
    LIST_ADD(s->pairwise, s->pairwise_n, s->pairwise_room, *call);
    if (!c->grouped)
        run_pairwise(c, stream);
}

/* Collectives have run: there is no launch to share. */
static void group(comm *c, bool begin)
{
    if (!begin)
        run_pairwise(c, c->group_stream);
}

const comm_backend_ops comm_cpu_ops = {
#ifdef HAVE_GLOO
    .name = "gloo",
#else
    .name = "none",
#endif
    .open = open_gloo,
    .close = close_gloo,
    .enqueue = enqueue,
    .group = group};
