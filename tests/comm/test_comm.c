/* SPDX-License-Identifier: MIT */
/* Collectives on 1, 2, 3 and 4 CPU ranks over Gloo, each in a process of its own: every op, dtype, in place and not, odd
 * counts, several communicators and streams at once; sends and receives; the groups of a mesh of 8; a rank killed or
 * stopped in the middle of an op; two network namespaces as two hosts. Sends, receives and groups run on GPUs, too: under
 * the name bench_comm this program is a bench,
 *   ln -s build/tests/comm/test_comm bench_comm && ./bench_comm --ranks 2 --variant pairs,axes --csv none */
#include "tests/support/test.h"

#include <glob.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/statvfs.h>

#include "common/core/numeric.h"
#include "common/core/rng.h"
#include "common/comm/comm.h"
#include "common/comm/shared.h"
#include "tests/support/ranks.h"
#include "tests/support/streams.h"

/* ---- what the ranks run ---- */

static option_spec option_table[] = {
    LAUNCH_RANKS("2", "2"), {"hosts", OPTION_INT, 0, "1", .help = "how many there must be", .min = 1, .max = 100}, {0}};
static const variant_spec variant_table[] = {{"ops", "every op and dtype"},
                                             {"bits", "sums of reals: the same bits everywhere"},
                                             {"streams", "communicators and streams at once"},
                                             {"pairs", "sends and receives, in groups and not"},
                                             {"axes", "communicators of a mesh, 2 x 2 x 2"},
                                             {"room", "memory of ranks that the host has, and has not"},
                                             {"killed", "rank 1 is killed in the middle of an op"},
                                             {"stopped", "rank 1 is stopped in the middle of an op"},
                                             {0}};
static const column_spec column_table[] = {{"checks", COLUMN_INT, true, "results compared"}, {0}};
static const bench_info info = TOY_BENCH("bench_comm", "Are collectives right?");

static long checks;

static void require(bool right, const char *what)
{
    checks++;
    if (!right)
        die(EXIT_CODE_VERIFY, "%s is wrong", what);
}

/* A small whole number, of which also the sum over ranks is exact in 8 bits of mantissa. */
static int value_of(int rank, size_t i)
{
    return (int)((i * 7 + i / 5 + (size_t)rank * 11) % 23) - 9;
}

static void put(void *to, size_t i, comm_dtype t, int value)
{
    switch (t) {
    case COMM_FP32: ((float *)to)[i] = (float)value; break;
    case COMM_BF16: ((uint16_t *)to)[i] = bf16_from_float((float)value); break;
    case COMM_FP16: ((uint16_t *)to)[i] = fp16_from_float((float)value); break;
    case COMM_INT32: ((int32_t *)to)[i] = value; break;
    }
}

static double get(const void *from, size_t i, comm_dtype t)
{
    switch (t) {
    case COMM_FP32: return (double)((const float *)from)[i];
    case COMM_BF16: return (double)bf16_to_float(((const uint16_t *)from)[i]);
    case COMM_FP16: return (double)fp16_to_float(((const uint16_t *)from)[i]);
    default: return ((const int32_t *)from)[i];
    }
}

static int reduced(int size, size_t i, comm_reduction r)
{
    int result = value_of(0, i);
    for (int k = 1; k < size; k++) {
        const int x = value_of(k, i);
        result = r == COMM_SUM ? result + x : x > result ? x : result;
    }
    return result;
}

typedef struct problem { /* n elements on each rank; `all` holds size x n, one guard element behind each buffer */
    comm *c;
    device *d;
    void *stream;
    comm_dtype t;
    size_t n;
    char *mine, *all;
} problem;

static char *slice(const problem *p, int rank)
{
    return p->all + (size_t)rank * p->n * comm_dtype_bytes(p->t);
}

static void fill(const problem *p, char *to, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(to, i, p->t, value_of(comm_rank(p->c), first + i));
}

