/* SPDX-License-Identifier: MIT */
/* The order of copies, flags and waits; see windows.h. */
#include "common/comm/windows.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/comm/peer.h"
#include "common/comm/shared.h"
#include "common/core/error.h"

enum {
    CALLS = 1 << 16, /* exchanges of a step */
    SUMS = 2,
    ALIGN = 256,
    /* Gathers that may begin between two exchanges for which main waits: so many more than the present one must find their
     * windows read. */
    AHEAD = 2
};

typedef struct gather {
    int number, call; /* of the step */
    bool open, whole; /* something may still read it */
    bool aside;       /* it was read on another stream than main */
    unsigned seen;    /* ranks whose rows main waits for */
    int read;         /* what was sent with it came behind the reads of so many gathers of this rank */
} gather;

struct windows {
    launch *l; /* NULL: of windows_create */
    device *d;
    shared *memory; /* NULL: of windows_create */
    int on, rank, ranks;
    size_t row_bytes;
    char *at[SB_DIRECT_RANKS_MAX];
    const uint32_t *leave;
    void *main,
        *push[SB_DIRECT_RANKS_MAX]; /* streams: of the step, to each rank, of which this one's is for its own rows */
    device_event *ready, *pushed[WINDOWS_GATHERS][SB_DIRECT_RANKS_MAX], *aside[WINDOWS_GATHERS];
    bool quiet, late;
    /* of a step: */
    gather of[WINDOWS_GATHERS];
    int calls, gathers, sums;
    int waited; /* the copy engine has waited for the reads of so many gathers */
    int known;  /* all ranks had, at the last exchange that main waits for */
    int gives, sum_call, sum_read;
    const void *held; /* rows that windows_plant_late keeps back */
    int held_at, held_sums;
};

/* ---- places ---- */

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static const size_t flag_bytes = (size_t)CALLS * SB_DIRECT_RANKS_MAX * sizeof(uint32_t);

/* Flags, the number of the step, gathers, sums. */
size_t windows_bytes(int ranks, size_t row_bytes)
{
    return flag_bytes + ALIGN + (WINDOWS_GATHERS + SUMS) * padded((size_t)ranks * row_bytes);
}

static uint32_t *number_of(const windows *w)
{
    return (uint32_t *)(w->at[w->rank] + flag_bytes);
}

static uint32_t *flag_of(const windows *w, int rank, int call, int from)
{
    return (uint32_t *)w->at[rank] + (size_t)call * SB_DIRECT_RANKS_MAX + from;
}

static char *window_of(const windows *w, int rank, int at)
{
    return w->at[rank] + flag_bytes + ALIGN + (size_t)at * padded((size_t)w->ranks * w->row_bytes);
}

static char *sum_of(const windows *w, int rank)
{
    return window_of(w, rank, WINDOWS_GATHERS + w->sums % SUMS);
}

void *windows_rows(const windows *w, int at)
{
    return window_of(w, w->rank, at);
}

/* ---- ops of a stream ---- */

static bool on_cpu(const device *d)
{
    return device_kind_of(d) == DEVICE_CPU;
}

static void check(const windows *w, sb_status s)
{
    if (s == SB_OK)
        return;
    if (w->l)
        launch_fail(w->l, EXIT_CODE_FAILURE, "rows between ranks: %s", sb_last_message());
    die(EXIT_CODE_FAILURE, "rows between ranks: %s", sb_last_message());
}

/* A copy takes a while to begin and to end: so those to different ranks have streams of their own. */
static void push_behind(windows *w, void *stream, bool own)
{
    device_stream_record(w->d, stream, w->ready);
    for (int r = 0; r < w->ranks; r++)
        if (own || r != w->rank)
            device_stream_wait(w->d, w->push[r], w->ready);
}

/* Main goes on when what has been pushed is over there. */
static void join(windows *w, bool own)
{
    for (int r = 0; r < w->ranks; r++)
        if (own || r != w->rank)
            device_stream_follow(w->d, w->main, w->push[r]);
}

