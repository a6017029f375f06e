/* SPDX-License-Identifier: MIT */
/* What ranks map of each other's memory; see peer.h. */
#include "common/comm/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "common/core/error.h"
#include "common/device/visible.h"

struct peer_memory {
    int rank; /* among the members; -1: no member */
    int size;
    int members[SB_DIRECT_RANKS_MAX]; /* of the job */
    void *at[SB_DIRECT_RANKS_MAX];
    void *base[SB_DIRECT_RANKS_MAX]; /* of the mapped allocations; NULL: not mapped */
};

struct peers {
    launch *l;
    device *d;
    peer_memory m; /* their mailboxes */
    size_t mailbox_bytes;
    int on; /* as the coordinator knows it */
};

size_t peers_message_bytes(const peers *p, sb_direct_algorithm algorithm)
{
    return sb_direct_message_bytes(p->mailbox_bytes, p->m.size, algorithm);
}

/* True on all ranks when it is on all; else `why` is that of the first which has one. */
static bool all_agree(launch *l, bool mine, char *why, size_t why_bytes)
{
    typedef struct answer {
        bool good;
        char why[240];
    } answer;
    answer own = {.good = mine};
    bool every = true;
    if (!mine)
        snprintf(own.why, sizeof own.why, "%s", why);
    OWNED answer *all = launch_gathered(l, "peers", &own, sizeof own);
    for (int r = launch_size(l); r-- > 0;)
        if (!all[r].good) {
            every = false;
            snprintf(why, why_bytes, "%s", all[r].why);
        }
    return every;
}

/* Read by kernels that wait, so in host memory which the GPU sees. There is one in a process, and it stays: the end of
 * the job may come at any time. */
static struct {
    uint32_t *word;
    const uint32_t *on_gpu;
} leave;

static void make_all_leave(void *user)
{
    (void)user;
    __atomic_store_n(leave.word, 1, __ATOMIC_SEQ_CST);
}

#ifdef HAVE_CUDA

static bool good(cudaError_t e, const char *what, char *why, size_t why_bytes)
{
    if (e == cudaSuccess)
        return true;
    cudaGetLastError(); /* or the next check of a kernel launch would find it */
    snprintf(why, why_bytes, "%s: %s", what, cudaGetErrorString(e));
    return false;
}

static bool make_leave_word(launch *l, char *why, size_t why_bytes)
{
    void *word = NULL, *on_gpu = NULL;
    if (leave.word)
        return true;
    if (!good(cudaHostAlloc(&word, sizeof *leave.word, cudaHostAllocMapped), "no mapped host memory", why, why_bytes) ||
        !good(cudaHostGetDevicePointer(&on_gpu, word, 0), "no mapped host memory", why, why_bytes))
        return false;
    leave.word = word;
    leave.on_gpu = on_gpu;
    *leave.word = 0;
    launch_on_end(l, make_all_leave, &leave);
    return true;
}

/* What a rank tells the others. */
typedef struct address {
    cudaIpcMemHandle_t handle; /* of the allocation that holds its memory */
    size_t offset;             /* of it there */
    char gpu[32];              /* PCI bus id */
} address;

typedef int (*range_fn)(unsigned long long *base, size_t *bytes, unsigned long long at); /* cuMemGetAddressRange */

/* Where the allocation begins that holds `at`. Asked of the running driver, so that nothing links against libcuda. */
static bool find_base(const void *at, char **base, char *why, size_t why_bytes)
{
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult how;
    unsigned long long first = 0;
    size_t bytes;
    if (!good(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 12000, cudaEnableDefault, &how),
              "cuMemGetAddressRange", why, why_bytes))
        return false;
    const range_fn range = (range_fn)found;
    if (how != cudaDriverEntryPointSuccess || range(&first, &bytes, (unsigned long long)(uintptr_t)at) != 0) {
        snprintf(why, why_bytes, "the driver does not say where memory was allocated");
        return false;
    }
    *base = (char *)(uintptr_t)first; /* NOLINT: that is how the driver says it */
    return true;
}