static void check(const problem *p, const char *got, int (*want)(const problem *p, size_t i), size_t n,
                  const char *what)
{
    stream_sync(p->d, p->stream);
    for (size_t i = 0; i < n; i++)
        if (get(got, i, p->t) != want(p, i))
            die(EXIT_CODE_VERIFY, "%s of %zu %s on %d ranks: rank %d has %g at %zu, not %d", what, n,
                comm_dtype_name(p->t), comm_size(p->c), comm_rank(p->c), get(got, i, p->t), i, want(p, i));
    checks++;
}

static int want_sum(const problem *p, size_t i)
{
    return reduced(comm_size(p->c), i, COMM_SUM);
}
static int want_max(const problem *p, size_t i)
{
    return reduced(comm_size(p->c), i, COMM_MAX);
}
static int want_own_sum(const problem *p, size_t i)
{
    return want_sum(p, (size_t)comm_rank(p->c) * p->n + i);
}
static int want_own_max(const problem *p, size_t i)
{
    return want_max(p, (size_t)comm_rank(p->c) * p->n + i);
}
static int want_gathered(const problem *p, size_t i)
{
    return value_of((int)(i / p->n), i % p->n);
}
static int want_own(const problem *p, size_t i)
{
    return value_of(comm_rank(p->c), i);
}
static int root;
static int want_root(const problem *p, size_t i)
{
    (void)p;
    return value_of(root, i);
}

static int want_exchanged(const problem *p, size_t i)
{
    return value_of((int)(i / p->n), (size_t)comm_rank(p->c) * p->n + i % p->n);
}

static void check_reductions(const problem *p, comm_reduction r)
{
    const size_t size = (size_t)comm_size(p->c);
    const bool sum = r == COMM_SUM;
    fill(p, p->mine, 0, p->n);
    comm_all_reduce(p->c, p->mine, p->all, p->n, p->t, r, p->stream);
    check(p, p->all, sum ? want_sum : want_max, p->n, "all_reduce");
    check(p, p->mine, want_own, p->n, "what all_reduce leaves of its input");
    comm_all_reduce(p->c, p->mine, p->mine, p->n, p->t, r, p->stream);
    check(p, p->mine, sum ? want_sum : want_max, p->n, "all_reduce in place");

    for (root = 0; root < comm_size(p->c); root++) {
        const bool here = comm_rank(p->c) == root;
        fill(p, p->mine, 0, p->n);
        comm_reduce(p->c, p->mine, p->all, p->n, p->t, r, root, p->stream);
        check(p, here ? p->all : p->mine, !here ? want_own : sum ? want_sum : want_max, p->n, "reduce");
        check(p, p->mine, want_own, p->n, "what reduce leaves of its input");
        comm_reduce(p->c, p->mine, p->mine, p->n, p->t, r, root, p->stream);
        stream_sync(p->d, p->stream);
        if (here)
            check(p, p->mine, sum ? want_sum : want_max, p->n, "reduce in place");
    }

    fill(p, p->all, 0, size * p->n);
    comm_reduce_scatter(p->c, p->all, p->mine, p->n, p->t, r, p->stream);
    check(p, p->mine, sum ? want_own_sum : want_own_max, p->n, "reduce_scatter");
    check(p, p->all, want_own, size * p->n, "what reduce_scatter leaves of its input");
    comm_reduce_scatter(p->c, p->all, slice(p, comm_rank(p->c)), p->n, p->t, r, p->stream);
    check(p, slice(p, comm_rank(p->c)), sum ? want_own_sum : want_own_max, p->n, "reduce_scatter in place");
}

