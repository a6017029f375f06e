/* SPDX-License-Identifier: MIT */
/* How many thread blocks, as a cluster, should share one tile of a kernel that runs one block an SM. */
#pragma once

#include "kernels/cuda/runtime/context.h"

SB_C_BEGIN

/* How many clusters of 1, 2, 4 and 8 blocks run at once. Asked of the driver for the first kernel and kept in the context:
 * every kernel it is meant for has one block an SM. */
const int *count_clusters(sb_context *ctx, const void *kernel, int threads, int smem_bytes);

/* How long the chip takes for `jobs` tiles that `split` blocks share, if `at_once` of these clusters run at once. Time is
 * counted in steps of the kernel's loop: a cluster costs `first` if it is among the first to run, else `later` (start, first
 * loads, merge), plus its share of the tile's steps. Tiles start longest first, in rounds of `at_once`; their lengths fall
 * from `longest` to 0 when causal, and are all `longest` otherwise. So two rounds together are level when causal; more than 64
 * are taken for level throughout. */
double split_time(int64_t jobs, int longest, bool causal, double first, double later, int split, int at_once);

/* The power of two, 1 to 8, with which the chip should be done first, where the first clusters cost `fixed` and the later
 * ones, whose start nothing hides, a step more. */
int choose_split(int64_t jobs, int longest, bool causal, double fixed, const int *clusters);

SB_C_END
