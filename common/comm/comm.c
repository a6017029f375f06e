/* SPDX-License-Identifier: MIT */
/* The front of the communicators: checks, numbers and names each op, and hands it to the backend; see comm.h. */
#include "common/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/comm/internal.h"
#include "common/record/nvtx.h"
#include "common/record/record.h"

/* ---- making ---- */

#if defined(HAVE_CUDA) && defined(HAVE_NCCL)
static const comm_backend_ops *const between_gpus = &comm_nccl_ops;
#else
static const comm_backend_ops *const between_gpus = NULL;
#endif
#ifdef HAVE_GLOO
static const comm_backend_ops *const between_cpus = &comm_cpu_ops;
#else
static const comm_backend_ops *const between_cpus = NULL;
#endif

/* Whether all members of this rank's group gave the same list. */
static bool agreed(const comm *c)
{
    uint64_t mine = 0xcbf29ce484222325u;
    bool same = true;
    for (int i = 0; i < c->size; i++)
        mine = (mine ^ (uint64_t)c->members[i]) * 0x100000001b3u;
    OWNED uint64_t *all = launch_gathered(c->l, "members", &mine, sizeof mine);
    for (int i = 0; i < c->size && c->rank >= 0; i++)
        same = same && all[c->members[i]] == mine;
    return same;
}

static bool same_members(const comm *of, const comm_options *o)
{
    return of && !o->members && !o->ranks;
}

static int size_of(launch *l, const comm *of, const comm_options *o)
{
    return same_members(of, o) ? of->size : o->ranks ? o->ranks : launch_size(l);
}

static void set_members(comm *c, const comm *of, const comm_options *o)
{
    const bool same = same_members(of, o);
    c->size = size_of(c->l, of, o);
    c->rank = -1;
    c->members = xcalloc((unsigned long)c->size, sizeof *c->members);
    for (int i = 0; i < c->size; i++) {
        c->members[i] = same ? of->members[i] : o->members ? o->members[i] : i;
        if (c->members[i] < 0 || c->members[i] >= launch_size(c->l))
            die(EXIT_CODE_FAILURE, "bug: rank %d of %d in the communicator '%s'", c->members[i], launch_size(c->l),
                o->name);
        if (c->members[i] == launch_rank(c->l))
            c->rank = i;
    }
    if (!agreed(c) || (of && c->rank >= 0 && of->rank < 0))
        die(EXIT_CODE_FAILURE, "bug: ranks disagree about who is in the communicator '%s'", o->name);
}

static void drop(comm *c)
{
    launch_communicator_end(c->l, c->on);
    free(c->members);
    free(c->sent);
    free(c->received);
    free(c);
}

static comm *create(launch *l, device *d, comm *of, const comm_options *o, char *why, size_t why_bytes)
{
    why[0] = 0;
    const bool gpu = device_kind_of(d) == DEVICE_CUDA;
    /* A CPU that is alone needs no library. */
    const comm_backend_ops *ops = gpu ? between_gpus : size_of(l, of, o) == 1 ? &comm_cpu_ops : between_cpus;
    if (!ops) { /* the same on all ranks: they run the same build, and groups that open together have one size */
        snprintf(why, why_bytes, "%s",
                 gpu ? "built without NCCL, which carries data between GPUs (NCCL_HOME says where it is)"
                     : "built without Gloo, which carries data between CPUs; on Debian: apt-get install libgloo-dev");
        return NULL;
    }
    comm *c = xcalloc(1, sizeof *c);
    c->ops = ops;
    c->l = l;
    c->d = d;
    snprintf(c->name, sizeof c->name, "%s", o->name);
    snprintf(c->backend, sizeof c->backend, "%s", ops->name);
    set_members(c, of, o);
    c->sent = xcalloc((unsigned long)c->size, sizeof *c->sent);
    c->received = xcalloc((unsigned long)c->size, sizeof *c->received);
    c->on = launch_communicator(l, c->name, c->members[0], c->rank, c->size);
    const bool opened = ops->open(c, of, o, why, why_bytes);
    if (launch_all(l, "communicator", opened))
        return c;
    if (opened) {
        snprintf(why, why_bytes, "another rank could not open the communicator '%s'", c->name);
        ops->close(c);
    } else {
        warn("rank %d can't open the communicator '%s': %s", launch_rank(l), c->name, why);
    }
    drop(c);
    return NULL;
}

comm *comm_create(launch *l, device *d, const comm_options *o, char *why, size_t why_bytes)
{
    return create(l, d, NULL, o, why, why_bytes);
}