static void check_copies(const problem *p)
{
    const size_t size = (size_t)comm_size(p->c);
    fill(p, p->mine, 0, p->n);
    comm_all_gather(p->c, p->mine, p->all, p->n, p->t, p->stream);
    check(p, p->all, want_gathered, size * p->n, "all_gather");
    memset(p->all, 0x55, size * p->n * comm_dtype_bytes(p->t));
    fill(p, slice(p, comm_rank(p->c)), 0, p->n);
    comm_all_gather(p->c, slice(p, comm_rank(p->c)), p->all, p->n, p->t, p->stream);
    check(p, p->all, want_gathered, size * p->n, "all_gather in place");
    OWNED char *sent = xmalloc(size * p->n * comm_dtype_bytes(p->t) + 1);
    fill(p, sent, 0, size * p->n);
    comm_all_to_all(p->c, sent, p->all, p->n, p->t, p->stream);
    check(p, p->all, want_exchanged, size * p->n, "all_to_all");
    check(p, sent, want_own, size * p->n, "what all_to_all leaves of its input");
    for (root = 0; root < comm_size(p->c); root++) {
        fill(p, p->mine, 0, p->n);
        comm_broadcast(p->c, p->mine, p->all, p->n, p->t, root, p->stream);
        check(p, p->all, want_root, p->n, "broadcast");
        comm_broadcast(p->c, p->mine, p->mine, p->n, p->t, root, p->stream);
        check(p, p->mine, want_root, p->n, "broadcast in place");
    }
}

static void check_ops(device *d, comm *c)
{
    static const size_t counts[] = {0, 1, 3, 1000, 40009, 600011}; /* the last: several blocks of the ring */
    void *stream = device_stream_create(d, STREAM_NORMAL, "ops");
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int t = COMM_FP32; t <= COMM_INT32; t++) {
            if (counts[k] > 100000 && t != COMM_FP32)
                continue;
            const size_t bytes = counts[k] * comm_dtype_bytes(t), size = (size_t)comm_size(c);
            problem p = {c, d, k % 2 ? stream : NULL, t, counts[k], xmalloc(bytes + 8), xmalloc(size * bytes + 8)};
            memset(p.mine + bytes, 0x77, 8);
            memset(p.all + size * bytes, 0x77, 8);
            check_reductions(&p, COMM_SUM);
            check_reductions(&p, COMM_MAX);
            check_copies(&p);
            for (int i = 0; i < 8; i++)
                require(p.mine[bytes + (size_t)i] == 0x77 && p.all[size * bytes + (size_t)i] == 0x77,
                        "what lies behind a buffer");
            free(p.mine);
            free(p.all);
        }
    comm_barrier(c, stream);
    device_stream_destroy(d, stream);
}

/* ---- reals ---- */

static uint64_t hash_of(const float *x, size_t n)
{
    uint64_t hash = 1;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ float_bits(x[i])) * 0x100000001b3u;
    return hash;
}

/* Sums of reals: the same bits on all ranks and in every run; on two ranks, those of a + b. */
static void check_bits(launch *l, comm *c)
{
    enum { N = 300007 };
    uint64_t hashes[2] = {0, 0}, all[64][2];
    OWNED float *x = xmalloc(N * sizeof *x), *y = xmalloc(N * sizeof *y), *other = xmalloc(N * sizeof *other);
    for (int run = 0; run < 2 && comm_rank(c) >= 0; run++) {
        rng_normal(x, N, 1, (uint32_t)comm_rank(c), 0, 1);
        comm_all_reduce(c, x, y, N, COMM_FP32, COMM_SUM, NULL);
        hashes[run] = hash_of(y, N);
        if (comm_size(c) == 2) {
            rng_normal(other, N, 1, (uint32_t)(1 - comm_rank(c)), 0, 1);
            for (size_t i = 0; i < N; i++)
                require(float_bits(y[i]) == float_bits(x[i] + other[i]), "the sum of two reals");
        }
    }
    launch_gather(l, "hashes", hashes, sizeof hashes, all);
    for (int r = 0; r < comm_size(c); r++)
        require(all[r][0] == all[0][0] && all[r][1] == all[0][0], "the sum of reals on some rank");
}

/* ---- several streams and communicators ---- */

static void hold(void *arg)
{
    atomic_bool *flag = *(atomic_bool **)arg;
    while (!atomic_load(flag))
        usleep(100);
}

typedef struct bucket {
    float *x;
    size_t first, n;
    int rank;
} bucket;

static void make_bucket(void *arg)
{
    const bucket *b = arg;
    for (size_t i = 0; i < b->n; i++)
        b->x[i] = (float)value_of(b->rank, b->first + i);
}

