/* SPDX-License-Identifier: MIT */
/* Which blocks give their activations to the host's memory, and which part of the copies compute cannot hide.
 *
 * A copy takes a link that carries one at a time, each way; forward waits for it when it wants the memory, backward when it
 * wants the activations. Walking over the blocks with the times of one block and one copy tells for how long. */
#pragma once

#include "common/formulas/recompute.h"

typedef struct offload_costs {
    int kinds;                      /* OFFLOAD_... of an offloaded block; 0: nothing may leave */
    recompute what;                 /* what such a block computes again */
    double forward_ms, backward_ms; /* of one block that keeps everything */
    double bytes[RECOMPUTE_KINDS];  /* that leave of an offloaded block, by what it computes again */
    double out_gb_s, in_gb_s;       /* of the link, to the host and back */
} offload_costs;

/* 0 or one of OFFLOAD_CHOICES as kinds; "none" is 0. */
int offload_parse(const char *name);
/* Every k-th block leaves, from the first on, and is away or back while `every` others run; but not the last ones, which
 * backward begins with. */
void offload_every(recompute_schedule *s, int kinds, int every);
/* The most blocks that offload_spread takes. */
int offload_most(int layers);
/* `count` blocks at even distances, the first one among them, become offloaded ones; what is in flight is as much as the
 * times of the copies need. */
void offload_spread(recompute_schedule *s, const offload_costs *costs, int count);
/* How long forward and backward wait for copies. again_ms: by kind of recomputation, or NULL. */
double offload_exposed_ms(const offload_costs *costs, const recompute_schedule *s, const double *again_ms);
int offload_count(const recompute_schedule *s); /* offloaded blocks */
/* NULL, or a sentence on why a step cannot follow this schedule. */
const char *offload_problem(const recompute_schedule *s);
