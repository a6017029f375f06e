/* SPDX-License-Identifier: MIT */
/* Rows in windows, without a GPU: each rank is a thread with a main stream, a side stream that reads late, and its copy engine.
 * Gathers and sums follow one another without a barrier, each rank in turn is slow, and rows are overwritten as soon as the
 * protocol allows it. Whatever comes too early or too late is a wrong number, or a data race (make test-tsan). */
#include "tests/support/test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "common/comm/windows.h"

enum { RANKS = 4, STEPS = 3, ROUNDS = 9, N = 64, BYTES = N * sizeof(float), GATHERS = 2, SUMS = 2, SUM = 3 };

typedef struct rank {
    int number, ranks, slow, step;
    bool late, push; /* push: parts are written to where they are added */
    device *d;
    void *main, *side;
    device_event *e;
    windows *w;
    _Alignas(16) float mine[GATHERS][N], parts[RANKS][N], out[N]; /* as they are used again and again */
    _Atomic int *wrong;
} rank;

/* Small whole numbers: exact in any order. */
static float value(int rank, int step, int round, int what, int i)
{
    return (float)((rank * 31 + step * 17 + round * 7 + what * 5 + i) % 1000);
}

typedef struct task {
    rank *r;
    int step, round, what, from;
    const float *rows;
} task;

static void dawdle(const task *t, int salt)
{
    const int slow = t->r->slow < 0 ? (t->step + t->round) % t->r->ranks : t->r->slow;
    if (slow == t->r->number)
        usleep((unsigned)((t->round * 7919 + salt * 104729) % 400));
}

static void produce(void *arg)
{
    const task *t = arg;
    dawdle(t, 1);
    for (int i = 0; i < N; i++)
        t->r->mine[t->what][i] = value(t->r->number, t->step, t->round, t->what, i);
}

static void produce_part(void *arg)
{
    const task *t = arg;
    dawdle(t, 2);
    float *to = t->rows ? (float *)t->rows : t->r->parts[t->from];
    for (int i = 0; i < N; i++)
        to[i] = value(t->r->number, t->step, t->round, t->what * RANKS + t->from, i);
}

/* Another use of the memory. */
static void scribble(void *arg)
{
    memset(((task *)arg)->r->mine[1], 0xff, BYTES);
}

/* Rows of rank `from`, or of all (-1). */
static void consume(void *arg)
{
    const task *t = arg;
    for (int n = 0; n < (t->from < 0 ? 12 : 1); n++) /* the side stream is far behind */
        dawdle(t, 3 + t->what + n);
    for (int k = t->from < 0 ? 0 : t->from; k < (t->from < 0 ? t->r->ranks : t->from + 1); k++)
        for (int i = 0; i < N; i++)
            if (t->rows[k * N + i] != value(k, t->step, t->round, t->what, i))
                atomic_fetch_add(t->r->wrong, 1);
}

static void check_sum(void *arg)
{
    const task *t = arg;
    dawdle(t, 9);
    for (int i = 0; i < N; i++) {
        float sum = t->r->mine[0][i];
        for (int k = 0; k < t->r->ranks; k++)
            sum += value(k, t->step, t->round, t->what * RANKS + t->r->number, i);
        if (t->r->out[i] != sum)
            atomic_fetch_add(t->r->wrong, 1);
    }
}

/* The copy engine of a slow rank takes its time, too. */
void __real_device_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes);
void __wrap_device_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes);

static void nap(void *arg)
{
    usleep(*(unsigned *)arg);
}

void __wrap_device_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes)
{
    static _Atomic unsigned copies;
    const unsigned us = ++copies % 5 ? 0 : 300;
    if (us)
        device_stream_run(d, stream, nap, &us, sizeof us);
    __real_device_stream_copy(d, stream, dst, src, bytes);
}

static void run(void *stream, void (*fn)(void *), task t)
{
    device_stream_run(t.r->d, stream, fn, &t, sizeof t);
}

static void follow(rank *r, void *to, void *from)
{
    device_stream_record(r->d, from, r->e);
    device_stream_wait(r->d, to, r->e);
}

static int window_at(int round, int what)
{
    return (round * GATHERS + what) % WINDOWS_GATHERS;
}

static void spread(rank *r, int step, int round, int what)
{
    run(r->main, produce, (task){r, step, round, what, -1, NULL});
    windows_spread(r->w, window_at(round, what), r->mine[what], true);
}

static void read_late(rank *r, int step, int round, int what)
{
    const int at = window_at(round, what);
    follow(r, r->side, r->main);
    windows_await(r->w, at, -1, r->side, true);
    run(r->side, consume, (task){r, step, round, what, -1, windows_rows(r->w, at)});
    windows_read(r->w, at, r->side);
}

/* As a backward does: two gathers, of which one is read piece by piece, and later by the side stream while parts of a sum are on
 * their way; the other by that alone, when the first gather of the next round has begun. In each second round both are read as
 * soon as they can be. */
