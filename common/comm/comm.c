/* SPDX-License-Identifier: MIT */
/* The front of the communicators: checks, numbers and names each op, and hands it to the backend; see comm.h. */
#include "common/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static const comm_backend_ops *const between_cpus = &comm_gloo_ops;
#else
static const comm_backend_ops *const between_cpus = NULL;
#endif

static comm *create(launch *l, device *d, comm *of, const comm_options *o, char *why, size_t why_bytes)
{
    const int members = o->ranks ? o->ranks : launch_size(l), rank = launch_rank(l) - o->first;
    const int groups = o->groups ? o->groups : 1, size = members / groups;
    if (members < 1 || o->first < 0 || o->first + members > launch_size(l))
        die(EXIT_CODE_FAILURE, "bug: a communicator of ranks %d to %d of %d", o->first, o->first + members - 1,
            launch_size(l));
    if (members % groups || (groups > 1 && (!of || of->groups > 1)))
        die(EXIT_CODE_FAILURE, "bug: %d ranks make no %d communicators", members, groups);
    why[0] = 0;
    const bool gpu = device_kind_of(d) == DEVICE_CUDA;
    const comm_backend_ops *ops = gpu ? between_gpus : between_cpus;
    if (!ops) { /* the same on all ranks: they run the same build */
        snprintf(why, why_bytes, "%s",
                 gpu ? "built without NCCL, which carries data between GPUs (NCCL_HOME says where it is)"
                     : "built without Gloo, which carries data between CPUs; on Debian: apt-get install libgloo-dev");
        return NULL;
    }
    comm *c = xcalloc(1, sizeof *c);
    c->ops = ops;
    c->l = l;
    c->d = d;
    c->first = o->first;
    c->size = size;
    c->groups = groups;
    c->group = o->strided ? rank % groups : rank / size;
    c->rank = rank < 0 || rank >= members ? -1 : o->strided ? rank / groups : rank % size;
    snprintf(c->name, sizeof c->name, "%s", o->name);
    snprintf(c->backend, sizeof c->backend, "%s", ops->name);
    const bool opened = ops->open(c, of, o, why, why_bytes);
    if (launch_all(l, "communicator", opened))
        return c;
    if (opened) {
        snprintf(why, why_bytes, "another rank could not open the communicator '%s'", c->name);
        ops->close(c);
    } else {
        warn("rank %d can't open the communicator '%s': %s", launch_rank(l), c->name, why);
    }
    free(c);
    return NULL;
}

comm *comm_create(launch *l, device *d, const comm_options *o, char *why, size_t why_bytes)
{
    return create(l, d, NULL, o, why, why_bytes);
}

comm *comm_split(comm *of, const comm_options *o, char *why, size_t why_bytes)
{
    comm_options same = *o;
    same.first = of->first;
    same.ranks = of->size;
    return create(of->l, of->d, of, &same, why, why_bytes);
}

void comm_destroy(comm *c)
{
    if (!c)
        return;
    c->ops->close(c);
    free(c);
}

int comm_rank(const comm *c)
{
    return c->rank;
}
int comm_size(const comm *c)
{
    return c->size;
}
const char *comm_backend(const comm *c)
{
    return c->backend;
}

/* ---- ops ---- */

static const char *overlap_of(const comm *c, const comm_call *k)
{
    const size_t bytes = k->count * comm_dtype_bytes(k->t);
    const bool to_all = k->op == COMM_ALL_TO_ALL;
    const size_t send = to_all || k->op == COMM_REDUCE_SCATTER ? bytes * (size_t)c->size : bytes;
    const size_t recv = to_all || k->op == COMM_ALL_GATHER ? bytes * (size_t)c->size : bytes;
    const uintptr_t s = (uintptr_t)k->send, r = (uintptr_t)k->recv, shift = bytes * (size_t)c->rank;
    if (k->op == COMM_BARRIER || (k->op == COMM_BROADCAST && c->rank != k->root) || s + send <= r || r + recv <= s)
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

static void enqueue(comm *c, comm_call k, void *stream)
{
    const bool rooted = k.op == COMM_BROADCAST || k.op == COMM_REDUCE;
    const bool reads = k.op != COMM_BARRIER && (k.op != COMM_BROADCAST || c->rank == k.root);
    const char *wrong = c->rank < 0                                   ? "this rank is no member"
                        : rooted && (k.root < 0 || k.root >= c->size) ? "the root is no member"
                        : k.count && ((reads && !k.send) || !k.recv)  ? "a pointer is NULL"
                                                                      : overlap_of(c, &k);
    if (wrong)
        die(EXIT_CODE_FAILURE, "bug: %s on communicator '%s': %s", comm_op_names[k.op], c->name, wrong);
    if (k.count == 0 && k.op != COMM_BARRIER)
        return;
    k.tag = c->tag++;
    k.number = launch_collective(c->l, comm_op_names[k.op], k.count, comm_dtype_name(k.t), c->name);
    if (c->grouped) { /* one kernel carries them all, and is launched at the end of the group */
        c->group_op = comm_op_names[k.op];
        c->group_bytes += message_bytes(c, &k);
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

void comm_barrier(comm *c, void *stream)
{
    enqueue(c, (comm_call){.op = COMM_BARRIER}, stream);
}

void comm_group_begin(comm *c)
{
    c->grouped = device_kind_of(c->d) == DEVICE_CUDA; /* Gloo runs them one by one */
    c->group_op = "group";
    c->group_bytes = 0;
    c->ops->group(c, true);
}
void comm_group_end(comm *c)
{
    const record_work work = {.op = c->group_op, .bytes = c->group_bytes, .elsewhere = true};
    c->grouped = false;
    op_push(work.op, &work);
    c->ops->group(c, false);
    op_pop();
}
