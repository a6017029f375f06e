/* SPDX-License-Identifier: MIT */
/* Strategies of data parallelism as rows of one table (strategy.c): how gradients are grouped, when and how a group is
 * summed, and how those who did not update a parameter get it. Neither plan nor scheduler asks for a name, so that a new
 * strategy is a new row. The values that no row has yet, and what they will be for:
 *
 *   grouping    unit                          a block of the model, as FSDP gathers it
 *   reduce      reduce-scatter + all-reduce   within a host, then between hosts (HSDP)
 *   parameters  gathered                      only a slice lies here between a group's uses (FSDP)
 *
 * Who updates what follows from the row, too: every rank everything (SHARE_NONE), whole tensors (SHARE_BROADCAST), or a
 * slice of each group (SHARE_GATHER). */
#ifndef STEPBENCH_PARALLEL_STRATEGY_H
#define STEPBENCH_PARALLEL_STRATEGY_H

#include <stdbool.h>

typedef enum grouping { /* of gradients; each group is one collective */
                        GROUP_TENSOR,
                        GROUP_BUCKET, /* neighbouring tensors up to a size */
                        GROUP_WHOLE   /* all of them */
} grouping;

typedef enum group_time {
    WHEN_READY,
    WHEN_AFTER
} group_time; /* a group travels: when it is ready, or after backward */

typedef enum group_reduce {
    REDUCE_ALL,    /* all-reduce */
    REDUCE_SCATTER /* reduce-scatter: with SHARE_GATHER */
} group_reduce;

typedef enum parameter_place { PARAMETERS_RESIDENT } parameter_place; /* all of them lie on every rank */

typedef enum parameter_share {
    SHARE_NONE,      /* every rank has updated all of them */
    SHARE_BROADCAST, /* each tensor by its owner, at the end of the step */
    SHARE_GATHER     /* all-gathers of the groups on a second communicator, under the next forward */
} parameter_share;

typedef struct strategy {
    const char *name;
    grouping grouping;
    group_time when;
    group_reduce reduce;
    parameter_place parameters;
    parameter_share share;
    bool packed;  /* with WHEN_AFTER: gradients travel in a second buffer, into which tensors are copied, and back */
    bool grouped; /* with WHEN_AFTER: all collectives are one launch */
    const char *summary;
} strategy;

extern const strategy parallel_strategies[];         /* ends with name == NULL */
const strategy *parallel_strategy(const char *name); /* NULL: there is none of this name */

#endif
