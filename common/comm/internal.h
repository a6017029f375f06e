/* SPDX-License-Identifier: MIT */
/* What a backend of comm.h fills in. No file outside this folder includes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum comm_op {
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_BROADCAST,
    COMM_REDUCE,
    COMM_ALL_TO_ALL,
    COMM_BARRIER,
    COMM_SEND,
    COMM_RECV
} comm_op;

typedef struct comm_call {
    comm_op op;
    const void *send;
    void *recv;
    size_t count; /* as in comm.h */
    comm_dtype t;
    comm_reduction r;
    int root;             /* of a send or receive: the other member */
    launch_number number; /* for messages and the coordinator */
    uint32_t tag;         /* of the communicator: the same on all its ranks; of a pair: the same on both */
} comm_call;

extern const char *const comm_op_names[];

static inline bool comm_pairwise(comm_op op)
{
    return op == COMM_SEND || op == COMM_RECV;
}

#ifndef __cplusplus
typedef struct comm_backend_ops {
    const char *name;
    /* All ranks of the job together; c->rank is -1 on those that are no members. `of` is NULL, or the communicator that
     * has the same members. False with a sentence. */
    bool (*open)(comm *c, comm *of, const comm_options *o, char *why, size_t why_bytes);
    void (*close)(comm *c);
    void (*enqueue)(comm *c, const comm_call *call, void *stream);
    void (*group)(comm *c, bool begin);
} comm_backend_ops;

struct comm {
    const comm_backend_ops *ops;
    launch *l;
    device *d;
    int rank, size;
    int *members; /* [size] of the job; a rank that is no member has a group of others */
    char name[32], backend[32];
    int on; /* as the coordinator knows it */
    uint32_t tag;
    uint32_t *sent, *received; /* [size] tags of the next op with each member */
    void *state;               /* the backend's */
    bool grouped;              /* a group is open: what it has so far, and the stream of its sends and receives */
    const char *group_op;
    double group_bytes, group_received_bytes;
    bool group_pairwise;
    void *group_stream;
};

extern const comm_backend_ops comm_cpu_ops;
extern const comm_backend_ops comm_nccl_ops;
#endif

/* ---- Gloo's C face; without Gloo gloo_absent.c stands in for it ---- */

typedef struct gloo_link gloo_link;
/* NULL with a sentence. Exchanges addresses by launch_gather: ranks that are no members call gloo_link_idle. `group`: a
 * number that differs between groups which open together. */
gloo_link *gloo_link_open(launch *l, int group, int rank, int size, char *why, size_t why_bytes);
void gloo_link_idle(launch *l);
void gloo_link_close(gloo_link *g);
/* Runs the op and returns when it is done here; false with a sentence. Several threads may run different tags at once.
 * After a failure the link and the buffers may still be in use: end the process. */
bool gloo_link_run(gloo_link *g, const comm_call *call, char *why, size_t why_bytes);
/* Runs sends and receives, all at once, as above. */
bool gloo_link_exchange(gloo_link *g, const comm_call *calls, int n, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
