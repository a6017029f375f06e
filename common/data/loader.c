/* SPDX-License-Identifier: MIT */
/* Filling batches ahead; see loader.h. The ring has a count of what is filled and of what is free. */
#include "common/data/loader.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/core/clock.h"
#include "common/core/error.h"

struct loader {
    loader_options o;
    loader_batch batch[LOADER_RING];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t filled, taken, given; /* batches so far */
    bool stopping;
};

int loader_fill(const loader_options *o, int64_t step, int32_t *ids, int32_t *targets, double *surprise, char *problem,
                size_t problem_bytes)
{
    OWNED int32_t *window = xmalloc(((size_t)o->seq + 1) * sizeof *window);
    const int64_t first = (o->same ? 0 : step) * o->global_batch + o->rank_first;
    double sum = 0;
    bool ok = true;
    for (int64_t b = 0; b < o->batch && ok; b++) {
        if (!data_sample(o->from, first + b, window)) {
            snprintf(problem, problem_bytes, DATA_UNREADABLE);
            return EXIT_CODE_FAILURE;
        }
        for (int i = 0; i <= o->seq && ok; i++) {
            ok = window[i] >= 0 && window[i] < o->vocab;
            if (!ok)
                snprintf(problem, problem_bytes, "sample %lld has token %d, and the vocabulary has %d",
                         (long long)first + b, window[i], o->vocab);
        }
        for (int i = 0; i < o->seq && ok; i++) {
            ids[b * o->seq + i] = window[i];
            targets[b * o->seq + i] = window[i + 1];
        }
        if (ok && data_made(o->from))
            sum += made_surprise(data_made(o->from), window, o->seq + 1);
    }
    *surprise = data_made(o->from) ? sum / (double)o->batch : NAN;
    return ok ? EXIT_CODE_OK : EXIT_CODE_USAGE;
}

static void pause_s(double s)
{
    const struct timespec t = {(time_t)s, (long)((s - floor(s)) * 1e9)};
    nanosleep(&t, NULL);
}

static void *work(void *arg)
{
    loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        if (l->filled - l->given == LOADER_RING) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        loader_batch *b = &l->batch[l->filled % LOADER_RING];
        int32_t *ids = l->o.ring[l->filled % LOADER_RING];
        b->step = l->o.step + l->filled;
        pthread_mutex_unlock(&l->lock);
        b->ids = ids, b->targets = ids + l->o.batch * l->o.seq;
        b->code =
            loader_fill(&l->o, b->step, ids, ids + l->o.batch * l->o.seq, &b->surprise, b->problem, sizeof b->problem);
        if (l->o.delay_s > 0)
            pause_s(l->o.delay_s);
        pthread_mutex_lock(&l->lock);
        l->filled++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Signals go to the thread that expects them. */
static void start_thread(loader *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&l->thread, NULL, work, l) != 0)
        die(EXIT_CODE_FAILURE, "a thread for the data can't be started");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

loader *loader_start(const loader_options *o)
{
    loader *l = xcalloc(1, sizeof *l);
    l->o = *o;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    start_thread(l);
    return l;
}

const loader_batch *loader_take(loader *l, double *waited_s)
{
    const double start = host_seconds();
    pthread_mutex_lock(&l->lock);
    while (l->filled == l->taken)
        pthread_cond_wait(&l->changed, &l->lock);
    const loader_batch *b = &l->batch[l->taken++ % LOADER_RING];
    pthread_mutex_unlock(&l->lock);
    *waited_s += host_seconds() - start;
    return b;
}

void loader_give(loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->given++;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void loader_stop(loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l);
}