comm *comm_split(comm *of, const comm_options *o, char *why, size_t why_bytes)
{
    return create(of->l, of->d, of, o, why, why_bytes);
}

bool comm_open_axes(launch *l, device *d, comm *of, mesh m, unsigned axes, const comm_options *o, comm **out, char *why,
                    size_t why_bytes)
{
    const int rank = launch_rank(l);
    *out = NULL;
    if (mesh_group_size(m, axes) == 1)
        return true;
    mesh_group g = mesh_group_of(m, rank < mesh_world(m) ? rank : 0, axes);
    comm_options with = *o;
    with.members = g.ranks;
    with.ranks = g.count;
    *out = create(l, d, of, &with, why, why_bytes);
    mesh_group_free(&g);
    return *out;
}

void comm_destroy(comm *c)
{
    if (!c)
        return;
    c->ops->close(c);
    drop(c);
}

int comm_rank(const comm *c)
{
    return c ? c->rank : 0;
}
int comm_size(const comm *c)
{
    return c ? c->size : 1;
}
const char *comm_backend(const comm *c)
{
    return c ? c->backend : "none";
}

/* ---- ops ---- */

static const char *overlap_of(const comm *c, const comm_call *k)
{
    const size_t bytes = k->count * comm_dtype_bytes(k->t);
    const bool to_all = k->op == COMM_ALL_TO_ALL;
    const size_t send = to_all || k->op == COMM_REDUCE_SCATTER ? bytes * (size_t)c->size : bytes;
    const size_t recv = to_all || k->op == COMM_ALL_GATHER ? bytes * (size_t)c->size : bytes;
    const uintptr_t s = (uintptr_t)k->send, r = (uintptr_t)k->recv, shift = bytes * (size_t)c->rank;
    if (k->op == COMM_BARRIER || comm_pairwise(k->op) || (k->op == COMM_BROADCAST && c->rank != k->root) ||
        s + send <= r || r + recv <= s)
        return NULL;
    const bool in_place = k->op == COMM_REDUCE_SCATTER ? r == s + shift
                          : k->op == COMM_ALL_GATHER   ? s == r + shift
                                                       : s == r && !to_all;
    return in_place ? NULL : to_all ? "send and recv overlap" : "send and recv overlap without being in place";
}

/* The size of a message as rates count it: that of the whole vector. */
static double message_bytes(const comm *c, const comm_call *k)
{
    const double bytes = (double)k->count * (double)comm_dtype_bytes(k->t);
    const bool parts = k->op == COMM_REDUCE_SCATTER || k->op == COMM_ALL_GATHER || k->op == COMM_ALL_TO_ALL;
    return parts ? bytes * c->size : bytes;
}

/* Adds the op to the open group. False: it has none, or takes the op by itself. */
static bool join_group(comm *c, const comm_call *k, void *stream)
{
    const bool pairwise = comm_pairwise(k->op);
    if (!c->grouped || (!pairwise && device_kind_of(c->d) == DEVICE_CPU)) /* Gloo runs collectives one by one */
        return false;
    if (pairwise && c->group_pairwise && c->group_stream != stream)
        die(EXIT_CODE_FAILURE, "bug: a group of sends and receives on communicator '%s' has two streams", c->name);
    if (pairwise)
        c->group_stream = stream;
    c->group_op = pairwise && c->group_pairwise ? "send_recv" : comm_op_names[k->op];
    c->group_pairwise = c->group_pairwise || pairwise;
    *(k->op == COMM_RECV ? &c->group_received_bytes : &c->group_bytes) += message_bytes(c, k);
    return true;
}

static uint32_t next_tag(comm *c, const comm_call *k)
{
    return k->op == COMM_SEND ? c->sent[k->root]++ : k->op == COMM_RECV ? c->received[k->root]++ : c->tag++;
}

