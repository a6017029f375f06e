/* SPDX-License-Identifier: MIT */
/* A model on every rank of a job with a strategy of parallel/parallel.h: made, its products tuned alike, stepped, freed.
 * It knows no bench: neither a case nor a row. A bench on one process has one, too: without a launch, alone.
 *
 * Every rank of the job calls every function here together, unless it says otherwise. Ranks that are no members (of a case
 * with fewer ranks than the job) have a replica, too: it takes part in exchanges, and its steps do nothing.
 *
 * Algorithms of matrix products are timed alone, on rank 0, and all ranks take its choice. No race of whole steps runs
 * with more than one rank: trainer_tune races only what it captures itself (FUSION_GRAPH, OVERLAP_AUTO), while a step
 * with collectives is captured by replica_capture; replica_create refuses those two. A race on one rank would measure a
 * step without its communication, and leave the others waiting. A collective race would be blocks of replica_step on all
 * ranks, and the slowest rank's time would decide. */
#ifndef STEPBENCH_REPLICA_REPLICA_H
#define STEPBENCH_REPLICA_REPLICA_H

#include "common/core/cache.h"
#include "common/launch/launch.h"
#include "common/parallel/parallel.h"
#include "common/train/trainer.h"

/* Where a replica lives. */
typedef struct replica_place {
    launch *l; /* NULL: this process alone, with ranks = 1 and no strategy */
    device *d;
    memory *mem;
    const sb_kernels *kernels;
    sb_context *ctx;
    cache *kept;    /* choices of algorithms, from one replica to the next */
    choices *known; /* of rank 0, which chooses and adds to it; NULL: nothing is known */
} replica_place;

typedef struct replica {
    replica_place at;
    bool member;
    trainer_options o;
    parallel_plan *plan;
    trainer *t; /* these two of members alone */
    parallel *p;
    device_graph *graphs[2]; /* of a step without communication, and with; NULL: it is launched op by op */
    bool communicating;
    bool hold; /* updates are left out of the steps from here on */
    /* Called before gradients [first, first + count) are given to the strategy; for checks that plant an error. */
    void (*tamper)(struct replica *r, int64_t first, int64_t count, void *stream);
    void *user; /* of tamper */
} replica;

/* Why something failed, the same on every rank. */
typedef struct replica_problem {
    bool no_memory;
    char text[512];
} replica_problem;

/* True on every rank when it is `ok` on every rank; else the sentence of the first rank that says no: `why`, or what its
 * memory could not give. */
bool replica_agree(const replica_place *at, const char *name, bool ok, const char *why, replica_problem *problem);

/* The model of `o`, of which ranks, granularity and state are set here, with the strategy of `p`. NULL with a problem.
 * Tokens are random: replica_set_tokens. */
replica *replica_create(const replica_place *at, const trainer_options *o, const parallel_options *p,
                        replica_problem *problem);
void replica_free(replica *r); /* NULL is fine */

/* ---- steps; of this rank alone, nothing waits for the others ---- */

/* Enqueues a step. The job ends when it can't be. */
void replica_step(replica *r);
void replica_settle(replica *r);               /* waits until all that is under way is done */
void replica_communicate(replica *r, bool on); /* the steps from here on: with communication or not */
/* Both kinds of step as graphs, after at least one step. False with a problem. */
bool replica_capture(replica *r, replica_problem *problem);

/* ---- what goes in and comes out ---- */

/* Tokens of a rank's part of the global batch, drawn for each sample by its number, no matter on how many ranks. */
void replica_set_tokens(trainer *t, uint64_t seed, int rank);
/* With a loss scale: one at which the gradients of a check do not overflow, since infinities can't be compared. */
void replica_set_safe_loss_scale(trainer *t);
uint64_t replica_checksum(replica *r); /* of all bytes of the parameters, of this rank; 0 of no member */
/* The rank whose checksum differs from rank 0's, or -1. */
int replica_odd_rank(const replica *r, uint64_t checksum);
comm_dtype replica_comm_dtype(sb_dtype t);

#endif