static void count(void *arg)
{
    **(uint32_t **)arg += 1;
}

typedef struct raise_task {
    uint32_t *flag;
    const uint32_t *number;
} raise_task;

static void raise_flag(void *arg)
{
    const raise_task *t = arg;
    __atomic_store_n(t->flag, *t->number, __ATOMIC_RELEASE);
}

static void send_flag(windows *w, int to, int call)
{
    const raise_task t = {flag_of(w, to, call, w->rank), number_of(w)};
    if (on_cpu(w->d))
        device_stream_run(w->d, w->push[to], raise_flag, &t, sizeof t);
    else
        device_stream_copy(w->d, w->push[to], t.flag, t.number, sizeof *t.flag);
}

static void await_flags(void *arg)
{
    const sb_direct_await *a = arg;
    for (int i = 0, spins = 0; i < a->count; i++)
        while ((int32_t)(__atomic_load_n(a->flags[i], __ATOMIC_ACQUIRE) - *a->number) < 0 &&
               !__atomic_load_n(a->leave, __ATOMIC_RELAXED))
            if (++spins < 20)
                sched_yield();
            else
                usleep(20); /* ranks may be more than cores */
}

/* Flags of an exchange: of one rank, or of all others (-1). */
static void await(windows *w, int call, int rank, void *stream)
{
    sb_direct_await a = {.number = number_of(w), .leave = w->leave};
    for (int r = 0; r < w->ranks; r++)
        if (r == rank || (rank < 0 && r != w->rank))
            a.flags[a.count++] = flag_of(w, w->rank, call, r);
    if (on_cpu(w->d))
        device_stream_run(w->d, stream, await_flags, &a, sizeof a);
    else
        check(w, sb_cuda_direct_await(&a, stream));
}

static void add_parts(void *arg)
{
    sb_cpu_direct_sum(arg);
}

bool windows_add(device *d, const sb_direct_sum *p, void *stream)
{
    if (!on_cpu(d))
        return sb_cuda_direct_sum(p, stream) == SB_OK;
    device_stream_run(d, stream, add_parts, p, sizeof *p);
    return sb_direct_sum_check(p) == SB_OK;
}

/* ---- what may be overwritten ---- */

static void bug(const char *what, int gather)
{
    die(EXIT_CODE_FAILURE, "bug: rows that ranks give each other: %s gather %d", what, gather);
}

static int new_call(windows *w)
{
    if (w->calls == CALLS)
        die(EXIT_CODE_FAILURE, "a step has more than %d exchanges of rows", CALLS);
    return w->calls++;
}

/* What is pushed from here on tells the others that this rank has read the gathers of which they will write the next
 * AHEAD windows. */
static void wait_for_readers(windows *w)
{
    for (; w->waited < w->gathers + AHEAD - WINDOWS_GATHERS; w->waited++) {
        const int at = w->waited % WINDOWS_GATHERS;
        if (w->of[at].number != w->waited || w->of[at].open)
            bug("something still reads", w->waited);
        for (int r = 0; r < w->ranks && w->of[at].aside; r++)
            if (r != w->rank)
                device_stream_wait(w->d, w->push[r], w->aside[at]);
    }
}

static void learn(windows *w, int read)
{
    w->known = read > w->known ? read : w->known;
}

/* ---- a step ---- */

void windows_quiet(windows *w, bool quiet)
{
    w->quiet = quiet;
}

void windows_begin(windows *w, void *main)
{
    w->main = main;
    w->held = NULL;
    w->calls = w->gathers = w->sums = w->waited = w->known = w->gives = 0;
    for (int i = 0; i < WINDOWS_GATHERS; i++)
        w->of[i] = (gather){.number = -1};
    if (w->quiet)
        return;
    uint32_t *number = number_of(w);
    if (on_cpu(w->d))
        device_stream_run(w->d, main, count, &number, sizeof number);
    else
        check(w, sb_cuda_direct_count(number, main));
    const int call = new_call(w);
    push_behind(w, main, true);
    for (int k = 1; k < w->ranks; k++)
        send_flag(w, (w->rank + k) % w->ranks, call);
    await(w, call, -1, main);
    join(w, true);
}

