/* SPDX-License-Identifier: MIT */
/* A training step without a model, for tests of what waits for what: gradients are small whole numbers that slow
 * producers on several streams write, readers check the parameters that they see, an update adds the gradient to the
 * parameter, and every element counts its updates. Whatever comes too early or too late is a wrong number, or a data
 * race. Units of a sharded step lie in slots, which are overwritten between two uses. The arenas are of 16 and 32 bits, in
 * either way; all values are exact in both. */
#pragma once

#include "common/parallel/parallel.h"

enum { SYNTHETIC_SIDES = 2, SYNTHETIC_TENSORS = 11, SYNTHETIC_UNITS = 3, SYNTHETIC_SLOTS = 2, SYNTHETIC_RANKS = 8 };

typedef struct synthetic {
    device *d;
    int rank, ranks;
    int64_t starts[SYNTHETIC_TENSORS + 1], counts[SYNTHETIC_TENSORS];
    int64_t elements;
    int64_t units[SYNTHETIC_UNITS + 1];
    comm_dtype grad_dtype, param_dtype;
    void *peers[SYNTHETIC_RANKS];    /* parameters of each rank, as it is reached here */
    void *received[SYNTHETIC_RANKS]; /* likewise other ranks' gradients */
    bool shared;                     /* they are */
    void *grad, *param;              /* over the index space; of slices where they are sharded */
    void *param_slots[SYNTHETIC_SLOTS], *grad_slots[SYNTHETIC_SLOTS];
    bool gathered[SYNTHETIC_UNITS];
    int *updates; /* of each element */
    int *state;   /* updates of each element of the optimizer's state that is held here */
    void *main;   /* NULL: the calling thread */
    void *side[SYNTHETIC_SIDES];
    device_event *fork, *join[SYNTHETIC_SIDES];
    bool compute_only; /* gradients stay what this rank made, and parameters are not looked at */
    bool all_at_once;  /* update_all is given */
    int whole_units;   /* of the last ones, that every rank has whole */
    int late_us;       /* by which this rank's last gradient comes too late */
    int slow_us;       /* that each of its updates takes longer */
    int steps;         /* that were enqueued */
    int begun;         /* updates that were begun */
    const parallel_plan *plan;
} synthetic;

/* An index space that is a multiple of the granularity. Tasks run on the calling thread, or with `streams` on
 * others. */
synthetic *synthetic_create(device *d, int rank, int ranks, bool wide_grads, bool streams);
void synthetic_free(synthetic *s);
index_space synthetic_space(const synthetic *s);
parallel_model synthetic_model(synthetic *s, const parallel_plan *plan);
void synthetic_set_params(synthetic *s, int add); /* the first values, plus `add` */
/* Has parameters where the other ranks, which run in the same folder, can read them, and memory for gradients: s->peers, s->received. Before synthetic_model. */
void synthetic_share(synthetic *s);
/* Enqueues forward, backward and update; the gradients are overwritten behind it, as the next forward may. */
void synthetic_step(synthetic *s, parallel *p);
void synthetic_wait(synthetic *s); /* for main */
/* All parameters are those after the steps so far: when main has waited for everything. */
void synthetic_check_params(const synthetic *s);

/* Gradients of this rank, and what they should be after collectives alone: sums where `summed`, own ones elsewhere. */
void synthetic_set_grads(synthetic *s);
void synthetic_check_grads(const synthetic *s, const bucket *summed, int n);
