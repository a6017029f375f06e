/* SPDX-License-Identifier: MIT */
/* Data parallelism of a training step: which gradients are sent when, who updates which parameters, and what waits
 * for what. A strategy is a row of a table (strategy.h). What follows from its columns is in plan.c (buckets),
 * collectives.c (calls) and parallel.c (schedule). None of them knows a transformer: a model is an index space, arenas
 * over it, a compute stream and a way to update a range. The same code runs on GPUs over NCCL and on CPU threads over
 * Gloo.
 *
 * One host thread per rank enqueues everything, in an order that follows from the options alone; every edge between two
 * streams is one event, and nobody waits on the host. In one step the model calls
 *
 *   parallel_begin_batch                            before its first op
 *   parallel_need(range)                            before the first op of forward that reads these parameters
 *   parallel_ready(range, stream)                   after the op that makes these gradients final, in index order, without
 *                                                   gaps but for padding
 *   parallel_update                                 after the last op of backward
 *
 * and where a rank holds slices of units, number i of which is bucket i,
 *
 *   parallel_gather(unit, to), parallel_await(unit)    before the first op that reads its parameters, there
 *   parallel_grads(unit, from), parallel_reduced(unit) before its gradients are made, and before their memory has another use
 *
 * A fused update sums the gradients of a slice, updates it and shares it, in the memory of all ranks: on GPUs of one host in
 * one kernel; on CPUs by a reduce-scatter, an update and an all-gather, one behind the other.
 *
 * Gradients are summed, not averaged: the model scales its loss by 1/ranks (step_options.ranks). */
#pragma once

#include "common/device/device.h"
#include "common/parallel/buckets.h"
#include "common/comm/comm.h"
#include "common/parallel/strategy.h"

enum {
    PARALLEL_PEERS_MAX = 8,     /* ranks of a fused strategy on GPUs */
    PARALLEL_FUSED_BLOCKS = 128 /* of 256 threads: enough for the link, on a quarter of an H200 */
};

/* When AdamW runs on the summed gradients. */
typedef enum update_order {
    UPDATE_AFTER,   /* once, over everything, when the last collective is over (what a framework does) */
    UPDATE_BUCKETS, /* after backward, range by range as their collectives are over */
    UPDATE_BACKWARD /* likewise, already while backward goes on, on a stream of its own; as UPDATE_BUCKETS where nothing
                     * is summed during backward, and where updates run on the calling thread */
} update_order;
#define UPDATE_CHOICES "after|buckets|backward"
update_order update_order_parse(const char *name);

/* How units are gathered where that is before each use: by a collective; or each rank reads the slices of the others,
 * which change in an update alone, so that one barrier a step is all that ranks need between them. */
typedef enum gather_way {
    GATHER_COLLECTIVE,
    GATHER_COPY,  /* copies from memory of other GPUs, which copy engines do */
    GATHER_KERNEL /* a kernel that loads from there */
} gather_way;
#define GATHER_CHOICES "nccl|copy|own"
gather_way gather_way_parse(const char *name);

typedef struct parallel_options {
    const char *strategy; /* a name of parallel_strategies */
    int ranks;            /* of the job's first ranks; the others are not members and get no parallel */
    /* Ranks of the job that share the model in other ways, too: those that differ only on MESH_DATA are the `ranks` of one
     * strategy, of which there are several side by side, and dp_replicate is `replicas`. All zero: ranks are the job's. */
    mesh m;
    int64_t bucket_bytes; /* of gradients; for the strategies with buckets */
    update_order update;
    int update_blocks; /* AdamW beside backward: thread blocks it may use; 0: no limit, or for a fused update
                        * PARALLEL_FUSED_BLOCKS */
    int max_ctas;      /* of NCCL; 0: NCCL decides */
    int micro_batches; /* of a step, whose reduced slices are added up; 0 or 1: one */
    gather_way gather; /* with SHARE_ON_USE */
    /* Slices of gradients, by a collective, or copy engines put them into the memory of who adds them up: GATHER_COPY. */
    gather_way reduce;
    int replicas; /* of REDUCE_HYBRID: groups of neighbouring ranks that each have a model in slices; else 1 or 0 */
    /* All-gathers of parameters end with parallel_update, instead of under the next forward. A step that is captured as
     * a CUDA graph needs it: a graph can't wait for what an earlier one has left under way. */
    bool join;
    /* With buckets and backward: buckets are joined until an update has at least this many elements; 0: 16 Mi. Slices
     * (zero1) are updated bucket by bucket. */
    int64_t update_elements;
} parallel_options;