/* What overlapped data parallelism does: each of many buckets is made on the compute stream and reduced on another, a
 * second communicator gathers beside it, and an event is all that joins them. */
static void check_streams(device *d, comm *c)
{
    enum { BUCKETS = 24, N = 5000 };
    char why[512];
    atomic_bool go = false, *flag = &go;
    comm *second = comm_split(c, &(comm_options){.name = "second"}, why, sizeof why);
    require(second, "a second communicator");
    if (comm_rank(c) >= 0) {
        void *compute = device_stream_create(d, STREAM_NORMAL, "compute");
        void *reduce = device_stream_create(d, STREAM_URGENT, "reduce");
        void *gather = device_stream_create(d, STREAM_URGENT, "gather");
        device_event *ready = device_event_create(d), *done = device_event_create(d);
        const size_t size = (size_t)comm_size(c);
        OWNED float *grads = xcalloc(BUCKETS * N, sizeof *grads), *all = xcalloc(BUCKETS * N * size, sizeof *all);
        /* While the compute stream is held, collectives behind nothing of it get done. */
        device_stream_run(d, compute, hold, &flag, sizeof flag);
        comm_barrier(c, reduce);
        device_stream_record(d, reduce, done);
        device_event_sync(d, done);
        atomic_store(&go, true);

        for (size_t b = 0; b < BUCKETS; b++) {
            float *x = grads + b * N;
            device_stream_run(d, compute, make_bucket, &(bucket){x, b * N, N, comm_rank(c)}, sizeof(bucket));
            device_stream_record(d, compute, ready);
            device_stream_wait(d, reduce, ready);
            comm_all_reduce(c, x, x, N, COMM_FP32, COMM_SUM, reduce);
            device_stream_record(d, reduce, done);
            device_stream_wait(d, gather, done);
            comm_all_gather(second, x, all + b * N * size, N, COMM_FP32, gather);
            if (b % 8 == 3) /* one communicator on two streams */
                comm_barrier(second, compute);
        }
        device_stream_record(d, gather, done);
        device_event_sync(d, done);
        for (size_t i = 0; i < BUCKETS * N; i++)
            require(grads[i] == (float)reduced((int)size, i, COMM_SUM), "a reduced bucket");
        for (size_t i = 0; i < BUCKETS * N * size; i++)
            require(all[i] == (float)reduced((int)size, i / (N * size) * N + i % N, COMM_SUM), "a gathered bucket");
        device_stream_destroy(d, compute);
        device_stream_destroy(d, reduce);
        device_stream_destroy(d, gather);
        device_event_destroy(d, ready);
        device_event_destroy(d, done);
    }
    comm_destroy(second);
}

/* ---- sends and receives, on whatever device ---- */

/* n elements of this rank's values, from the first-th on, in memory of the device. */
static char *made(const problem *p, size_t first, size_t n)
{
    const size_t bytes = n * comm_dtype_bytes(p->t);
    char *host = xmalloc(bytes + 8), *to = device_malloc(p->d, bytes + 8);
    require(to, "memory");
    fill(p, host, first, n);
    device_upload(p->d, to, host, bytes);
    free(host);
    return to;
}

static void check_from(const problem *p, const char *got, int from, size_t first)
{
    const size_t bytes = p->n * comm_dtype_bytes(p->t);
    OWNED char *host = xmalloc(bytes + 8);
    stream_sync(p->d, p->stream);
    device_download(p->d, host, got, bytes);
    for (size_t i = 0; i < p->n; i++)
        if (get(host, i, p->t) != value_of(from, first + i))
            die(EXIT_CODE_VERIFY, "rank %d has %g at %zu of what rank %d sent, not %d", comm_rank(p->c),
                get(host, i, p->t), i, from, value_of(from, first + i));
    checks++;
}

/* Around the ring both ways and, in the same group, a second message to the right. Sends stand first on even ranks and last
 * on odd ones; the largest fit in no socket's buffer, so that it ends only if all go on at once. */
