/* SPDX-License-Identifier: MIT */
/* Who started this process, and which rank is it? Read from the environment alone, in this order: our own launcher,
 * torchrun (RANK, WORLD_SIZE), Open MPI, PMI (MPICH, Intel MPI), MVAPICH2, a Slurm step; else nobody: then this process
 * starts the ranks, as it does in a world of one. None of these libraries is needed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct launch_place {
    const char *by; /* "torchrun", "mpirun", ...; NULL: nobody */
    int rank, size;
    int local_rank, local_size; /* -1: not said */
    char master[256];           /* where rank 0 listens; "" within one process tree */
    int port;
    bool local;         /* all ranks are on this host, as far as the environment says: rank 0 listens on its loopback */
    const char *secret; /* STEPBENCH_SECRET, "" where there is none; ranks on several hosts need one */
    uint64_t run_id;    /* the same for all ranks of a job, and hardly for two jobs */
    int control_fd, board_fd; /* of our own launcher; else -1 */
} launch_place;

/* False with a sentence in msg when the environment contradicts itself or lacks something. */
bool launch_place_find(launch_place *p, char *msg, size_t msg_bytes);

/* The first host of a Slurm node list such as "gpu[07-09,12]-ib,login1": "gpu07-ib". False when it is none. */
bool launch_first_host(const char *list, char *out, size_t out_bytes);