static bool make_address(void *at, bool allocated, address *mine, char *why, size_t why_bytes)
{
    int gpu = 0;
    char *base = at;
    if (!allocated && !find_base(at, &base, why, why_bytes))
        return false;
    mine->offset = (size_t)((const char *)at - base);
    return good(cudaIpcGetMemHandle(&mine->handle, base), "memory can't be shared between processes", why, why_bytes) &&
           good(cudaGetDevice(&gpu), "cudaGetDevice", why, why_bytes) &&
           good(cudaDeviceGetPCIBusId(mine->gpu, sizeof mine->gpu, gpu), "cudaDeviceGetPCIBusId", why, why_bytes);
}

/* Packets are whole where GPUs have native atomics to each other's memory; see kernels/shared/direct.h. */
static bool reaches(const address *other, int rank, bool packets, char *why, size_t why_bytes)
{
    const enum cudaDeviceP2PAttr wanted = packets ? cudaDevP2PAttrNativeAtomicSupported : cudaDevP2PAttrAccessSupported;
    int own = 0, gpu = 0, can = 0;
    char what[96];
    snprintf(what, sizeof what, "this rank does not see the GPU %s of rank %d", other->gpu, rank);
    if (!good(cudaGetDevice(&own), "cudaGetDevice", why, why_bytes) ||
        !good(cudaDeviceGetByPCIBusId(&gpu, other->gpu), what, why, why_bytes))
        return false;
    if (visible_apart(getenv(VISIBLE_APART))) {
        snprintf(why, why_bytes, VISIBLE_APART " keeps GPUs from each other's memory");
        return false;
    }
    snprintf(what, sizeof what, "GPU %d does not reach the memory of GPU %d", own, gpu);
    if (!good(cudaDeviceGetP2PAttribute(&can, wanted, own, gpu), what, why, why_bytes))
        return false;
    if (!can)
        snprintf(why, why_bytes, "%s%s", what, packets ? " with native atomics, as over NVLink" : "");
    return can;
}

static bool map_others(peer_memory *m, const address *all, bool packets, char *why, size_t why_bytes)
{
    char what[96];
    for (int r = 0; r < m->size; r++) {
        void *base = NULL;
        if (r == m->rank)
            continue;
        snprintf(what, sizeof what, "rank %d can't map the memory of rank %d's GPU", m->members[m->rank],
                 m->members[r]);
        const address *other = &all[m->members[r]];
        if (!reaches(other, m->members[r], packets, why, why_bytes) ||
            !good(cudaIpcOpenMemHandle(&base, other->handle, cudaIpcMemLazyEnablePeerAccess), what, why, why_bytes))
            return false;
        m->base[r] = base;
        m->at[r] = (char *)base + other->offset;
    }
    return true;
}

static void unmap_others(peer_memory *m)
{
    for (int r = 0; r < m->size; r++)
        if (m->base[r])
            cudaIpcCloseMemHandle(m->base[r]);
    memset(m->base, 0, sizeof m->base);
}

/* m->at[m->rank] is this rank's; a mailbox is all of an allocation, and takes packets. */
static bool map_all(peer_memory *m, launch *l, bool mailbox, char *why, size_t why_bytes)
{
    address mine = {0};
    const bool member = m->rank >= 0;
    bool open = all_agree(l, !member || make_address(m->at[m->rank], mailbox, &mine, why, why_bytes), why, why_bytes);
    if (open) {
        OWNED address *all = launch_gathered(l, "mailboxes", &mine, sizeof mine);
        open = all_agree(l, !member || map_others(m, all, mailbox, why, why_bytes), why, why_bytes);
        if (!open) {
            unmap_others(m);
            launch_barrier(l, "nothing is mapped"); /* the owners free it next */
        }
    }
    return open;
}