static void check_ring(const problem *p)
{
    const int size = comm_size(p->c), rank = comm_rank(p->c), right = (rank + 1) % size,
              left = (rank + size - 1) % size;
    const size_t bytes = p->n * comm_dtype_bytes(p->t);
    char *sent = made(p, 0, 2 * p->n), *got = device_malloc(p->d, 3 * bytes + 8);
    device_memset(p->d, got, 0x55, 3 * bytes);
    device_sync(p->d);
    comm_group_begin(p->c);
    for (int sends = 0; sends < 2; sends++)
        if ((rank + sends) % 2 == 0) {
            comm_send(p->c, sent, p->n, p->t, right, p->stream);
            comm_send(p->c, sent + bytes, p->n, p->t, right, p->stream);
            comm_send(p->c, sent, p->n, p->t, left, p->stream);
        } else {
            comm_recv(p->c, got, p->n, p->t, left, p->stream);
            comm_recv(p->c, got + bytes, p->n, p->t, left, p->stream);
            comm_recv(p->c, got + 2 * bytes, p->n, p->t, right, p->stream);
        }
    comm_group_end(p->c);
    check_from(p, got, left, 0);
    check_from(p, got + bytes, left, p->n);
    check_from(p, got + 2 * bytes, right, 0);
    device_free(p->d, sent);
    device_free(p->d, got);
}

/* Down a chain, without groups: each receives, and sends what it got. */
static void check_chain(const problem *p)
{
    const int rank = comm_rank(p->c);
    char *x = made(p, 0, p->n);
    if (rank > 0)
        comm_recv(p->c, x, p->n, p->t, rank - 1, p->stream);
    if (rank + 1 < comm_size(p->c))
        comm_send(p->c, x, p->n, p->t, rank + 1, p->stream);
    check_from(p, x, 0, 0);
    device_free(p->d, x);
}

/* Each rank sends to the right on one stream and receives from the left on another, without groups, many times, with
 * collectives of the same communicator between. On CPUs alone: NCCL runs the ops of a communicator in their order. */
static void check_two_streams(device *d, comm *c)
{
    enum { N = 30000, TIMES = 20 };
    void *out = device_stream_create(d, STREAM_URGENT, "out"), *in = device_stream_create(d, STREAM_URGENT, "in");
    const int size = comm_size(c), rank = comm_rank(c), right = (rank + 1) % size, left = (rank + size - 1) % size;
    const problem p = {.c = c, .d = d, .stream = in, .t = COMM_FP32, .n = N};
    char *sent = made(&p, 0, N), *sum = made(&p, 0, N), *got[TIMES];
    for (int i = 0; i < TIMES; i++) {
        got[i] = made(&p, 5, N);
        comm_send(c, sent, N, COMM_FP32, right, out);
        comm_recv(c, got[i], N, COMM_FP32, left, in);
        if (i % 8 == 3)
            comm_all_reduce(c, sum, sum, N, COMM_FP32, COMM_MAX, in);
    }
    stream_sync(d, out);
    for (int i = 0; i < TIMES; i++) {
        check_from(&p, got[i], left, 0);
        device_free(d, got[i]);
    }
    device_free(d, sent);
    device_free(d, sum);
    device_stream_destroy(d, out);
    device_stream_destroy(d, in);
}

static void check_pairs(device *d, comm *c)
{
    static const size_t counts[] = {0, 1, 1001, 50003};
    void *stream = device_stream_create(d, STREAM_NORMAL, "pairs");
    for (size_t k = 0; k < sizeof counts / sizeof *counts && comm_size(c) > 1; k++)
        for (int t = COMM_FP32; t <= COMM_INT32; t++) {
            const problem p = {.c = c, .d = d, .stream = k % 2 ? stream : device_stream(d), .t = t, .n = counts[k]};
            check_ring(&p);
            check_chain(&p);
        }
    if (comm_size(c) > 1 && device_kind_of(d) == DEVICE_CPU)
        check_two_streams(d, c);
    device_stream_destroy(d, stream);
}

/* ---- groups of a mesh, on whatever device ---- */