void windows_plant_late(windows *w)
{
    w->late = true;
}

static void note(const windows *w, const char *op)
{
    const launch_op what = {.on = w->on, .name = "rows", .op = op, .dtype = "bytes", .count = w->row_bytes, .peer = -1};
    if (w->l)
        launch_collective(w->l, &what);
}

static void push_rows(windows *w, int to, int at, const void *mine)
{
    device_stream_copy(w->d, w->push[to], window_of(w, to, at) + (size_t)w->rank * w->row_bytes, mine, w->row_bytes);
}

/* No two ranks begin with the same receiver. */
void windows_spread(windows *w, int at, const void *mine, bool whole)
{
    gather *g = &w->of[at];
    if (w->quiet)
        return;
    if (at != w->gathers % WINDOWS_GATHERS || w->known <= w->gathers - WINDOWS_GATHERS)
        bug("it is not known that all have read what lies in the window of", w->gathers);
    const bool side = g->aside;
    w->gathers++;
    note(w, "gather");
    push_behind(w, w->main, whole);
    wait_for_readers(w);
    if (whole) {
        if (side)
            device_stream_wait(w->d, w->push[w->rank], w->aside[at]);
        push_rows(w, w->rank, at, mine);
        device_stream_record(w->d, w->push[w->rank], w->pushed[at][w->rank]);
    }
    *g = (gather){.number = w->gathers - 1, .call = new_call(w), .open = true, .whole = whole, .read = w->waited};
    const bool keep = w->late && w->gathers == 1, held = w->held && w->sums > w->held_sums;
    for (int k = 1; k < w->ranks; k++) {
        const int to = (w->rank + k) % w->ranks;
        if (held)
            push_rows(w, to, w->held_at, w->held);
        if (!keep)
            push_rows(w, to, at, mine);
        send_flag(w, to, g->call);
        device_stream_record(w->d, w->push[to], w->pushed[at][to]);
    }
    if (keep)
        w->held = mine, w->held_at = at, w->held_sums = w->sums;
    else if (held)
        w->held = NULL;
}

void windows_await(windows *w, int at, int rank, void *stream, bool aside)
{
    gather *g = &w->of[at];
    if (w->quiet)
        return;
    if ((rank < 0 || rank == w->rank) && g->whole)
        device_stream_wait(w->d, stream, w->pushed[at][w->rank]);
    if (rank != w->rank)
        await(w, g->call, rank, stream);
    if (aside) {
        g->aside = true;
        return;
    }
    const unsigned all = (1u << w->ranks) - 1;
    g->seen |= rank < 0 ? all : 1u << rank | 1u << w->rank;
    if (g->seen == all)
        learn(w, g->read);
}

void windows_read(windows *w, int at, void *side)
{
    gather *g = &w->of[at];
    if (w->quiet)
        return;
    for (int r = 0; r < w->ranks; r++)
        if (r != w->rank || g->whole)
            device_stream_wait(w->d, w->main, w->pushed[at][r]);
    if (g->aside)
        device_stream_record(w->d, side, w->aside[at]);
    g->open = false;
}

/* Main may write there: it has waited for the last exchange, which the other rank began behind its last sum but one. */
void *windows_part(const windows *w, int rank)
{
    return sum_of(w, rank) + (size_t)w->rank * w->row_bytes;
}

