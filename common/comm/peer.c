/* SPDX-License-Identifier: MIT */
/* The mailboxes of ranks that reach each other's memory; see peer.h. */
#include "common/comm/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "common/core/error.h"

struct peers {
    launch *l;
    device *d;
    int rank; /* -1: no member */
    int size;
    void *mailbox[SB_PEER_RANKS_MAX];
    size_t mailbox_bytes;
};

int peers_size(const peers *p)
{
    return p->size;
}

size_t peers_message_bytes(const peers *p, sb_peer_algorithm algorithm)
{
    return sb_peer_message_bytes(p->mailbox_bytes, p->size, algorithm);
}

/* True on all ranks when it is on all; else `why` is that of the first which has one. */
static bool all_agree(launch *l, bool mine, char *why, size_t why_bytes)
{
    typedef struct answer {
        bool good;
        char why[240];
    } answer;
    answer own = {.good = mine}, *all = xcalloc((unsigned long)launch_size(l), sizeof *all);
    bool every = true;
    if (!mine)
        snprintf(own.why, sizeof own.why, "%s", why);
    launch_gather(l, "peers", &own, sizeof own, all);
    for (int r = launch_size(l); r-- > 0;)
        if (!all[r].good) {
            every = false;
            snprintf(why, why_bytes, "%s", all[r].why);
        }
    free(all);
    return every;
}

#ifdef HAVE_CUDA

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
    cudaIpcMemHandle_t handle;
    char gpu[32]; /* PCI bus id */
} address;

static bool make_mailbox(peers *p, address *mine, char *why, size_t why_bytes)
{
    int gpu = 0;
    void *box = device_malloc(p->d, p->mailbox_bytes);
    if (!box) {
        snprintf(why, why_bytes, "no memory for a mailbox of %zu bytes", p->mailbox_bytes);
        return false;
    }
    p->mailbox[p->rank] = box;
    device_memset(p->d, box, 0, p->mailbox_bytes);
    device_sync(p->d);
    return make_leave_word(p->l, why, why_bytes) &&
           good(cudaIpcGetMemHandle(&mine->handle, box), "memory can't be shared between processes", why, why_bytes) &&
           good(cudaGetDevice(&gpu), "cudaGetDevice", why, why_bytes) &&
           good(cudaDeviceGetPCIBusId(mine->gpu, sizeof mine->gpu, gpu), "cudaDeviceGetPCIBusId", why, why_bytes);
}

/* Packets are whole where GPUs have native atomics to each other's memory; see kernels/peer.h. */
static bool reaches(const address *other, int rank, char *why, size_t why_bytes)
{
    int own = 0, gpu = 0, native = 0;
    char what[96];
    snprintf(what, sizeof what, "this rank does not see the GPU %s of rank %d", other->gpu, rank);
    if (!good(cudaGetDevice(&own), "cudaGetDevice", why, why_bytes) ||
        !good(cudaDeviceGetByPCIBusId(&gpu, other->gpu), what, why, why_bytes))
        return false;
    snprintf(what, sizeof what, "GPU %d does not reach the memory of GPU %d", own, gpu);
    if (!good(cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, own, gpu), what, why, why_bytes))
        return false;
    if (!native)
        snprintf(why, why_bytes, "%s with native atomics, as over NVLink", what);
    return native;
}

static bool map_others(peers *p, const address *all, char *why, size_t why_bytes)
{
    char what[96];
    for (int r = 0; r < p->size; r++) {
        void *box = NULL;
        if (r == p->rank)
            continue;
        snprintf(what, sizeof what, "rank %d can't map the memory of rank %d's GPU", p->rank, r);
        if (!reaches(&all[r], r, why, why_bytes) ||
            !good(cudaIpcOpenMemHandle(&box, all[r].handle, cudaIpcMemLazyEnablePeerAccess), what, why, why_bytes))
            return false;
        p->mailbox[r] = box;
    }
    return true;
}

static void unmap_others(peers *p)
{
    for (int r = 0; r < p->size; r++)
        if (r != p->rank && p->mailbox[r])
            cudaIpcCloseMemHandle(p->mailbox[r]);
}

static bool open_mailboxes(peers *p, char *why, size_t why_bytes)
{
    address mine = {0}, *all = xcalloc((unsigned long)launch_size(p->l), sizeof *all);
    const bool member = p->rank >= 0;
    bool open = all_agree(p->l, !member || make_mailbox(p, &mine, why, why_bytes), why, why_bytes);
    if (open) {
        launch_gather(p->l, "mailboxes", &mine, sizeof mine, all);
        open = all_agree(p->l, !member || map_others(p, all, why, why_bytes), why, why_bytes);
    }
    free(all);
    return open;
}

#else

static const struct {
    const uint32_t *on_gpu;
} leave;
static void unmap_others(peers *p)
{
    (void)p;
}
static bool open_mailboxes(peers *p, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "built without CUDA");
    return all_agree(p->l, false, why, why_bytes);
}
#endif

peers *peers_open(launch *l, device *d, int ranks, size_t message_bytes, char *why, size_t why_bytes)
{
    const bool gpu = device_kind_of(d) == DEVICE_CUDA, several = ranks >= 2 && ranks <= SB_PEER_RANKS_MAX;
    why[0] = 0;
    if (!gpu || !several || launch_hosts(l) > 1) { /* all ranks know as much */
        if (!gpu)
            snprintf(why, why_bytes, "ranks on CPUs have no GPU's memory to reach");
        else if (!several)
            snprintf(why, why_bytes, "it is for 2 to %d ranks", SB_PEER_RANKS_MAX);
        else
            snprintf(why, why_bytes, "the ranks are on %d hosts, and reach memory only on their own host",
                     launch_hosts(l));
        return NULL;
    }
    peers *p = xcalloc(1, sizeof *p);
    p->l = l;
    p->d = d;
    p->size = ranks;
    p->rank = launch_rank(l) < ranks ? launch_rank(l) : -1;
    p->mailbox_bytes = sb_peer_mailbox_bytes(message_bytes, ranks);
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
    unmap_others(p);
    launch_barrier(p->l, "peers are apart");
    if (p->rank >= 0 && p->mailbox[p->rank])
        device_free(p->d, p->mailbox[p->rank]);
    free(p);
}

void peers_all_reduce(peers *p, sb_peer_algorithm algorithm, const void *send, void *recv, size_t count, comm_dtype t,
                      void *stream)
{
    static const sb_dtype dtypes[] = {[COMM_FP32] = SB_FP32, [COMM_BF16] = SB_BF16, [COMM_FP16] = SB_FP16};
    if (p->rank < 0 || t == COMM_INT32)
        die(EXIT_CODE_FAILURE, "bug: an all-reduce between peers %s",
            p->rank < 0 ? "by a rank that is no member" : "of integers");
    sb_peer_all_reduce call = {.algorithm = algorithm,
                               .rank = p->rank,
                               .ranks = p->size,
                               .dtype = dtypes[t],
                               .n = count,
                               .in = send,
                               .out = recv,
                               .mailbox_bytes = p->mailbox_bytes,
                               .leave = leave.on_gpu};
    memcpy(call.mailboxes, p->mailbox, sizeof call.mailboxes);
    launch_collective(p->l, algorithm == SB_PEER_TWO_SHOT ? "two-shot all_reduce" : "one-shot all_reduce", count,
                      comm_dtype_name(t), "peers");
    if (sb_cuda_peer_all_reduce(&call, stream) != SB_OK)
        launch_fail(p->l, EXIT_CODE_FAILURE, "an all-reduce between peers failed: %s", sb_last_message());
}