static float sum_of(device *d, comm *c, float x)
{
    char *at = device_malloc(d, sizeof x);
    require(at, "memory");
    device_upload(d, at, &x, sizeof x);
    comm_all_reduce(c, at, at, 1, COMM_FP32, COMM_SUM, device_stream(d));
    comm_barrier(c, device_stream(d));
    device_sync(d);
    device_download(d, &x, at, sizeof x);
    device_free(d, at);
    return x;
}

/* Out of nothing and out of the world's communicator, with pairs that are connected and not. */
static void check_axes(launch *l, device *d, comm *all)
{
    static const unsigned sets[] = {MESH_PP,           MESH_DP_SHARD, MESH_TP,    MESH_DATA,
                                    MESH_PP | MESH_TP, MESH_MODEL,    MESH_MODEL, MESH_CP};
    enum { SETS = sizeof sets / sizeof *sets };
    char why[512];
    comm *of[SETS];
    mesh m;
    if (!mesh_parse(comm_size(all) % 4 ? "tp2" : "pp2,tp2", comm_size(all), &m, why, sizeof why))
        die(EXIT_CODE_FAILURE, "no mesh: %s", why);
    for (size_t i = 0; i < SETS; i++) {
        const comm_options o = {.name = "axes", .pairs = i % 3 == 0};
        require(comm_open_axes(l, d, i % 2 ? all : NULL, m, sets[i], &o, &of[i], why, sizeof why),
                "a communicator of axes");
        require(!of[i] == (mesh_group_size(m, sets[i]) == 1), "a communicator of a group of one rank");
    }
    for (size_t i = 0; i < SETS && launch_rank(l) < mesh_world(m); i++) {
        mesh_group g = mesh_group_of(m, launch_rank(l), sets[i]);
        float want = 0;
        for (int r = 0; r < g.count; r++)
            want += (float)(1 << g.ranks[r]);
        require(comm_rank(of[i]) == g.mine && comm_size(of[i]) == g.count, "a place in a group");
        require(sum_of(d, of[i], (float)(1 << launch_rank(l))) == want, "the sum of a group");
        if (of[i])
            check_ring(&(problem){.c = of[i], .d = d, .stream = device_stream(d), .t = COMM_BF16, .n = 777});
        mesh_group_free(&g);
    }
    for (size_t i = 0; i < SETS; i++)
        comm_destroy(of[i]);
}

/* ---- shared memory of CPU ranks ---- */

static void check_room(launch *l, device *d)
{
    struct statvfs shm;
    char why[256] = "";
    if (statvfs("/dev/shm", &shm) != 0 || shm.f_blocks == 0)
        return; /* it has no end */
    shared *some = shared_open(l, d, NULL, launch_size(l), 1 << 20, why, sizeof why);
    require(some, "memory of which there is enough");
    memset(shared_at(some)[1], launch_rank(l), 1);
    shared_close(some);
    require(!shared_open(l, d, NULL, launch_size(l), (shm.f_blocks + 1) * shm.f_frsize, why, sizeof why) &&
                strstr(why, "no shared memory of"),
            "memory of which there is too little");
    glob_t left;
    OWNED char *names = xasprintf("/dev/shm/stepbench-%d-*", (int)getpid());
    require(glob(names, 0, NULL, &left) == GLOB_NOMATCH, "what is left in /dev/shm");
    checks++;
}

/* ---- failures ---- */

/* Collectives without end, the victim gone after a while. */
static void meet_fate(launch *l, device *d, comm *c, int number)
{
    enum { N = 1 << 20 };
    float *x = xcalloc(N, sizeof *x);
    void *stream = device_stream_create(d, STREAM_NORMAL, "fatal");
    for (int i = 0;; i++) {
        if (launch_rank(l) == 1 && i == 5)
            raise(number);
        comm_all_reduce(c, x, x, N, COMM_FP32, COMM_SUM, stream);
        if (i % 4 == 3)
            stream_sync(d, stream);
    }
}

