/* SPDX-License-Identifier: MIT */
/* Trainers of one device that walk in turns; see parts.h. Each walks on a thread of its own, of which one runs at a time. */
#include "common/replica/parts.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/session/watchdog.h"

enum { PARTS_MAX = SB_DIRECT_RANKS_MAX };
typedef enum meeting { GATHER, SCATTER, SUM, KEYS } meeting;

typedef struct part {
    parts *all;
    int number;
    trainer *t;
    char *windows; /* (WINDOWS_GATHERS, T, d) */
    /* What it brings to the meeting. */
    const void *send, *residual;
    void *recv;
} part;

struct parts {
    replica_place at;
    int count, sharers; /* neighbours that hold the same keys and values */
    size_t window_bytes;
    part of[PARTS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int turn; /* the part that runs */
};

bool parts_hold(const team_way *way, int ranks)
{
    return ranks <= PARTS_MAX && (way->windows || ranks == 2);
}

trainer *parts_of(const parts *p, int rank)
{
    return p->of[rank].t;
}

/* ---- meetings ---- */

static void copy(parts *p, void *to, const void *from, size_t bytes)
{
    if (to != from)
        device_copy(p->at.d, to, from, bytes);
}

/* Adds element `at` and those behind it of parts [first, first + n). */
static void add(parts *p, int first, int n, size_t at, void *out, const void *residual, size_t count, sb_dtype t)
{
    sb_direct_sum s = {.dtype = t, .count = n, .n = count, .residual = residual, .out = out};
    for (int i = 0; i < n; i++)
        s.parts[i] = (const char *)p->of[first + i].send + at * (size_t)sb_dtype_bytes(t);
    if (!windows_add(p->at.d, &s, trainer_state_of(p->of[0].t).stream))
        launch_fail(p->at.l, EXIT_CODE_FAILURE, "a sum of parts: %s", sb_last_message());
}

/* All have come; those of each group [first, first + n) exchange. */
static void exchange(parts *p, meeting what, size_t count, sb_dtype t)
{
    const size_t bytes = count * (size_t)sb_dtype_bytes(t);
    const int n = what == KEYS ? p->sharers : p->count;
    for (int r = 0; r < p->count; r++) {
        part *x = &p->of[r];
        const int first = r / n * n;
        for (int k = 0; k < n && what == GATHER; k++)
            copy(p, (char *)x->recv + (size_t)k * bytes, p->of[k].send, bytes);
        if (what == SCATTER)
            add(p, 0, n, (size_t)r * count, x->recv, x->residual, count, t);
        else if (what != GATHER && r == first) /* in place: the first one's becomes the sum */
            add(p, first, n, 0, x->recv, NULL, count, t);
        else if (what != GATHER)
            copy(p, x->recv, p->of[first].recv, bytes);
    }
}

static void await_turn(part *x)
{
    while (x->all->turn != x->number)
        pthread_cond_wait(&x->all->changed, &x->all->lock);
}

static void pass_turn(part *x)
{
    x->all->turn = (x->number + 1) % x->all->count;
    pthread_cond_broadcast(&x->all->changed);
}

/* Comes with what it brings; goes on when all others have come, too. The last one exchanges for all. */
static void meet(part *x, meeting what, size_t count, sb_dtype t)
{
    if (x->number == x->all->count - 1)
        exchange(x->all, what, count, t);
    pthread_mutex_lock(&x->all->lock);
    pass_turn(x);
    await_turn(x);
    pthread_mutex_unlock(&x->all->lock);
}

static void bring(part *x, const void *send, void *recv, const void *residual)
{
    x->send = send, x->recv = recv, x->residual = residual;
}

static void gather(void *user, const void *mine, void *all, size_t count, sb_dtype t, void *stream)
{
    (void)stream;
    bring(user, mine, all, NULL);
    meet(user, GATHER, count, t);
}

static void scatter(void *user, const void *partial, void *mine, size_t count, sb_dtype t, void *stream)
{
    (void)stream;
    bring(user, partial, mine, NULL);
    meet(user, SCATTER, count, t);
}

static void sum(void *user, void *values, size_t count, sb_dtype t, void *stream)
{
    (void)stream;
    bring(user, values, values, NULL);
    meet(user, SUM, count, t);
}

static void sum_keys(void *user, void *values, size_t count, sb_dtype t, void *stream)
{
    (void)stream;
    bring(user, values, values, NULL);
    meet(user, KEYS, count, t);
}

static void *window(void *user, int at)
{
    const part *x = user;
    return x->windows + (size_t)at * x->all->window_bytes;
}

static void spread(void *user, int at, const void *mine, size_t count, sb_dtype t, bool whole)
{
    (void)whole;
    gather(user, mine, window(user, at), count, t, NULL);
}

static void add_parts(void *user, const void *own, const void *residual, void *out, size_t count, sb_dtype t)
{
    const part *x = user;
    bring(user, (const char *)own - (size_t)x->number * count * (size_t)sb_dtype_bytes(t), out, residual);
    meet(user, SCATTER, count, t);
}

/* ---- steps ---- */

static void *walk(void *arg)
{
    part *x = arg;
    (void)device_free_bytes(x->all->at.d); /* the device is this thread's now */
    pthread_mutex_lock(&x->all->lock);
    await_turn(x);
    pthread_mutex_unlock(&x->all->lock);
    if (!trainer_step(x->t)) /* the others wait for it */
        launch_fail(x->all->at.l, EXIT_CODE_FAILURE, "a step of part %d: %s", x->number, sb_last_message());
    pthread_mutex_lock(&x->all->lock);
    pass_turn(x);
    pthread_mutex_unlock(&x->all->lock);
    return NULL;
}

void parts_step(parts *p)
{
    pthread_t threads[PARTS_MAX];
    watchdog_beat();
    if (!p->of[0].t)
        return;
    p->turn = 0;
    for (int r = 0; r < p->count; r++)
        if (pthread_create(&threads[r], NULL, walk, &p->of[r]) != 0)
            launch_fail(p->at.l, EXIT_CODE_FAILURE, "no thread for part %d of a model", r);
    for (int r = 0; r < p->count; r++)
        pthread_join(threads[r], NULL);
    device_sync(p->at.d);
}

/* ---- making and freeing ---- */

static bool create_part(parts *p, int number, const step_options *whole, const team_way *way, char *why, size_t bytes)
{
    part *x = &p->of[number];
    step_options o = *whole;
    o.split_layers = (model_split){p->count, number};
    o.rows_apart = way->rows_apart;
    o.windows = way->windows;
    o.push = way->push;
    o.overlap = OVERLAP_NONE; /* of which no bit depends; parts have one stream */
    *x = (part){.all = p, .number = number};
    x->t = trainer_create(p->at.d, p->at.mem, p->at.kernels, p->at.ctx, &o, why, bytes);
    x->windows = x->t && way->windows ? device_malloc(p->at.d, WINDOWS_GATHERS * p->window_bytes) : NULL;
    if (!x->t || (way->windows && !x->windows))
        return false;
    step_share share = {
        .user = x, .gather = gather, .scatter = scatter, .sum = sum, .sum_gains = sum, .sum_kv = sum_keys};
    if (way->windows)
        share.spread = spread, share.window = window, share.add = add_parts;
    trainer_set_share(x->t, &share);
    replica_set_tokens(x->t, o.seed, 0);
    return true;
}

parts *parts_create(const replica_place *at, const step_options *o, int ranks, const team_way *way,
                    replica_problem *problem)
{
    parts *p = xcalloc(1, sizeof *p);
    char why[400] = "no memory for windows";
    bool ok = true;
    *p = (parts){.at = *at, .count = ranks, .sharers = model_sharers_kv(&o->config, ranks)};
    p->window_bytes = (size_t)o->batch * (size_t)o->seq * (size_t)o->config.d_model *
                      (size_t)sb_dtype_bytes(o->precision->activations);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    for (int r = 0; r < ranks && ok && launch_rank(at->l) < ranks; r++)
        ok = create_part(p, r, o, way, why, sizeof why);
    if (replica_agree(at, "parts of a model", ok, why, problem))
        return p;
    parts_free(p);
    return NULL;
}

void parts_free(parts *p)
{
    if (!p)
        return;
    for (int r = 0; r < p->count; r++) {
        trainer_free(p->of[r].t);
        device_free(p->at.d, p->of[r].windows);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
