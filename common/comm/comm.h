/* SPDX-License-Identifier: MIT */
/* Collectives between ranks on a stream, sends and receives: NCCL between GPUs, Gloo between CPUs. An op is enqueued and
 * returns at once; what the stream runs after it sees its result. Streams are those of the device (NULL on the CPU: the
 * calling thread runs the op itself). Collectives of one communicator must be enqueued in the same order, with the same
 * arguments, on all its ranks; sends and receives of two members in the same order on both.
 *
 * A wrong argument is a bug and dies. An op that fails (a peer has died, the library reports an error) ends the job, see
 * launch/launch.h; so the ops return nothing. Sums of fp32, bf16 and fp16 round after each addition, in the same order in every
 * run; those of two ranks do not depend on the order at all. Every rank gets the same bits. */
#pragma once

#include "common/launch/launch.h"
#include "common/mesh/mesh.h"

#ifdef __cplusplus
extern "C" {
#else
#include "common/device/device.h"
#endif

typedef enum comm_dtype { COMM_FP32, COMM_BF16, COMM_FP16, COMM_INT32 } comm_dtype;
typedef enum comm_reduction { COMM_SUM, COMM_MAX } comm_reduction;
size_t comm_dtype_bytes(comm_dtype t);
const char *comm_dtype_name(comm_dtype t); /* "fp32" */

/* NULL is a group of one rank: its rank is 0, its size 1, and every op returns at once. Such ops must be in place, as nothing
 * is copied. */
typedef struct comm comm;

#ifndef __cplusplus
typedef struct comm_options {
    const char *name; /* for messages: "grads" */
    /* So many ranks of the job, in the order of their ranks here; NULL: the first `ranks`, 0: all. Several groups open
     * together: each rank gives its own, and one that is not in the list it gives is no member. */
    const int *members;
    int ranks;
    int max_ctas; /* of NCCL: thread blocks a collective may take; 0: NCCL decides */
    /* All pairs of members are connected at once. Else NCCL connects a pair at its first send and receive, in which the
     * host then waits for the other one. */
    bool pairs;
} comm_options;

/* Every rank of the job calls these together, members or not. NULL on all of them, with a sentence in why, when the
 * backend is not in this build or not available. The backend is that of the device; a CPU rank that is alone needs none. */
comm *comm_create(launch *l, device *d, const comm_options *o, char *why, size_t why_bytes);
/* Another communicator, whose ops overlap with those of the first: of the same members (ranks is 0), or of groups of them. */
comm *comm_split(comm *of, const comm_options *o, char *why, size_t why_bytes);
/* The communicators of the groups of a mesh, by a set of axes (MESH_FSDP); members and ranks of o are not read. The mesh's
 * ranks are the first of the job, others are no members. By comm_split of `of`, unless that is NULL. *out is NULL where
 * groups have one rank. False with a sentence, as comm_create. */
bool comm_open_axes(launch *l, device *d, comm *of, mesh m, unsigned axes, const comm_options *o, comm **out, char *why,
                    size_t why_bytes);
/* Waits for the ops that are enqueued. Members call it together. */
void comm_destroy(comm *c);
#endif

int comm_rank(const comm *c);            /* -1: this rank is no member, and must enqueue nothing */
int comm_size(const comm *c);            /* members */
const char *comm_backend(const comm *c); /* "nccl 2.28.3" */

/* Counts are elements, never bytes. In place means that send is where recv says. */
void comm_all_reduce(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r,
                     void *stream); /* in place: send == recv */
/* send: (size, count), recv: (count), the sum of slice `rank`. In place: recv == send + rank * count. */
void comm_reduce_scatter(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r,
                         void *stream);
/* send: (count), recv: (size, count). In place: send == recv + rank * count. */
void comm_all_gather(comm *c, const void *send, void *recv, size_t count, comm_dtype t, void *stream);
/* send is read at the root alone. In place: send == recv. */
void comm_broadcast(comm *c, const void *send, void *recv, size_t count, comm_dtype t, int root, void *stream);
/* recv: (count), at the root the sum; elsewhere what it held is lost. In place: send == recv. */
void comm_reduce(comm *c, const void *send, void *recv, size_t count, comm_dtype t, comm_reduction r, int root,
                 void *stream);
/* send, recv: (size, count): slice i goes to rank i, and slice i of recv comes from it. Never in place. */
void comm_all_to_all(comm *c, const void *send, void *recv, size_t count, comm_dtype t, void *stream);
/* To and from one other member, which enqueues the counterpart with the same count and dtype. A send may wait for its
 * receive, and NCCL runs the ops of a communicator in their order, on whatever streams: so two members exchange between
 * comm_group_begin and _end, or on a communicator for each direction. */
void comm_send(comm *c, const void *send, size_t count, comm_dtype t, int to, void *stream);
void comm_recv(comm *c, void *recv, size_t count, comm_dtype t, int from, void *stream);
/* What a member enqueues after it runs after what all of them enqueued before it. */
void comm_barrier(comm *c, void *stream);
/* Ops between these are one launch, where the backend can: their results are there after the end. Not nested. Sends and
 * receives of a group go on at the same time, in whatever order they stand; they have one stream. */
void comm_group_begin(comm *c);
void comm_group_end(comm *c);

#ifdef __cplusplus
}
#endif