static void comm_run(session *s, const bench_case *c, row *w)
{
    launch *l = launch_of(s);
    char why[512] = "";
    const char *variant = case_variant(c);
    const int ranks = (int)case_int(c, "ranks");
    comm *k = comm_create(l, s->dev, &(comm_options){.name = "main", .ranks = ranks}, why, sizeof why);
    if (!k)
        die(EXIT_CODE_FAILURE, "no communicator: %s", why);
    require(comm_size(k) == ranks && comm_rank(k) == (launch_rank(l) < ranks ? launch_rank(l) : -1), "a rank");
#ifdef HAVE_GLOO
    const char *const between_cpus = "gloo";
#else
    const char *const between_cpus = "none";
#endif
    require(strncmp(comm_backend(k), device_kind_of(s->dev) == DEVICE_CPU ? between_cpus : "nccl", 4) == 0,
            "the backend");
    require(launch_hosts(l) == option_int(s->opt, "hosts"), "the number of hosts");
    if (strcmp(variant, "killed") == 0)
        meet_fate(l, s->dev, k, SIGKILL);
    if (strcmp(variant, "stopped") == 0)
        meet_fate(l, s->dev, k, SIGSTOP);
    if (strcmp(variant, "bits") == 0)
        check_bits(l, k);
    if (strcmp(variant, "streams") == 0)
        check_streams(s->dev, k);
    if (strcmp(variant, "ops") == 0 && comm_rank(k) >= 0)
        check_ops(s->dev, k);
    if (strcmp(variant, "pairs") == 0 && comm_rank(k) >= 0)
        check_pairs(s->dev, k);
    if (strcmp(variant, "room") == 0)
        check_room(l, s->dev);
    if (strcmp(variant, "axes") == 0)
        check_axes(l, s->dev, k);
    row_int(w, "checks", checks);
    launch_barrier(l, "done");
    comm_destroy(k);
}

static int rank_main(int argc, char **argv)
{
    const session_hooks hooks = {.run = comm_run};
    return launch_main(&info, &hooks, argc, argv);
}

/* ---- the tests ---- */

#define CPU "--device cpu --csv rows.csv "

static void expect(const char *arguments, int code)
{
    const int got = ranks_run("bench_comm", arguments);
    if (got != code)
        fail_msg("%s: exit code %d, not %d: %s", arguments, got, code, ranks_text("err.txt"));
}

TEST_IN_RANKS_FOLDER(every_op_on_a_rank_that_is_alone)
{
    expect(CPU "--ranks 1 --variant ops,bits,streams", EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3);
}

TEST_IN_RANKS_FOLDER(every_op_on_two_to_four_ranks)
{
    needs_gloo();
    expect(CPU "--ranks 2 --variant ops,bits,streams", EXIT_CODE_OK);
    expect(CPU "--ranks 3 --variant ops,bits,streams", EXIT_CODE_OK);
    expect(CPU "--ranks 4 --variant ops,bits,streams", EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3 * 3);
}

TEST_IN_RANKS_FOLDER(the_first_ranks_alone)
{
    needs_gloo();
    expect(CPU "--ranks 2,3,1 --variant ops,bits,streams", EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3 * 3);
}

TEST_IN_RANKS_FOLDER(sends_and_receives)
{
    needs_gloo();
    expect(CPU "--ranks 2,3,4 --variant pairs --timeout 20", EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 3);
}

/* Ranks 0 to 7 are a mesh, and in the second case ranks 0 to 3 of them. */
TEST_IN_RANKS_FOLDER(groups_of_a_mesh)
{
    needs_gloo();
    expect(CPU "--ranks 8,4 --variant axes --timeout 20", EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 2);
}

TEST_IN_RANKS_FOLDER(shared_memory_has_room_or_is_refused)
{
    needs_gloo();
    expect(CPU "--ranks 2 --variant room", EXIT_CODE_OK);
    assert_int_equal(ranks_lines("rows.csv"), 1 + 1);
}