static void round_of(rank *r, int step, int round)
{
    const bool soon = round % 2;
    task t = {r, step, round, 0, -1, windows_rows(r->w, window_at(round, 0))};
    if (round == 0 || !soon)
        spread(r, step, round, 0);
    spread(r, step, round, 1);
    for (int k = 0; k < r->ranks; k++) {
        t.from = (r->number + r->ranks - k) % r->ranks;
        windows_await(r->w, window_at(round, 0), t.from, r->main, false);
        run(r->main, consume, t);
    }
    for (int what = 0; what < GATHERS && soon; what++)
        read_late(r, step, round, what);
    if (soon)
        run(r->main, scribble, t);
    for (int n = 0; n < SUMS; n++) {
        t.what = SUM + n;
        for (int k = 1; k <= r->ranks; k++) {
            t.from = (r->number + k) % r->ranks;
            const bool there = r->push && t.from != r->number;
            t.rows = there ? windows_part(r->w, t.from) : NULL;
            run(r->main, produce_part, t);
            if (t.from != r->number)
                windows_give(r->w, t.from, there ? NULL : r->parts[t.from], r->main);
        }
        if (n == 0 && !soon)
            read_late(r, step, round, 0);
        windows_sum(r->w, r->parts[r->number], r->mine[0], r->out, N, SB_FP32);
        run(r->main, check_sum, t);
    }
    if (soon)
        return;
    if (round + 1 < ROUNDS)
        spread(r, step, round + 1, 0);
    read_late(r, step, round, 1);
}

static void *run_rank(void *arg)
{
    rank *r = arg;
    for (int step = 0; step < STEPS; step++) {
        if (r->late && r->number == 0)
            windows_plant_late(r->w);
        windows_begin(r->w, r->main);
        for (int round = 0; round < ROUNDS; round++)
            round_of(r, step, round);
        follow(r, r->main, r->side); /* as a backward ends */
    }
    device_stream_destroy(r->d, r->side);
    device_stream_destroy(r->d, r->main);
    return NULL;
}

/* Wrong numbers. */
static int run_ranks(int ranks, int slow, bool late, bool push)
{
    static const uint32_t stay;
    OWNED rank *all = xcalloc(RANKS, sizeof *all);
    void *blocks[RANKS];
    pthread_t threads[RANKS];
    _Atomic int wrong = 0;
    for (int k = 0; k < ranks; k++)
        blocks[k] = xcalloc(1, windows_bytes(ranks, BYTES));
    for (int k = 0; k < ranks; k++) {
        rank *r = &all[k];
        *r = (rank){.number = k, .ranks = ranks, .slow = slow, .late = late, .push = push, .wrong = &wrong};
        r->d = device_open(DEVICE_CPU, 0);
        r->main = device_stream_create(r->d, STREAM_NORMAL, "main");
        r->side = device_stream_create(r->d, STREAM_NORMAL, "side");
        r->e = device_event_create(r->d);
        r->w = windows_create(r->d, k, ranks, BYTES, blocks, &stay);
    }
    for (int k = 0; k < ranks; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, run_rank, &all[k]), 0);
    for (int k = 0; k < ranks; k++)
        pthread_join(threads[k], NULL);
    for (int k = 0; k < ranks; k++) {
        windows_free(all[k].w);
        device_event_destroy(all[k].d, all[k].e);
        device_close(all[k].d);
    }
    for (int k = 0; k < ranks; k++)
        free(blocks[k]);
    return wrong;
}

TEST(rows_come_whole_and_in_time)
{
    for (int ranks = 2; ranks <= RANKS; ranks++)
        for (int slow = -1; slow < 2; slow++)
            for (int push = 0; push < 2; push++)
                if (run_ranks(ranks, slow, false, push))
                    fail_msg("%d ranks, rank %d slow, push %d: wrong numbers", ranks, slow, push);
}

TEST(late_rows_are_seen)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* which sees the race */
#endif
    assert_true(run_ranks(3, -1, true, false) > 0);
}

TEST(sums_are_refused)
{
    static _Alignas(16) float x[8];
    const sb_direct_sum good = {.dtype = SB_FP32, .count = 1, .n = 8, .parts = {x}, .out = x};
    sb_direct_sum p = good;
    assert_int_equal(sb_direct_sum_check(&good), SB_OK);
    p.count = 0;
    assert_int_equal(sb_direct_sum_check(&p), SB_INVALID);
    p = good, p.n = 7;
    assert_int_equal(sb_direct_sum_check(&p), SB_INVALID);
    p = good, p.parts[0] = NULL;
    assert_int_equal(sb_direct_sum_check(&p), SB_INVALID);
    p = good, p.dtype = SB_E5M2;
    assert_int_equal(sb_direct_sum_check(&p), SB_UNSUPPORTED);
}
