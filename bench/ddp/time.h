/* SPDX-License-Identifier: MIT */
/* The times of a case, its profile, and a recorded step; see the sources of these names. */
#pragma once

#include "bench/ddp/case.h"
#include "common/core/stats.h"

typedef struct ddp_times {
    samples step, compute; /* ms of the slowest rank, in the order of steps; compute: without communication */
    samples own;           /* ms of this rank's steps */
    samples energy_w;      /* of this rank's GPU, mean power of each block of steps; NAN unknown */
    double forward, backward, after, tail; /* medians of phase_rank */
    double gather_wait, reduced_wait;
    int phase_rank;
    double comm_alone, opt_alone;
    double loss_first, loss_third, loss_last; /* the third is NAN with a shorter warm-up */
    uint64_t checksum;
    double used_bytes;
    bool long_step; /* steps take so long that fewer of everything are timed */
} ddp_times;

/* Times a case; free_before are the device's free bytes before its replica was made. Returns false after setting the row
 * to `fail`. */
bool ddp_time(ddp_case *k, replica *r, double free_before, ddp_times *m);
void ddp_times_free(ddp_times *m);

/* A profile of its steps, in place of the timing. All ranks together. */
void ddp_profile(ddp_case *k, replica *r);

/* Records a step, fills the recorded_ columns and writes the files. Call it after timing: launches are slower once a
 * recorder is on. */
void ddp_record(ddp_case *k, replica *r);
