/* SPDX-License-Identifier: MIT */
/* The clock of a collective on one rank; what the ranks agree on is in collective.c. */
#pragma once

#include "bench/collective/problem.h"
#include "common/core/stats.h"

void collective_enqueue(collective *k, int calls);
void collective_wait(collective *k);                    /* until all that is enqueued is done */
double collective_estimate(collective *k);              /* ms of a call that is waited for, after the warm-up */
double collective_burst(collective *k, int calls);      /* ms of each of calls back to back */
bool collective_capture(collective *k);                 /* the calls of a sample as a graph; false: can't be */
void collective_sample(collective *k, samples *out_ms); /* k->samples of them, each the mean of its calls */