void windows_give(windows *w, int rank, const void *part, void *stream)
{
    if (w->quiet)
        return;
    device_stream_follow(w->d, w->push[rank], stream);
    if (w->gives++ == 0) {
        note(w, "sum");
        wait_for_readers(w);
        w->sum_call = new_call(w);
        w->sum_read = w->waited;
    }
    if (part)
        device_stream_copy(w->d, w->push[rank], windows_part(w, rank), part, w->row_bytes);
    send_flag(w, rank, w->sum_call);
}

void windows_settle(windows *w)
{
    if (w->quiet)
        return;
    if (w->gives != w->ranks - 1)
        bug("not all ranks were given parts of a sum behind", w->gathers);
    await(w, w->sum_call, -1, w->main);
    join(w, false);
    learn(w, w->sum_read);
    w->gives = 0;
    w->sums++;
}

void windows_sum(windows *w, const void *own, const void *residual, void *out, size_t n, sb_dtype t)
{
    const char *parts = sum_of(w, w->rank);
    sb_direct_sum p = {.dtype = t, .count = w->ranks, .n = n, .residual = residual, .out = out};
    for (int r = 0; r < w->ranks; r++)
        p.parts[r] = r == w->rank ? own : parts + (size_t)r * w->row_bytes;
    windows_settle(w);
    if (!windows_add(w->d, &p, w->main))
        check(w, SB_INVALID);
}

/* ---- making and freeing ---- */

static void make_streams(windows *w)
{
    w->ready = device_event_create(w->d);
    for (int r = 0; r < w->ranks; r++)
        w->push[r] = device_stream_create(w->d, STREAM_URGENT, r == w->rank ? "own rows" : "rows");
    for (int i = 0; i < WINDOWS_GATHERS; i++) {
        w->aside[i] = device_event_create(w->d);
        for (int r = 0; r < w->ranks; r++)
            w->pushed[i][r] = device_event_create(w->d);
    }
}

windows *windows_create(device *d, int rank, int ranks, size_t row_bytes, void *const *at, const uint32_t *leave)
{
    windows *w = xcalloc(1, sizeof *w);
    *w = (windows){.d = d, .rank = rank, .ranks = ranks, .row_bytes = row_bytes, .leave = leave};
    for (int r = 0; r < ranks; r++)
        w->at[r] = at[r];
    make_streams(w);
    return w;
}

windows *windows_open(launch *l, device *d, const int *members, int ranks, size_t row_bytes, char *why,
                      size_t why_bytes)
{
    windows *w = xcalloc(1, sizeof *w);
    *w = (windows){.l = l, .d = d, .ranks = ranks, .row_bytes = row_bytes};
    w->leave = peer_leave_word(l, d, why, why_bytes);
    if (launch_all(l, "a word to leave", w->leave))
        w->memory = shared_open(l, d, members, ranks, windows_bytes(ranks, row_bytes), why, why_bytes);
    if (!w->memory) {
        free(w);
        return NULL;
    }
    w->rank = shared_rank(w->memory);
    w->on = launch_communicator(l, "rows", members ? members[0] : 0, w->rank, ranks);
    for (int r = 0; r < ranks; r++)
        w->at[r] = shared_at(w->memory)[r];
    if (w->rank >= 0)
        make_streams(w);
    return w;
}

static void free_streams(windows *w)
{
    device_event_destroy(w->d, w->ready);
    for (int r = 0; r < w->ranks; r++)
        device_stream_destroy(w->d, w->push[r]);
    for (int i = 0; i < WINDOWS_GATHERS; i++) {
        device_event_destroy(w->d, w->aside[i]);
        for (int r = 0; r < w->ranks; r++)
            device_event_destroy(w->d, w->pushed[i][r]);
    }
}

void windows_free(windows *w)
{
    if (!w)
        return;
    if (w->l) {
        device_sync(w->d);
        launch_barrier(w->l, "rows are done"); /* none waits any more for what this rank's streams send */
    }
    free_streams(w);
    shared_close(w->memory);
    if (w->l)
        launch_communicator_end(w->l, w->on);
    free(w);
}
