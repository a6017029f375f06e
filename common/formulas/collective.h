/* SPDX-License-Identifier: MIT */
/* Bandwidth of collectives, in the convention of nccl-tests, so that numbers can be compared: algbw is the size over
 * the time, busbw the same times a factor that makes it the rate of each rank's link in each direction for the best
 * algorithm without sums in the network's switches, whatever the number of ranks. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum collective_op {
    COLLECTIVE_ALL_REDUCE,     /* size: of the vector, which every rank has whole */
    COLLECTIVE_ALL_GATHER,     /* size: of what every rank has in the end */
    COLLECTIVE_REDUCE_SCATTER, /* size: of what every rank starts with */
    COLLECTIVE_BROADCAST,      /* size: of the vector */
    COLLECTIVE_REDUCE,         /* size: of the vector */
    COLLECTIVE_ALL_TO_ALL,     /* size: of what every rank has before and after */
    COLLECTIVE_SEND_RECV       /* size: of the message that every rank sends to the next one */
} collective_op;

/* busbw / algbw: all-reduce 2 (n-1)/n, all-gather, reduce-scatter and all-to-all (n-1)/n, broadcast, reduce
 * and send-recv 1. */
double collective_bus_factor(collective_op op, int ranks);
double collective_gb_s(double bytes, double ms); /* algbw, 1e9 bytes a second */

/* A size in the unit that it is a whole number of: "100 MiB" (2^20), "100 MB" (1e6), "1 KiB", "12 B". */
void collective_size_text(int64_t bytes, char *out, size_t out_bytes);
