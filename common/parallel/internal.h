/* SPDX-License-Identifier: MIT */
/* The state of a step in flight, shared by the files of this folder; no other file includes it.
 *
 * A step is: buckets get ready; their collectives run on the communication stream, as they get ready or after backward;
 * ranges of neighbouring buckets are updated, each behind its last collective; what a rank has updated is shared. */
#pragma once

#include "common/comm/peer.h"
#include "common/parallel/parallel.h"

enum { PRODUCERS = 8 /* streams that may make the gradients of one step */ };

/* The streams that made something, without duplicates. */
typedef struct producers {
    void *stream[PRODUCERS];
    int n;
} producers;

typedef struct bucket_edges {
    device_event *gathered; /* all-gather -> who reads or updates these parameters */
    bool awaited;           /* by main, in the last all-gather */
    /* Where buckets are units: */
    device_event *reduced; /* reduce-scatter -> who uses the memory of its gradients */
    void *grads;           /* where they lie in this step */
    int gathers;           /* in this step */
} bucket_edges;

typedef struct update_range { /* neighbouring buckets, updated together */
    int first, count;         /* buckets */
    int64_t from, to;         /* elements */
    int owned;                /* the first owned range that does not end before it */
    producers made_by;
    device_event *done; /* last collective -> update */
} update_range;

typedef struct wait_times { /* of main */
    wait_kind kind;
    device_event *from, *to;
} wait_times;

struct parallel {
    const parallel_plan *plan;
    const strategy *s;
    parallel_model m;
    launch *l;
    update_order order; /* in use */
    comm *all;          /* of REDUCE_HYBRID: all members; the others are of one replica, or of a slice's owners */
    comm *reduce_comm, *gather_comm, *replica_comm; /* sums of gradients, gathers, sums between replicas */
    comm *norm_comm, *model_comm; /* who adds up norms; NULL: nobody else. model_comm is that, if it is no other one */
    void *reduce_stream, *gather_stream, *replica_stream;
    void *update_stream; /* of UPDATE_BACKWARD, else NULL */
    void *copy;
    void *produced_grads; /* a unit's gradients in the dtype of their sums, where they are made in another */
    void *batch_sum;      /* a slice of one micro-batch that is to be added to those before it */
    peers *gates;         /* of a fused strategy on several GPUs, else NULL, as: */
    peer_memory *all_grads, *all_params; /* arenas of all ranks */
    float *norms, *all_norms;            /* of this rank's ranges, and of all ranks'; device memory */
    int most_norms;                      /* that a rank has; others' are 0 */
    bool communicating;
    bool timing_alone;   /* collectives alone: what they send is there */
    peer_memory *memory; /* of other GPUs; NULL: nobody reads it */
    peer_memory *code_memory;
    void *const *peers; /* parameters of each member, to be read from here; NULL: they are gathered by collectives */
    void *const *code_peers; /* likewise codes */
    void *own_received;      /* what lies at received[this rank], where it was not given */
    peer_memory *received_memory;
    void *const *received; /* of each member; NULL: sums are collectives */
    int64_t most_received; /* elements of the largest slice */
    unsigned sums;         /* of this step, begun */
    bool ranks_updated;    /* all members have, behind the last update: what peers have may be read */
    bool gathering;        /* all-gathers may be under way that main has not waited for */

    bucket_edges *edges; /* of each bucket */
    update_range *ranges;
    int range_count;
    /* What main waits for in a step: of a fused update the gate; parameters that are shared; norms; numbers that ranks agree on. */
    device_event *opened, *shared, *normed, *agreed, *meeting;

    bool first_batch, last_batch; /* of the step */

    /* of this step, or micro-batch */
    int64_t ready_to; /* elements */
    int closed;       /* buckets that are ready */
    int ranges_closed, ranges_updated;
    bool update_begun;
    producers open; /* of what is ready and not in a closed bucket */

    bool instrumented, timing; /* timing: within parallel_update */
    wait_times *waits;
    int wait_count, wait_room;
};

/* The stream on which the sums of a group are complete. */
static inline void *parallel_sums_stream(const parallel *p)
{
    return p->replica_stream ? p->replica_stream : p->reduce_stream;
}

static inline void *parallel_at(void *arena, comm_dtype t, int64_t element)
{
    return (char *)arena + (size_t)element * comm_dtype_bytes(t);
}

/* edges.c. The event is made by its first record. */
void parallel_record(parallel *p, void *stream, device_event **edge);
/* The host waits until all ranks of c are over with what this stream of each has by now. */
void parallel_meet(parallel *p, comm *c, void *stream);
/* Main waits for e; waits of the kind WAIT_TAIL count within parallel_update. */
void parallel_main_waits(parallel *p, device_event *e, wait_kind kind);

/* fused.c: fused updates of slices in the memory of all ranks; see strategy_fused. */
bool parallel_fused_open(parallel *p, char *why, size_t why_bytes); /* all ranks of the job together */
void parallel_fused_close(parallel *p);                             /* members together */
/* p->reduce_stream goes on once every rank has finished what its own reduce_stream has by now. */
void parallel_fused_gate(parallel *p);
void parallel_fused_bucket(parallel *p, int bucket, bool sums_only, int max_blocks, void *stream);
/* Main waits until all ranks are over with what `stream` has by now. */
void parallel_fused_end(parallel *p, void *stream);

/* collectives.c: communication as the strategy's row says. */
void parallel_reduce(parallel *p, int first, int count);     /* the collectives of these buckets, on p->reduce_stream */
void parallel_pack(parallel *p);                             /* on main, after backward */
void parallel_unpack(parallel *p, int64_t from, int64_t to); /* on main: tensors that start in [from, to) are summed */
void parallel_norms(parallel *p);                            /* on main, when all sums are there */
void parallel_gather_params(parallel *p, int unit, void *to); /* a unit, as parallel_gather */
void parallel_share(parallel *p);                             /* the parameters, when main has waited for all updates */
