/* SPDX-License-Identifier: MIT */
/* What a rank is doing, for whoever watches it: its phase, its last collective, its communicators, and counters that move. Ranks
 * that were started here keep it in memory shared with the launcher, so that it can be read even when the rank is
 * stopped or dead; others send it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { STATUS_COMMUNICATORS = 16, STATUS_PLACES = 16 };

/* A communicator that this rank is a member of. Members agree about `tag`, and in the end about the counters. */
typedef struct communicator_status {
    uint32_t tag;                 /* 0: none */
    int16_t place, size;          /* this rank's among the members */
    uint32_t enqueued, done;      /* ops of any kind, and how many of them are over */
    uint32_t met, what;           /* collectives enqueued; a hash of the last one's arguments */
    uint16_t with[STATUS_PLACES]; /* sends and receives enqueued with the member of each place; wraps */
    char name[24];
} communicator_status;

typedef struct rank_status {
    uint64_t beats;          /* counts up as long as the process runs */
    uint64_t moves;          /* counts up whenever it makes progress */
    uint64_t enqueued, done; /* collectives; `done` of the last known to be over */
    uint64_t waiting;        /* 1: for other ranks, on the control channel */
    char phase[128];         /* phase_get() */
    char last[96];           /* the last collective enqueued: "all_reduce #12 of 4096 fp32"; "" none yet */
    communicator_status on[STATUS_COMMUNICATORS];
} rank_status;

enum { STATUS_WORDS = sizeof(rank_status) / sizeof(uint64_t) };

/* A status that one process writes while others read it: odd versions are being written. */
typedef struct status_slot {
    atomic_uint version;
    _Atomic uint64_t words[STATUS_WORDS];
    atomic_int defers; /* the rank ends itself when it is asked to, behind what it must finish */
    atomic_int asked;  /* by the launcher: the signal; 0: none */
} status_slot;

void status_write(status_slot *s, const rank_status *from);
/* A writer that was killed in the middle leaves an odd version: then what is there is taken. */
void status_read(status_slot *s, rank_status *to);
/* "while: <phase>; last collective: <last>, under way": the end of a sentence about the rank. */
void status_describe(const rank_status *s, char *out, unsigned long out_bytes);