static bool make_mailbox(peers *p, char *why, size_t why_bytes)
{
    void *box = device_malloc(p->d, p->mailbox_bytes);
    if (!box) {
        snprintf(why, why_bytes, "no memory for a mailbox of %zu bytes", p->mailbox_bytes);
        return false;
    }
    p->m.at[p->m.rank] = box;
    device_memset(p->d, box, 0, p->mailbox_bytes);
    device_sync(p->d);
    return make_leave_word(p->l, why, why_bytes);
}

static bool open_mailboxes(peers *p, char *why, size_t why_bytes)
{
    const bool made = p->m.rank < 0 || make_mailbox(p, why, why_bytes);
    return all_agree(p->l, made, why, why_bytes) && map_all(&p->m, p->l, true, why, why_bytes);
}

#else

static bool make_leave_word(launch *l, char *why, size_t why_bytes)
{
    (void)l;
    snprintf(why, why_bytes, "built without CUDA");
    return false;
}
static void unmap_others(peer_memory *m)
{
    (void)m;
}
static bool map_all(peer_memory *m, launch *l, bool mailbox, char *why, size_t why_bytes)
{
    (void)m, (void)mailbox;
    snprintf(why, why_bytes, "built without CUDA");
    return all_agree(l, false, why, why_bytes);
}
static bool open_mailboxes(peers *p, char *why, size_t why_bytes)
{
    return map_all(&p->m, p->l, true, why, why_bytes);
}
#endif

const uint32_t *peer_leave_word(launch *l, device *d, char *why, size_t why_bytes)
{
    static uint32_t on_cpu;
    if (device_kind_of(d) == DEVICE_CUDA)
        return make_leave_word(l, why, why_bytes) ? leave.on_gpu : NULL;
    if (!leave.word) {
        leave.word = &on_cpu;
        launch_on_end(l, make_all_leave, &leave);
    }
    return leave.word;
}

bool peer_unreachable(launch *l, device *d, int ranks, char *why, size_t why_bytes)
{
    const bool gpu = device_kind_of(d) == DEVICE_CUDA, several = ranks >= 2 && ranks <= SB_DIRECT_RANKS_MAX;
    why[0] = 0;
    if (!gpu)
        snprintf(why, why_bytes, "ranks on CPUs have no GPU's memory to reach");
    else if (!several)
        snprintf(why, why_bytes, "it is for 2 to %d ranks", SB_DIRECT_RANKS_MAX);
    else if (launch_hosts(l) > 1)
        snprintf(why, why_bytes, "the ranks are on %d hosts, and reach memory only on their own host", launch_hosts(l));
    return why[0];
}

static peer_memory memory_of(launch *l, const int *members, int ranks)
{
    peer_memory m = {.size = ranks, .rank = -1};
    for (int i = 0; i < ranks; i++) {
        m.members[i] = members ? members[i] : i;
        m.rank = m.members[i] == launch_rank(l) ? i : m.rank;
    }
    return m;
}

/* ---- memory that all ranks have ---- */

peer_memory *peer_memory_open(launch *l, device *d, const int *members, int ranks, void *mine, char *why,
                              size_t why_bytes)
{
    if (peer_unreachable(l, d, ranks, why, why_bytes))
        return NULL;
    peer_memory *m = xcalloc(1, sizeof *m);
    *m = memory_of(l, members, ranks);
    if (m->rank >= 0)
        m->at[m->rank] = mine;
    if (map_all(m, l, false, why, why_bytes))
        return m;
    free(m);
    return NULL;
}

void peer_memory_close(peer_memory *m)
{
    if (!m)
        return;
    unmap_others(m);
    free(m);
}

void *const *peer_memory_at(const peer_memory *m)
{
    return m->at;
}

void peer_all_gather(launch *l, int rank, int ranks, const void *const *slices, void *recv, size_t bytes,
                     int max_blocks, void *stream)
{
    sb_direct_all_gather call = {.rank = rank, .ranks = ranks, .out = recv, .bytes = bytes, .max_blocks = max_blocks};
    memcpy(call.slices, slices, (size_t)ranks * sizeof *slices);
    if (sb_cuda_direct_all_gather(&call, stream) != SB_OK)
        launch_fail(l, EXIT_CODE_FAILURE, "an all-gather between peers failed: %s", sb_last_message());
}

