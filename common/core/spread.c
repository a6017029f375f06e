/* SPDX-License-Identifier: MIT */
/* Threads that take pieces until none is left; see spread.h. They live as long as one loop does: to start 16 takes less
 * than a millisecond, which is why an array of few pieces stays on the caller's thread. */
#include "common/core/spread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/core/error.h"

enum { MOST_THREADS = 16, FEW_PIECES = 4, SMALLEST_PAGE = 4096 };

typedef struct loop {
    void (*fn)(void *arg, size_t first, size_t count);
    void *arg;
    size_t n, piece;
    atomic_size_t next;
} loop;

static void *work(void *arg)
{
    loop *l = arg;
    for (size_t first; (first = atomic_fetch_add(&l->next, l->piece)) < l->n;)
        l->fn(l->arg, first, l->n - first < l->piece ? l->n - first : l->piece);
    return NULL;
}

/* Processors that this process may use. */
static int threads_here(void)
{
    cpu_set_t allowed;
    const int n = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return n < MOST_THREADS ? n : MOST_THREADS;
}

void spread_pieces(size_t n, size_t piece, void (*fn)(void *arg, size_t first, size_t count), void *arg)
{
    loop l = {fn, arg, n, piece, 0};
    pthread_t threads[MOST_THREADS];
    const int most = n < FEW_PIECES * piece ? 1 : threads_here();
    int started = 0;
    sigset_t all, before;
    if (most == 1) {
        work(&l);
        return;
    }
    sigfillset(&all); /* signals go to the thread that expects them */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < most - 1 && pthread_create(&threads[started], NULL, work, &l) == 0)
        started++; /* without a thread the others do its part */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(&l);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

typedef struct sum {
    spread_sums (*of)(const void *arg, size_t first, size_t count);
    const void *arg;
    spread_sums *parts;
} sum;

static void sum_piece(void *arg, size_t first, size_t count)
{
    const sum *s = arg;
    s->parts[first / SPREAD_PIECE] = s->of(s->arg, first, count);
}

spread_sums spread_sum(size_t n, spread_sums (*of)(const void *arg, size_t first, size_t count), const void *arg)
{
    const size_t pieces = (n + SPREAD_PIECE - 1) / SPREAD_PIECE;
    sum s = {of, arg, xmalloc(pieces * sizeof *s.parts)};
    spread_sums total = {{0}};
    spread_pieces(n, SPREAD_PIECE, sum_piece, &s);
    for (size_t i = 0; i < pieces; i++)
        for (int k = 0; k < 3; k++)
            total.x[k] += s.parts[i].x[k];
    free(s.parts);
    return total;
}

double spread_total(const double sums[SPREAD_LANES])
{
    double sum = 0;
    for (int lane = 0; lane < SPREAD_LANES; lane++)
        sum += sums[lane];
    return sum;
}

typedef struct pair {
    const float *got, *want;
} pair;

static spread_sums squares_of(const void *arg, size_t first, size_t n)
{
    const float *const got = ((const pair *)arg)->got + first, *const want = ((const pair *)arg)->want + first;
    double off[SPREAD_LANES] = {0}, size_got[SPREAD_LANES] = {0}, size_want[SPREAD_LANES] = {0};
    for (size_t i = 0; i < n; i += SPREAD_LANES) {
        const int lanes = n - i < SPREAD_LANES ? (int)(n - i) : SPREAD_LANES;
        for (int lane = 0; lane < lanes; lane++) {
            const double g = got[i + lane], w = want[i + lane];
            off[lane] += (g - w) * (g - w);
            size_got[lane] += g * g;
            size_want[lane] += w * w;
        }
    }
    return (spread_sums){{spread_total(off), spread_total(size_got), spread_total(size_want)}};
}

spread_sums spread_squares(size_t n, const float *got, const float *want)
{
    return spread_sum(n, squares_of, &(pair){got, want});
}

typedef struct copy {
    char *to;
    const char *from;
} copy;

static void copy_piece(void *arg, size_t first, size_t count)
{
    const copy *c = arg;
    memcpy(c->to + first, c->from + first, count);
}

void spread_copy(void *to, const void *from, size_t bytes)
{
    spread_pieces(bytes, (size_t)1 << 20, copy_piece, &(copy){to, from});
}

static void touch_piece(void *arg, size_t first, size_t count)
{
    volatile char *p = arg;
    for (size_t i = first; i < first + count; i += SMALLEST_PAGE)
        p[i] = 0;
}

void spread_touch(void *p, size_t bytes)
{
    /* A piece is as long as a huge page, which one thread makes. */
    spread_pieces(bytes, (size_t)2 << 20, touch_piece, p);
    if (bytes)
        ((volatile char *)p)[bytes - 1] = 0; /* where p is not the start of a page */
}

void *spread_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE); /* without huge pages it is slower, no more */
    spread_touch(p, bytes);
    return p;
}
