/* SPDX-License-Identifier: MIT */
/* Collectives between GPUs by NCCL. Communicators are blocking: non-blocking ones start a thread for each op, which
 * takes ten times as long as a small op itself, and can't be captured in a graph. A rank that hangs inside the library
 * makes no progress, which the coordinator sees; then the watcher's thread, which calls no NCCL function that waits,
 * ends the process. It also reads asynchronous errors, notes which collectives are over, and aborts the communicators
 * when the job ends, since kernels that wait for a peer leave in no other way. */
#if defined(HAVE_CUDA) && defined(HAVE_NCCL)
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <nccl.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/comm/internal.h"

enum { MARKS = 256 };
/* An event costs the host as much as a small op, and keeps the next one waiting: ops that follow one another faster
 * than this share one, unless they are large. */
static const double mark_every_s = 50e-6;
enum { MARK_BYTES = 1 << 20 };

typedef struct mark { /* of a collective in flight */
    cudaEvent_t event;
    launch_number number;
} mark;

typedef struct nccl_state {
    ncclComm_t nccl;          /* NULL on a rank that is no member */
    struct nccl_state *older; /* in the list of those to abort */
    int gpu;
    void *scratch; /* int32: one of barriers, one of each member to connect pairs */
    bool reported;
    struct {
        bool open;
        cudaStream_t stream; /* of its last op */
        launch_number number;
        size_t bytes; /* of all its ops */
    } group;
    double marked_s;      /* when the last mark was made */
    pthread_mutex_t lock; /* of the marks, which the main thread makes and the watcher's drops */
    mark marks[MARKS];
    unsigned made, dropped;
} nccl_state;

static void explain(ncclResult_t r, char *out, size_t out_bytes)
{
    const char *last = ncclGetLastError(NULL); /* NCCL keeps one, whatever the communicator */
    snprintf(out, out_bytes, "%s%s%s", ncclGetErrorString(r), last && *last ? ": " : "", last ? last : "");
}

static void must(const comm *c, ncclResult_t r, const char *doing)
{
    char why[1024];
    if (r == ncclSuccess)
        return;
    explain(r, why, sizeof why);
    launch_fail(c->l, EXIT_CODE_FAILURE, "%s the communicator '%s' failed: %s", doing, c->name, why);
}

/* ---- the end that comes from outside ---- */

/* The communicators that are open. A rank that hangs while it opens its first one has none, and needs none: nothing of
 * it runs on the GPU yet, so that it is enough that the process ends. */
static struct {
    pthread_mutex_t lock;
    nccl_state *newest;
    bool over; /* they are aborted, and this process ends within a second */
} all_open = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* On a thread of its own, while the main thread may be anywhere, also inside NCCL with one of these communicators; it
 * comes back from there with an error, and must not touch them any more. */
static void abort_all(void *user)
{
    (void)user;
    pthread_mutex_lock(&all_open.lock);
    all_open.over = true;
    for (nccl_state *s = all_open.newest; s; s = s->older)
        ncclCommAbort(s->nccl);
    pthread_mutex_unlock(&all_open.lock);
}

static void list(comm *c)
{
    nccl_state *s = c->state;
    pthread_mutex_lock(&all_open.lock);
    const bool first = !all_open.newest;
    s->older = all_open.newest;
    all_open.newest = s;
    pthread_mutex_unlock(&all_open.lock);
    if (first)
        launch_on_end(c->l, abort_all, &all_open);
}

/* After it nobody aborts the communicator; does not return once somebody has. */
static void unlist(comm *c)
{
    nccl_state *s = c->state, **at = &all_open.newest;
    pthread_mutex_lock(&all_open.lock);
    while (all_open.over) {
        pthread_mutex_unlock(&all_open.lock);
        pause();
        pthread_mutex_lock(&all_open.lock);
    }
    while (*at != s)
        at = &(*at)->older;
    *at = s->older;
    const bool last = !all_open.newest;
    pthread_mutex_unlock(&all_open.lock);
    if (last)
        launch_off_end(c->l, abort_all, &all_open);
}

/* ---- the watcher's side ---- */

static void watch(void *user)
{
    comm *c = user;
    nccl_state *s = c->state;
    ncclResult_t r = ncclSuccess;
    launch_number done = {0};
    char why[1024];
    cudaSetDevice(s->gpu);
    pthread_mutex_lock(&s->lock);
    while (s->dropped != s->made && cudaEventQuery(s->marks[s->dropped % MARKS].event) == cudaSuccess)
        done = s->marks[s->dropped++ % MARKS].number;
    pthread_mutex_unlock(&s->lock);
    if (done.number)
        launch_collective_done(c->l, c->on, done);
    if (s->reported || ncclCommGetAsyncError(s->nccl, &r) != ncclSuccess || r == ncclSuccess || r == ncclInProgress)
        return;
    s->reported = true;
    explain(r, why, sizeof why);
    launch_report(c->l, EXIT_CODE_FAILURE, "NCCL reports an error on communicator '%s': %s", c->name, why);
}

/* The stream has passed the collective when its event is done. Collectives without a mark, also because the ring is
 * full, are known to be over when a later one is. */