/* What a strategy is asked before a model exists: how it cuts the index space and how much optimizer state a rank
 * holds. */
typedef struct parallel_plan {
    parallel_options o;
    const strategy *s;
    mesh m;           /* all ranks that are members */
    int rank;         /* among those of the strategy; o.ranks: no member */
    int64_t elements; /* of the index space */
    int64_t *starts;  /* (tensors + 1), a copy */
    int tensors;
    buckets b;           /* the collectives of a step, in the order in which they are enqueued */
    ownership own;       /* what this rank updates */
    int slices, slice;   /* into how many equal ones a group of gradients is cut, and which is this rank's */
    int whole;           /* this many of the last buckets are not cut: every rank updates them */
    bool sharded;        /* the state is only this rank's part */
    owned_range *normed; /* (norms) whose norms this rank gives to that of all gradients */
    int norms;
    int64_t gathered_bytes; /* in a step; with SHARE_ON_USE, as the model says */
} parallel_plan;

/* NULL with a sentence in why if the strategy cannot be used so. grad_bytes: of one gradient element. `rank` is that of the
 * job; one that is no member owns nothing. */
parallel_plan *parallel_plan_create(const parallel_options *o, int rank, const index_space *s, int grad_bytes,
                                    char *why, size_t why_bytes);
void parallel_plan_free(parallel_plan *p);
/* The ranks of the job that differ on these axes from `rank`; from the first one, if that is no member. */
mesh_group parallel_plan_group(const parallel_plan *p, int rank, unsigned axes);
int64_t parallel_plan_whole(const parallel_plan *p); /* elements of those buckets */
/* The index space must be a multiple of this for `ranks` ranks. */
int64_t parallel_granularity(int ranks);

/* A fused update on GPUs: this rank's slice of a bucket. */
typedef struct parallel_fused_update {
    int64_t first, count, state_first; /* as of an update */
    int max_blocks;
    int rank, ranks;                                              /* 1 in a compute-only step */
    void *grads[PARALLEL_PEERS_MAX], *params[PARALLEL_PEERS_MAX]; /* the slice on each rank, as mapped here */
    bool sums_only; /* gradients of the slice become their sums, and parameters are sent as they are */
} parallel_fused_update;

/* What a strategy may do with a model. Pointers are to device memory, over the index space; where gradients or
 * parameters are no longer whole (strategy.h), over the slices that this rank owns, as its state is. */
typedef struct parallel_model {
    device *d;
    /* The stream of forward and backward: device_stream(d). On the CPU that is NULL, the calling thread, and the
     * updates below run at once, when what they wait for is there; or it is a stream, and they enqueue as on a
     * GPU. */
    void *main;
    void *grad;
    comm_dtype grad_dtype;
    void *param;
    comm_dtype param_dtype;
    /* The parameters of each member as they are reached here, for GATHER_COPY; NULL: parallel_create opens memory of
     * GPUs. */
    void *const *peers;
    /* Likewise the memory in which each member receives gradients for sums by copies: of two units, a slice of each rank, as
     * large as the largest one. */
    void *const *received;
    /* What a step gathers of units [codes_first, codes_end) in place of parameters: a byte for each, one slice of a unit behind
     * the other. NULL: nothing. */
    const void *codes;
    int codes_first, codes_end;
    void *scratch; /* with units: as large as the largest one's parameters or gradients; unused between steps */
    void *user;
    /* A new update begins; then AdamW on [first, first + count), whose state starts at state_first of the state arenas.
     * Both enqueue on `stream`, with at most max_blocks thread blocks (0: no limit). */
    void (*update_begin)(void *user, void *stream);
    void (*update)(void *user, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream);
    /* A fused strategy on GPUs calls this in place of update: sum, AdamW and the stores to all ranks. Enqueues on
     * `stream`. */
    void (*fused_update)(void *user, const parallel_fused_update *x, void *stream);
    /* to += from, n gradients; on `stream`. Where slices of several micro-batches are added up. */
    void (*add)(void *user, void *to, const void *from, int64_t n, void *stream);
    /* to = from, n gradients as the model makes them, which are not of grad_dtype then; on `stream`. Where slices are
     * reduced; NULL: they are. */
    void (*cast)(void *user, void *to, const void *from, int64_t n, void *stream);
    /* Where the model wants statistics over all gradients and ranks hold different ones, whose update comes after all sums
     * then: the norm of a range goes to *norm in device memory, and before update_begin the model gets those of all. NULL:
     * it wants none. */
    void (*norm)(void *user, int64_t first, int64_t count, int64_t state_first, float *norm, void *stream);
    void (*norms)(void *user, const float *norms, int n, void *stream);
    /* UPDATE_AFTER, not sharded: all at once on main, with statistics over all gradients where the model wants them;
     * NULL: update_begin and update are called instead. */
    void (*update_all)(void *user);
} parallel_model;

