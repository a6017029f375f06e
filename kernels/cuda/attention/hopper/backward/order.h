/* SPDX-License-Identifier: MIT */
/* Model of the turns that the adders of dQ take in the deterministic backward: how many sums of dQ there are, and which
 * adders start where. See wide.cuh. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_ORDER_H
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_ORDER_H

#include "kernels/cuda/attention/hopper/backward/choice.h"

/* A deterministic problem as the model of turns sees it, in steps. */
typedef struct flash_backward_order {
    double longest, busy; /* without turns: of the longest job; of all of them, divided by how many run at once */
    double hand_over;     /* giving a turn on */
    double apart;         /* by which a job is longer than the next one of its head; 0 unless causal */
    double read;          /* of the pass after, for one sum */
    int adders, row;      /* of a head; those of them that start together */
} flash_backward_order;

/* How many of a head's `adders` the first `at_once` jobs are, when the jobs of `section` heads alternate. */
int flash_backward_first_round(int adders, int at_once, int section);

/* Sets the sums of `choice`, whose kernel is the wide one or that of pairs, and its early adders; returns the time in steps
 * with turns and the pass after them. t.adders, t.row and t.read are found here. `at_once`: jobs that run at once. */
double flash_backward_take_turns(const sb_attention *a, flash_backward_order t, int at_once,
                                 flash_backward_choice *choice);

#endif