/* ---- mailboxes ---- */

peers *peers_open(launch *l, device *d, const int *members, int ranks, size_t message_bytes, char *why,
                  size_t why_bytes)
{
    if (peer_unreachable(l, d, ranks, why, why_bytes))
        return NULL;
    peers *p = xcalloc(1, sizeof *p);
    p->l = l;
    p->d = d;
    p->m = memory_of(l, members, ranks);
    p->on = launch_communicator(l, "peers", p->m.members[0], p->m.rank, ranks);
    p->mailbox_bytes = sb_direct_mailbox_bytes(message_bytes, ranks);
    if (open_mailboxes(p, why, why_bytes))
        return p;
    peers_close(p);
    return NULL;
}

void peers_close(peers *p)
{
    if (!p)
        return;
    device_sync(p->d);
    launch_barrier(p->l, "peers are done"); /* none may still send where another unmaps or frees */
    peers_unmap(p);
    launch_barrier(p->l, "peers are apart");
    peers_free(p);
}

void peers_unmap(peers *p)
{
    unmap_others(&p->m);
}

void peers_free(peers *p)
{
    if (p->m.rank >= 0 && p->m.at[p->m.rank])
        device_free(p->d, p->m.at[p->m.rank]);
    launch_communicator_end(p->l, p->on);
    free(p);
}

static void note(const peers *p, const char *op, size_t count, const char *dtype)
{
    const launch_op what = {.on = p->on, .name = "peers", .op = op, .dtype = dtype, .count = count, .peer = -1};
    launch_collective(p->l, &what);
}

sb_dtype peer_dtype(comm_dtype t)
{
    static const sb_dtype dtypes[] = {[COMM_FP32] = SB_FP32, [COMM_BF16] = SB_BF16, [COMM_FP16] = SB_FP16};
    return dtypes[t];
}

void peers_collective(peers *p, sb_direct_algorithm algorithm, const void *send, void *recv, size_t count, comm_dtype t,
                      void *stream)
{
    if (p->m.rank < 0 || t == COMM_INT32)
        die(EXIT_CODE_FAILURE, "bug: a collective between peers %s",
            p->m.rank < 0 ? "by a rank that is no member" : "of integers");
    sb_direct_collective call = {.algorithm = algorithm,
                                 .rank = p->m.rank,
                                 .ranks = p->m.size,
                                 .dtype = peer_dtype(t),
                                 .n = count,
                                 .in = send,
                                 .out = recv,
                                 .mailbox_bytes = p->mailbox_bytes,
                                 .leave = leave.on_gpu};
    memcpy(call.mailboxes, p->m.at, sizeof call.mailboxes);
    static const char *const names[] = {[SB_DIRECT_ONE_SHOT] = "one-shot all_reduce",
                                        [SB_DIRECT_TWO_SHOT] = "two-shot all_reduce",
                                        [SB_DIRECT_ALL_GATHER] = "one-shot all_gather",
                                        [SB_DIRECT_REDUCE_SCATTER] = "one-shot reduce_scatter"};
    note(p, names[algorithm], count, comm_dtype_name(t));
    if (sb_cuda_direct_collective(&call, stream) != SB_OK)
        launch_fail(p->l, EXIT_CODE_FAILURE, "a collective between peers failed: %s", sb_last_message());
}

void peers_gate(peers *p, void *stream)
{
    if (p->m.rank < 0)
        die(EXIT_CODE_FAILURE, "bug: a gate between peers by a rank that is no member");
    sb_direct_gate call = {.rank = p->m.rank, .ranks = p->m.size, .leave = leave.on_gpu};
    memcpy(call.mailboxes, p->m.at, sizeof call.mailboxes);
    note(p, "gate", 0, "fp32");
    if (sb_cuda_direct_gate(&call, stream) != SB_OK)
        launch_fail(p->l, EXIT_CODE_FAILURE, "a gate between peers failed: %s", sb_last_message());
}
