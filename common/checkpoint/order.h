/* SPDX-License-Identifier: MIT */
/* In which order the ranks of a host begin the files that all of them write to. */
#pragma once

#include <stdint.h>

/* The order of `rank`, to `out`: all `files` once. A rank writes `lanes` files at a time, an equal share of each; a file takes
 * what one rank writes at a time, so two that meet there wait for each other. Every rank finds the same plan: who has a lane
 * free takes, of the files that nobody writes just then, the one of which most is left for all ranks together (open shop by
 * the longest remaining work: Pinedo, Scheduling, 8.2). So ranks hardly meet, and end with small files, at one time. */
void checkpoint_order(const int64_t *bytes, int files, int rank, int ranks, int lanes, int *out);
