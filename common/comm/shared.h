/* SPDX-License-Identifier: MIT */
/* A block of memory of each rank of a group on one host, which the others read and write, too: of a GPU, by CUDA's interprocess
 * handles; on CPUs shared memory. */
#pragma once

#include "common/comm/comm.h"
#include "common/device/device.h"

typedef struct shared shared;

/* `bytes` zeros of each member. Members are as in peer.h, and every rank of the job calls it. NULL on all of them, with a sentence, where ranks
 * don't reach each other's memory. */
shared *shared_open(launch *l, device *d, const int *members, int ranks, size_t bytes, char *why, size_t why_bytes);
void *const *shared_at(const shared *s); /* of each member, as it is reached here; of no member: NULL */
int shared_rank(const shared *s);        /* this one's; -1: no member */
/* Every rank of the job together: waits for the device's stream, and for all others. NULL is fine. */
void shared_close(shared *s);
