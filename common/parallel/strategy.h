/* SPDX-License-Identifier: MIT */
/* Strategies of data parallelism as rows of one table (strategy.c): how gradients are grouped, when and how a group is
 * summed, where gradients and parameters lie, and how those who did not update a parameter get it. Neither plan nor
 * scheduler asks for a name, so that a new strategy is a new row.
 *
 * Who updates what follows from the row, too: every rank everything (SHARE_NONE), whole tensors (SHARE_BROADCAST), or a
 * slice of each group (SHARE_GATHER, SHARE_FUSED, SHARE_ON_USE). */
#pragma once

#include <stdbool.h>

typedef enum grouping { /* of gradients; each group is one collective */
                        GROUP_TENSOR,
                        GROUP_BUCKET, /* neighbouring tensors up to a size */
                        GROUP_UNIT,   /* a unit of the model: its head, a block, its embedding */
                        GROUP_WHOLE   /* all of them */
} grouping;

typedef enum group_time {
    WHEN_READY,
    WHEN_AFTER
} group_time; /* a group travels: when it is ready, or after backward */

typedef enum group_reduce {
    REDUCE_ALL,     /* all-reduce */
    REDUCE_SCATTER, /* reduce-scatter: where ranks update slices */
    REDUCE_FUSED,   /* by the update of slices itself, which also shares them: with SHARE_FUSED */
    REDUCE_HYBRID   /* reduce-scatter among the ranks that share a replica, then all-reduce between replicas */
} group_reduce;

typedef enum gradient_place {
    GRADIENTS_RESIDENT, /* all of them lie on every rank */
    GRADIENTS_SLICED    /* a group's until they are reduced, then a slice: with GROUP_UNIT */
} gradient_place;

typedef enum parameter_place {
    PARAMETERS_RESIDENT, /* all of them lie on every rank */
    PARAMETERS_GATHERED, /* a slice; a group is gathered before each use and freed after it: with GROUP_UNIT */
    PARAMETERS_KEPT,     /* the same, but it stays while a micro-batch is in flight that uses it again */
    PARAMETERS_HELD      /* the same, but from its first use to its last one in a step */
} parameter_place;

typedef enum parameter_share {
    SHARE_NONE,      /* every rank has updated all of them */
    SHARE_BROADCAST, /* each tensor by its owner, at the end of the step */
    SHARE_GATHER,    /* all-gathers of the groups on a second communicator, under the next forward */
    SHARE_FUSED,     /* stored to all ranks by the fused update: with REDUCE_FUSED */
    SHARE_ON_USE     /* all-gathers of the groups before they are used: where parameters are not resident */
} parameter_share;

typedef struct strategy {
    const char *name;
    grouping grouping;
    group_time when;
    group_reduce reduce;
    gradient_place gradients;
    parameter_place parameters;
    parameter_share share;
    bool packed;  /* with WHEN_AFTER: gradients travel in a second buffer, into which tensors are copied, and back */
    bool grouped; /* with WHEN_AFTER: all collectives are one launch */
    const char *summary;
} strategy;

extern const strategy parallel_strategies[];         /* ends with name == NULL */
bool strategy_slices(const strategy *s);             /* ranks update slices of groups */
bool strategy_fused(const strategy *s);              /* sum, update and sharing of a slice are one pass */
const strategy *parallel_strategy(const char *name); /* NULL: there is none of this name */
