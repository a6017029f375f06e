/* SPDX-License-Identifier: MIT */
/* Messages of the control channel, over any stream socket: a head, then bytes. Ranks talk to the coordinator only, so every
 * channel has a rank at one end and the coordinator at the other. All hosts are little-endian and run the same binary. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/launch/secret.h"

/* The most bytes of a message: of a connection that has proved nothing yet, of one that says hello, of a rank. */
enum { CONTROL_MAGIC = 0x53424348, CONTROL_VERSION = 4 };
enum { CONTROL_STRANGER_BYTES = 512, CONTROL_HELLO_BYTES = 1 << 16, CONTROL_RANK_BYTES = 1 << 26 };

typedef enum control_kind {
    CONTROL_HELLO = 1, /* rank: a hello and the text of its options */
    CONTROL_WELCOME,   /* coordinator: a control_place of each rank; all have joined */
    CONTROL_GATHER,    /* rank: what it gives, and the name of the exchange */
    CONTROL_GATHERED,  /* coordinator: what all ranks gave, in their order */
    CONTROL_STATUS,    /* rank: its rank_status, where coordinator and rank share no memory */
    CONTROL_FAIL,      /* rank: an exit code and a sentence; it can't go on */
    CONTROL_END,       /* coordinator: an exit code and a sentence; the job ends now */
    CONTROL_BYE,       /* rank: it is done and leaves */
    CONTROL_CHALLENGE, /* coordinator: the first message of a connection by TCP */
    CONTROL_PROOF,     /* rank: its answer, and a challenge of its own */
    CONTROL_PROVED,    /* coordinator: its answer to that; hello may follow */
    CONTROL_ALIVE, /* coordinator: hello was heard. Then: it runs, several times a second where ranks do not see it */
    CONTROL_PING,  /* rank: what time is it with you? */
    CONTROL_PONG   /* coordinator: the same message with the time */
} control_kind;

typedef struct control_head {
    uint32_t magic, kind;
    uint64_t bytes; /* after the head */
} control_head;

typedef struct control_challenge {
    uint32_t version;
    uint32_t secret; /* 1: the job has one, and a proof must follow; 0: it has none, and hello follows */
    char challenge[SECRET_CHALLENGE_BYTES];
} control_challenge;

typedef struct control_proof {
    char answer[SECRET_ANSWER_BYTES], challenge[SECRET_CHALLENGE_BYTES];
} control_proof;

typedef struct control_hello {
    uint32_t version;
    int32_t rank, size; /* as this rank was told */
    uint32_t options_bytes;
    uint64_t run_id; /* of the job, the same for all its ranks */
    uint64_t binary; /* hash of the program's file */
    uint64_t host;   /* differs between hosts */
    char host_name[64];
} control_hello;

typedef struct control_place {
    uint64_t host;
} control_place;

enum { CONTROL_NAME_BYTES = 32 };
typedef struct control_gather {
    char name[CONTROL_NAME_BYTES]; /* must be the same on all ranks */
    uint64_t bytes;                /* that follow */
} control_gather;

typedef struct control_ping {
    uint64_t number;         /* of this rank's pings */
    double asked_s, given_s; /* when it was sent, by the rank's clock; when it was answered, by the coordinator's */
} control_ping;

/* One end of a channel. Nothing here blocks: what can't be sent yet waits in `out`. */
typedef struct channel {
    int fd;      /* -1: closed */
    bool broken; /* the other end is gone, or is none of ours: then it is foreign, too */
    bool foreign;
    char *in, *out;
    size_t in_bytes, in_capacity, in_taken, out_bytes, out_capacity;
    size_t limit; /* bytes of a message that the other end may send; more breaks the channel, and is not read */
} channel;

void channel_open(channel *c, int fd, size_t limit); /* takes over fd */
void channel_close(channel *c);
void channel_put(channel *c, control_kind kind, const void *a, size_t a_bytes, const void *b, size_t b_bytes);
void channel_flush(channel *c); /* sends what the socket takes */
void channel_fill(channel *c);  /* reads what is there */
/* The next whole message, valid until the next call; NULL: there is none yet. A stream that is none of ours breaks. */
const void *channel_next(channel *c, control_kind *kind, size_t *bytes);