static void enqueue(comm *c, comm_call k, void *stream)
{
    if (!c) {
        if (k.count && !comm_pairwise(k.op) && k.send != k.recv)
            die(EXIT_CODE_FAILURE, "bug: %s of one rank that is not in place", comm_op_names[k.op]);
        return;
    }
    const bool rooted = k.op == COMM_BROADCAST || k.op == COMM_REDUCE;
    const bool pairwise = comm_pairwise(k.op);
    const bool reads = k.op != COMM_BARRIER && k.op != COMM_RECV && (k.op != COMM_BROADCAST || c->rank == k.root);
    const bool writes = k.op != COMM_SEND;
    const char *wrong = c->rank < 0                                                 ? "this rank is no member"
                        : (rooted || pairwise) && (k.root < 0 || k.root >= c->size) ? "the root or peer is no member"
                        : pairwise && k.root == c->rank                             ? "the peer is this rank itself"
                        : k.count && ((reads && !k.send) || (writes && !k.recv))    ? "a pointer is NULL"
                                                                                    : overlap_of(c, &k);
    if (wrong)
        die(EXIT_CODE_FAILURE, "bug: %s on communicator '%s': %s", comm_op_names[k.op], c->name, wrong);
    if (k.count == 0 && k.op != COMM_BARRIER)
        return;
    k.tag = next_tag(c, &k);
    k.number = launch_collective(c->l, &(launch_op){.on = c->on,
                                                    .name = c->name,
                                                    .op = comm_op_names[k.op],
                                                    .dtype = comm_dtype_name(k.t),
                                                    .count = k.count,
                                                    .peer = pairwise ? k.root : -1});
    if (join_group(c, &k, stream)) { /* it is launched at the end of the group, with the others */
        c->ops->enqueue(c, &k, stream);
        return;
    }
    const record_work work = {.op = comm_op_names[k.op], .bytes = message_bytes(c, &k), .elsewhere = true};
    op_push(work.op, &work);
    c->ops->enqueue(c, &k, stream);
    op_pop();
}

void comm_all_reduce(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r, void *stream)
{
    enqueue(c, (comm_call){.op = COMM_ALL_REDUCE, .send = send, .recv = recv, .count = count, .t = t, .r = r}, stream);
}

void comm_reduce_scatter(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r,
                         void *stream)
{
    enqueue(c, (comm_call){.op = COMM_REDUCE_SCATTER, .send = send, .recv = recv, .count = count, .t = t, .r = r},
            stream);
}

void comm_all_gather(comm *c, const void *send, void *recv, size_t count, comm_dtype t, void *stream)
{
    enqueue(c, (comm_call){.op = COMM_ALL_GATHER, .send = send, .recv = recv, .count = count, .t = t}, stream);
}

void comm_broadcast(comm *c, const void *send, void *recv, size_t count, comm_dtype t, int root, void *stream)
{
    enqueue(c, (comm_call){.op = COMM_BROADCAST, .send = send, .recv = recv, .count = count, .t = t, .root = root},
            stream);
}

void comm_reduce(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r, int root,
                 void *stream)
{
    enqueue(c, (comm_call){.op = COMM_REDUCE, .send = send, .recv = recv, .count = count, .t = t, .r = r, .root = root},
            stream);
}

void comm_all_to_all(comm *c, const void *send, void *recv, size_t count, comm_dtype t, void *stream)
{
    enqueue(c, (comm_call){.op = COMM_ALL_TO_ALL, .send = send, .recv = recv, .count = count, .t = t}, stream);
}

void comm_send(comm *c, const void *send, size_t count, comm_dtype t, int to, void *stream)
{
    enqueue(c, (comm_call){.op = COMM_SEND, .send = send, .count = count, .t = t, .root = to}, stream);
}

void comm_recv(comm *c, void *recv, size_t count, comm_dtype t, int from, void *stream)
{
    enqueue(c, (comm_call){.op = COMM_RECV, .recv = recv, .count = count, .t = t, .root = from}, stream);
}

void comm_barrier(comm *c, void *stream)
{
    enqueue(c, (comm_call){.op = COMM_BARRIER}, stream);
}

void comm_group_begin(comm *c)
{
    if (!c)
        return;
    if (c->grouped)
        die(EXIT_CODE_FAILURE, "bug: a group of ops on communicator '%s' is begun twice", c->name);
    c->grouped = true;
    c->group_op = "group";
    c->group_bytes = c->group_received_bytes = 0;
    c->group_pairwise = false;
    c->group_stream = NULL;
    c->ops->group(c, true);
}

void comm_group_end(comm *c)
{
    if (!c)
        return;
    if (!c->grouped)
        die(EXIT_CODE_FAILURE, "bug: a group of ops on communicator '%s' is ended and was not begun", c->name);
    const double bytes = c->group_bytes > c->group_received_bytes ? c->group_bytes : c->group_received_bytes;
    const record_work work = {.op = c->group_op, .bytes = bytes, .elsewhere = true};
    c->grouped = false;
    op_push(work.op, &work);
    c->ops->group(c, false);
    op_pop();
}
