/* SPDX-License-Identifier: MIT */
/* How long a row waits for choices that are made in whole steps. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/core/stats.h"

/* How many seconds such choices may still take. The first row of a process is to be there within a time that depends on the
 * size of the model, of which `since_start` is gone and its own steps of `step_s` will take a part; what does not fit
 * waits for later rows and runs. With `anew` (--retune) and in later rows it is a constant, `spent` of which is gone. */
double tune_budget(int64_t parameters, bool first, bool anew, double since_start, double spent, double step_s);

/* Whether a block of steps is decided before its end: those so far are slower than the best by more than clocks and
 * noise explain. It never says that a block has won. */
bool tune_lost(const samples *so_far, double best_ms);

/* Seconds of a block of steps; of one that races, and of a whole race. */
double tune_block_s(double step_ms);
double tune_race_s(double step_ms);