typedef struct parallel parallel;

/* Every rank of the job calls these together, members or not; only members get a parallel (NULL and why on all if it
 * cannot be made; NULL and an empty why on those that are no members, which need only m->d). It takes the plan's
 * contents as they are: the plan must live as long. Parameters become those of rank 0 (parallel_sync does it again). */
parallel *parallel_create(launch *l, const parallel_plan *plan, const parallel_model *m, char *why, size_t why_bytes);
void parallel_free(parallel *p);
void parallel_sync(parallel *p);
const char *parallel_backend(const parallel *p); /* as comm_backend */

void *parallel_user(const parallel *p); /* the model's */
/* The functions from here to parallel_reduced, but for parallel_gather_now, are the hooks of a trainer (step_hooks), which know
 * the parallel as void *. */
/* Each micro-batch of a step of several begins so; parallel_update follows the last one. Where gradients are
 * whole, only the last one tells which are ready. */
void parallel_begin_batch(void *p, bool first, bool last);
/* `stream` is main, or one that follows it in this step. */
void parallel_need(void *p, int64_t first, int64_t count, void *stream);
void parallel_ready(void *p, int64_t first, int64_t count, void *stream);
void parallel_update(void *p);
/* The parameters of a unit, or its codes, go to `to`, behind what main has by now; main waits for them. */
void parallel_gather(void *p, int unit, void *to);
void parallel_await(void *p, int unit);
/* Before the first gather of a step: `all` gets the largest of all ranks' words, as integers; main waits for it. */
void parallel_agree(void *p, const void *own, void *all, size_t words);
/* A unit's parameters, like parallel_gather and parallel_await, but between steps, whether communication is on or not. Members call it
 * together. */
void parallel_gather_now(parallel *p, int unit, void *to);
/* A unit's gradients will lie at `from`; main waits until they have been read there. */
void parallel_grads(void *p, int unit, void *from);
void parallel_reduced(void *p, int unit);
/* main waits for what is still in flight (all-gathers that the next forward would hide). */
void parallel_join(parallel *p);

/* Off: later steps are compute-only: the same host path, streams, events and updates, without collectives. It
 * is on at first. */
void parallel_communicate(parallel *p, bool on);
/* The collectives of a step back to back, with no compute beside them; main waits for them. They work in place on what
 * the arenas hold (gradients are summed again, parameters stay), also when it is off. */
void parallel_collectives_alone(parallel *p);
/* Bytes this rank sends per step by the ring's count: all-reduce 2(n-1)/n, reduce-scatter and all-gather (n-1)/n, and
 * so do broadcasts by all ranks in turn, on average. */
double parallel_wire_bytes(const parallel_plan *p, int grad_bytes, int param_bytes);

typedef enum wait_kind { WAIT_TAIL, WAIT_GATHER, WAIT_REDUCED } wait_kind;
/* Time that main stood still for communication in the last step: from the end of backward to the end of
 * parallel_update, only the waits (tail); for units to be gathered; for memory of gradients to be read (reduced).
 * Events are recorded only when on, and tell no time in a captured step. Waits for the step. */
void parallel_instrument(parallel *p, bool on);
double parallel_waits_ms(parallel *p, wait_kind kind);