static void make_mark(comm *c, cudaStream_t stream, launch_number number, size_t bytes)
{
    nccl_state *s = c->state;
    const double now = host_seconds();
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &capture);
    if (capture != cudaStreamCaptureStatusNone) { /* runs when the graph does, which nobody tells us of */
        launch_collective_done(c->l, c->on, number);
        return;
    }
    if (bytes < MARK_BYTES && now - s->marked_s < mark_every_s)
        return;
    s->marked_s = now;
    pthread_mutex_lock(&s->lock);
    if (s->made - s->dropped < MARKS) {
        mark *m = &s->marks[s->made % MARKS];
        if (cudaEventRecord(m->event, stream) == cudaSuccess) {
            m->number = number;
            s->made++;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- making ---- */

/* Ranks with different libraries can't talk, or worse, can for a while. */
static bool same_version(comm *c, char *why, size_t why_bytes)
{
    int mine = 0, other = -1;
    if (ncclGetVersion(&mine) != ncclSuccess)
        mine = 0;
    OWNED int *all = launch_gathered(c->l, "NCCL version", &mine, sizeof mine);
    for (int r = 0; r < launch_size(c->l); r++)
        other = all[r] != mine ? r : other;
    if (other >= 0)
        snprintf(why, why_bytes, "rank %d has NCCL %d and this rank %d; all must load the same library", other,
                 all[other], mine);
    snprintf(c->backend, sizeof c->backend, "nccl %d.%d.%d", mine / 10000, mine % 10000 / 100, mine % 100);
    return other < 0;
}

static ncclConfig_t config_of(const comm *c, const comm_options *o)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (o->max_ctas)
        config.maxCTAs = o->max_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = c->name;
#else
    (void)c;
#endif
    return config;
}

static bool make_first(comm *c, ncclConfig_t *config, char *why, size_t why_bytes)
{
    nccl_state *s = c->state;
    struct first {
        ncclUniqueId id;
        int got; /* the first member's result */
    } mine = {.got = ncclSuccess};
    if (c->rank == 0)
        mine.got = ncclGetUniqueId(&mine.id);
    OWNED struct first *all = launch_gathered(c->l, "NCCL id", &mine, sizeof mine);
    mine = all[c->members[0]];
    if (mine.got != ncclSuccess) {
        snprintf(why, why_bytes, "rank %d can't make an NCCL id: %s", c->members[0],
                 ncclGetErrorString((ncclResult_t)mine.got));
        return false;
    }
    if (c->rank < 0)
        return true;
    /* Ranks wait for one another in here: a failure of one must end the others' waiting. */
    must(c, ncclCommInitRankConfig(&s->nccl, c->size, mine.id, c->rank, config), "opening");
    return true;
}

static void make_another(comm *c, const comm *of, ncclConfig_t *config)
{
    nccl_state *s = c->state, *parent = of->state;
    if (of->rank < 0)
        return;
    config->splitShare = 0; /* it is there to overlap with the other one */
    const int colour = c->rank < 0 ? NCCL_SPLIT_NOCOLOR : c->members[0];
    must(c, ncclCommSplit(parent->nccl, colour, c->rank < 0 ? 0 : c->rank, &s->nccl, config), "opening");
}

static bool make_resources(comm *c, char *why, size_t why_bytes)
{
    nccl_state *s = c->state;
    bool made = cudaGetDevice(&s->gpu) == cudaSuccess;
    s->scratch = device_malloc(c->d, (1 + (size_t)c->size) * sizeof(int32_t));
    if (s->scratch) {
        device_memset(c->d, s->scratch, 0, (1 + (size_t)c->size) * sizeof(int32_t));
        device_sync(c->d); /* any stream may be the first to use it */
    }
    for (int i = 0; i < MARKS && made; i++)
        made = cudaEventCreateWithFlags(&s->marks[i].event, cudaEventDisableTiming) == cudaSuccess;
    if (!made || !s->scratch)
        snprintf(why, why_bytes, "no memory or no events for the communicator");
    return made && s->scratch;
}

static void drop_resources(comm *c)
{
    nccl_state *s = c->state;
    for (int i = 0; i < MARKS; i++)
        if (s->marks[i].event)
            cudaEventDestroy(s->marks[i].event);
    device_free(c->d, s->scratch);
    pthread_mutex_destroy(&s->lock);
    free(s);
    c->state = NULL;
}

/* Else the first exchange of a pair would connect it, while other ranks are anywhere. */
static void connect_pairs(comm *c)
{
    nccl_state *s = c->state;
    int32_t *words = s->scratch;
    must(c, ncclGroupStart(), "connecting pairs of");
    for (int i = 0; i < c->size; i++)
        if (i != c->rank) {
            must(c, ncclSend(words, 1, ncclInt32, i, s->nccl, device_stream(c->d)), "connecting pairs of");
            must(c, ncclRecv(words + 1 + i, 1, ncclInt32, i, s->nccl, device_stream(c->d)), "connecting pairs of");
        }
    must(c, ncclGroupEnd(), "connecting pairs of");
    device_sync(c->d);
}

static bool open_nccl(comm *c, comm *of, const comm_options *o, char *why, size_t why_bytes)
{
    nccl_state *s = xcalloc(1, sizeof *s);
    ncclConfig_t config = config_of(c, o);
    pthread_mutex_init(&s->lock, NULL);
    c->state = s;
    /* Whether a step is taken is decided by what all ranks know, so that none waits in a step that another left out. */
    const bool same = same_version(c, why, why_bytes);
    const bool ready = launch_all(c->l, "NCCL resources", make_resources(c, why, why_bytes) && same);
    if (ready && of)
        make_another(c, of, &config);
    if (!ready || (!of && !make_first(c, &config, why, why_bytes))) {
        if (!*why)
            snprintf(why, why_bytes, "another rank has no memory for it, or another NCCL");
        drop_resources(c);
        return false;
    }
    if (s->nccl) {
        list(c);
        launch_on_watch(c->l, watch, c);
        if (o->pairs)
            connect_pairs(c);
    }
    return true;
}

static void close_nccl(comm *c)
{
    nccl_state *s = c->state;
    if (s->nccl) {
        launch_off_watch(c->l, watch, c);
        must(c, ncclCommFinalize(s->nccl), "closing"); /* waits for its ops, until an abort if need be */
        unlist(c);
        ncclCommDestroy(s->nccl);
    }
    drop_resources(c);
}

/* ---- ops ---- */

static ncclDataType_t type_of(comm_dtype t)
{
    static const ncclDataType_t types[] = {
        [COMM_FP32] = ncclFloat32, [COMM_BF16] = ncclBfloat16, [COMM_FP16] = ncclFloat16, [COMM_INT32] = ncclInt32};
    return types[t];
}

/* One launch: a send and a receive for each rank. */
static ncclResult_t exchange(const comm *c, const comm_call *k, ncclDataType_t t, cudaStream_t stream)
{
    const nccl_state *s = c->state;
    const size_t bytes = k->count * comm_dtype_bytes(k->t);
    ncclResult_t r = ncclGroupStart();
    for (int i = 0; i < c->size && r == ncclSuccess; i++) {
        r = ncclSend((const char *)k->send + (size_t)i * bytes, k->count, t, i, s->nccl, stream);
        if (r == ncclSuccess)
            r = ncclRecv((char *)k->recv + (size_t)i * bytes, k->count, t, i, s->nccl, stream);
    }
    const ncclResult_t end = ncclGroupEnd();
    return r == ncclSuccess ? end : r;
}

static ncclResult_t start_op(const comm *c, const comm_call *k, cudaStream_t stream)
{
    const nccl_state *s = c->state;
    const ncclDataType_t t = type_of(k->t);
    const ncclRedOp_t op = k->r == COMM_SUM ? ncclSum : ncclMax;
    switch (k->op) {
    case COMM_ALL_REDUCE: return ncclAllReduce(k->send, k->recv, k->count, t, op, s->nccl, stream);
    case COMM_REDUCE_SCATTER: return ncclReduceScatter(k->send, k->recv, k->count, t, op, s->nccl, stream);
    case COMM_ALL_GATHER: return ncclAllGather(k->send, k->recv, k->count, t, s->nccl, stream);
    case COMM_BROADCAST:
        return ncclBroadcast(c->rank == k->root ? k->send : k->recv, k->recv, k->count, t, k->root, s->nccl, stream);
    case COMM_REDUCE: return ncclReduce(k->send, k->recv, k->count, t, op, k->root, s->nccl, stream);
    case COMM_ALL_TO_ALL: return exchange(c, k, t, stream);
    case COMM_SEND: return ncclSend(k->send, k->count, t, k->root, s->nccl, stream);
    case COMM_RECV: return ncclRecv(k->recv, k->count, t, k->root, s->nccl, stream);
    default: /* a barrier: what follows it needs every rank's part of this */
        return ncclAllReduce(s->scratch, s->scratch, 1, ncclInt32, ncclMax, s->nccl, stream);
    }
}

static void enqueue(comm *c, const comm_call *call, void *stream)
{
    nccl_state *s = c->state;
    const size_t bytes = call->count * comm_dtype_bytes(call->t);
    must(c, start_op(c, call, stream), "an op on");
    if (!s->group.open) {
        make_mark(c, stream, call->number, bytes);
        return;
    }
    s->group.stream = stream;
    s->group.number = call->number;
    s->group.bytes += bytes;
}

static void group(comm *c, bool begin)
{
    nccl_state *s = c->state;
    s->group.open = begin;
    if (begin) {
        s->group.number = (launch_number){0};
        s->group.bytes = 0;
        must(c, ncclGroupStart(), "beginning a group on");
        return;
    }
    must(c, ncclGroupEnd(), "a group of ops on");
    if (s->group.number.number)
        make_mark(c, s->group.stream, s->group.number, s->group.bytes);
}

const comm_backend_ops comm_nccl_ops = {
    .name = "nccl", .open = open_nccl, .close = close_nccl, .enqueue = enqueue, .group = group};
#else
typedef int no_nccl_in_this_build; /* a file needs a declaration */
#endif