/* Whoever notices first, the rank that is gone is named, and not those that lost their connection to it. */
TEST_IN_RANKS_FOLDER(a_killed_rank_is_named)
{
    needs_gloo();
    const double start = ranks_seconds();
    expect(CPU "--ranks 3 --variant killed", EXIT_CODE_TIMEOUT);
    assert_true(ranks_seconds() - start < 5);
    const char *said = ranks_text("err.txt");
    assert_non_null(strstr(said, "rank 1 of 3 was killed by signal 9"));
    assert_non_null(strstr(said, "while: ranks=3 variant=killed"));
    assert_non_null(strstr(said, "last collective: all_reduce #5 of 1048576 fp32 on main"));
    assert_non_null(strstr(said, "rows so far are in rows.csv"));
}

TEST_IN_RANKS_FOLDER(a_stopped_rank_is_named)
{
    needs_gloo();
    const double start = ranks_seconds();
    expect(CPU "--ranks 2 --variant stopped --timeout 1.5", EXIT_CODE_TIMEOUT);
    assert_true(ranks_seconds() - start < 6);
    const char *said = ranks_text("err.txt");
    assert_non_null(strstr(said, "no progress for --timeout 1.5 s: rank 1 of 2 does not run"));
    assert_non_null(strstr(said, "all_reduce #5"));
    assert_non_null(strstr(said, "rank 0 is not done"));
}

#ifndef HAVE_GLOO
TEST_IN_RANKS_FOLDER(without_gloo_it_is_said)
{
    expect(CPU "--ranks 2 --variant ops", EXIT_CODE_FAILURE);
    assert_non_null(strstr(ranks_text("err.txt"), "libgloo-dev"));
}
#endif

/* ---- two network namespaces as two hosts ---- */

static char spaces[2][32];

static bool shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static bool shell(const char *fmt, ...)
{
    char command[512], all[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    snprintf(all, sizeof all, "{ %s; } >>ip.txt 2>&1", command);
    return system(all) == 0;
}

static int leave_two_hosts(void **state)
{
    for (int i = 0; i < 2; i++)
        shell("ip netns del %s", spaces[i]);
    return ranks_leave_folder(state);
}

static bool make_two_hosts(void)
{
    bool made = true;
    for (int i = 0; i < 2; i++) {
        snprintf(spaces[i], sizeof spaces[i], "sbtest-%d-%d", (int)getpid(), i);
        made = made && shell("ip netns add %s", spaces[i]);
    }
    made = made && shell("ip link add sbtest0 netns %s type veth peer name sbtest1 netns %s", spaces[0], spaces[1]);
    for (int i = 0; i < 2; i++)
        made = made && shell("ip -n %s addr add 10.231.7.%d/24 dev sbtest%d", spaces[i], i + 1, i) &&
               shell("ip -n %s link set sbtest%d up", spaces[i], i) && shell("ip -n %s link set lo up", spaces[i]);
    return made;
}

TEST_WITH(two_hosts, ranks_enter_folder, leave_two_hosts)
{
    char self[512] = "", arguments[1024];
    pid_t pids[3];
    needs_gloo();
    if (!make_two_hosts()) {
        print_message("network namespaces can't be made here\n");
        skip();
    }
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    assert_int_equal(symlink(self, "bench_comm"), 0);
    for (int r = 0; r < 3; r++) { /* ranks 0 and 2 on the first host */
        snprintf(arguments, sizeof arguments,
                 "netns exec %s env RANK=%d WORLD_SIZE=3 MASTER_ADDR=10.231.7.1 MASTER_PORT=29500 "
                 "STEPBENCH_SECRET=0123456789abcdef ./bench_comm " CPU
                 "--ranks 3 --hosts 2 --variant ops,streams --timeout 20",
                 spaces[r % 2], r);
        pids[r] = ranks_start("ip", "ip", (const char *[]){"0", "1", "2"}[r], arguments);
    }
    for (int r = 0; r < 3; r++)
        if (ranks_wait(pids[r]) != EXIT_CODE_OK)
            fail_msg("rank %d of two hosts: %s%s%s", r, ranks_text("err0.txt"), ranks_text("err1.txt"),
                     ranks_text("err2.txt"));
    assert_int_equal(ranks_lines("rows.csv"), 1 + 2);
}

PROGRAM("bench_comm", rank_main)
