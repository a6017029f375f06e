/* SPDX-License-Identifier: MIT */
/* The order of additions to dQ in the deterministic backward: how many sums of dQ there are, and which adders start where, by a
 * model of the time that adders wait.
 *
 * Late adders walk from the last query to the diagonal, the first key tile first: each tile of a sum follows the one before,
 * and the longest start first. All of a first round start at the same query, so the last of a row is late by a hand-over for each
 * before it. For few heads and causal, the first round are early adders: they walk from the diagonal on, the last tile first, each
 * at a diagonal of its own, so that it comes to a query block after the one ahead of it has added. They have sums of their own. */
#pragma once

#include "kernels/cuda/attention/hopper/backward/sizes.h"

/* A deterministic problem as the model sees it, in steps. */
typedef struct flash_backward_order {
    double longest, busy; /* in any order: of the longest job; of all of them, divided by how many run at once */
    double hand_over;     /* from one adder to the next */
    double apart;         /* by which a job is longer than the next one of its head; 0 unless causal */
    double read;          /* time that the pass after takes to read one sum */
    int section;          /* key/value heads that are walked together */
    int adders, row;      /* adders of a head; how many of them start together */
} flash_backward_order;

/* How many of a head's `adders` the first `at_once` jobs are, when the jobs of `section` heads alternate. */
int flash_backward_first_round(int adders, int at_once, int section);

/* Sets the sums of `choice`, whose kernel is the wide one or that of pairs, and its early adders; returns the time in steps
 * with the waits and the pass after. t.adders, t.row and t.read are found here. `at_once`: jobs that run at once. */
double flash_backward_order_additions(const sb_attention *a, flash_backward_order t, int at_once,
                                      flash_backward_choice *choice);
