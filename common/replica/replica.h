/* SPDX-License-Identifier: MIT */
/* A trainer and a strategy of parallel/parallel.h on every rank of a job, with the same algorithms on all of them. It
 * knows neither case nor row, so that any bench can have one; a bench in a single process has one without a launch.
 *
 * All ranks of the job call these functions together, unless a comment says otherwise. A rank that is not a member (the
 * case has fewer ranks than the job) has a replica as well: it joins in exchanges, and its steps do nothing.
 *
 * Rank 0 times the algorithms of each matrix product alone; all ranks take its choice. Whole steps do not race on more
 * than one rank: a race on rank 0 would leave out communication and keep the others waiting. So replica_create refuses
 * what trainer_tune would race (FUSION_GRAPH, OVERLAP_AUTO). */
#pragma once

#include "common/checkpoint/save.h"
#include "common/core/cache.h"
#include "common/launch/launch.h"
#include "common/parallel/parallel.h"
#include "common/rows/rows.h"
#include "common/train/trainer.h"
#include "common/train/tune/choices.h"

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
    step_options o;
    parallel_plan *plan; /* NULL without a strategy: the trainer updates by itself */
    trainer *t;          /* NULL if not a member, as is p */
    parallel *p;
    comm *sharers;           /* of the ranks that share this one's sequences; NULL: it has whole ones */
    device_graph *graphs[2]; /* of a step without communication, and with; NULL: it is launched op by op */
    bool communicating;
    bool hold;              /* the strategy leaves out the updates of the next steps */
    size_t free_with_model; /* the device's free bytes before communicators were made */
    /* Called before gradients [first, first + count) are given to the strategy; for checks that plant an error. */
    void (*tamper)(struct replica *r, int64_t first, int64_t count, void *stream);
    void *user;              /* of tamper */
    checkpoint_saver *saver; /* what its updates must not overtake (state.h); NULL: nothing */
} replica;

/* Why something failed, the same on every rank. */
typedef struct replica_problem {
    bool no_memory;
    char text[512];
} replica_problem;

/* Returns true on every rank if `ok` is true on every rank. Otherwise the problem is that of the first rank that says
 * no: `why`, or the allocation that failed there. */
bool replica_agree(const replica_place *at, const char *name, bool ok, const char *why, replica_problem *problem);
/* Returns true on every rank if the row of each of the first `members` ranks is ok. Otherwise the row gets the status and sentence
 * of the one whose `wrong` is least; an allocation that failed there is ROW_OOM. */
bool replica_agree_row(const replica_place *at, const char *name, row *w, int members, int wrong);

/* Rank 0 chooses an algorithm for each product of a step of `o` with its trainer, and every rank takes it; t is NULL where it is
 * no member. Contexts keep choices, so other trainers of such products have them, too. */
bool replica_tune(const replica_place *at, trainer *t, const step_options *o, replica_problem *problem);

/* Makes the model of `o`, whose ranks, granularity and state_elements are set here, with the strategy of `p`; without one where
 * that is NULL: ranks then give each other nothing. Returns
 * NULL and a problem on failure. Every rank has the same random tokens until replica_set_tokens. */
replica *replica_create(const replica_place *at, const step_options *o, const parallel_options *p,
                        replica_problem *problem);
void replica_free(replica *r); /* NULL is fine */
/* What the first rank of such a replica would hold, without a job; -1: it can't be planned. */
int64_t replica_planned_bytes(const replica_place *at, const step_options *o, const parallel_options *p);

/* ---- steps: of this rank, without an exchange ---- */

/* Enqueues a step, or ends the job with a message. */
void replica_step(replica *r);
/* What ranks give each other in a step, with no compute beside it: the collectives of the strategy, the moves of contexts. */
void replica_collectives_alone(replica *r);
void replica_settle(replica *r);               /* waits until all that is under way is done */
void replica_communicate(replica *r, bool on); /* the steps from here on: with communication or not */
/* Captures steps with and without communication as graphs, after at least one step. All ranks together. Returns false
 * and a problem on failure. */
bool replica_capture(replica *r, replica_problem *problem);

/* ---- what goes in and comes out ---- */

/* Sets the tokens of this rank's part of the global batch. A sample depends on its number alone, not on how many ranks
 * there are. Ranks that share sequences have their chunks of the same ones, and of the targets. */
void replica_set_tokens(trainer *t, uint64_t seed, int rank);
/* Sets a loss scale, if the precision has one, at which the gradients of a check do not overflow. */
void replica_set_safe_loss_scale(trainer *t);
uint64_t
replica_checksum(replica *r); /* of all bytes of the parameters as it has or gathers them; 0: it is no member */
/* Exchanges checksums. Returns the first rank whose checksum is not that of rank 0, or -1. */
int replica_odd_rank(const replica *r, uint64_t checksum);
/* All members call these together. Values by index: `out` has an element for each of the index space. Where parameters
 * or gradients are sharded, parameters are gathered, and of gradients those that this rank does not update stay as they
 * were. */
void replica_read_params(replica *r, float *out);
void replica_read_grads(replica *r, float *out);
int64_t replica_grad_elements(const replica *r); /* of the arena of gradients */
comm_dtype replica_comm_dtype(sb_dtype t);
double replica_wire_bytes(const replica *r); /* parallel_wire_bytes of its plan in its dtypes */
