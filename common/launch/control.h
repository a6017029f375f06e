/* Messages of the control channel, over any stream socket: a head, then bytes. Ranks talk to the hub only, so every
 * channel has a rank at one end and the hub at the other. All hosts are little-endian and run the same binary. */
#ifndef STEPBENCH_LAUNCH_CONTROL_H
#define STEPBENCH_LAUNCH_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_MAGIC = 0x53424348, WIRE_VERSION = 1, WIRE_BYTES_MAX = 1 << 26 };

typedef enum wire_kind {
    WIRE_HELLO = 1, /* rank: a hello and the text of its options */
    WIRE_WELCOME,   /* hub: a wire_place of each rank; all have joined */
    WIRE_GATHER,    /* rank: what it gives, and the name of the exchange */
    WIRE_GATHERED,  /* hub: what all ranks gave, in their order */
    WIRE_STATUS,    /* rank: its rank_status, where hub and rank share no memory */
    WIRE_FAIL,      /* rank: an exit code and a sentence; it can't go on */
    WIRE_END,       /* hub: an exit code and a sentence; the job ends now */
    WIRE_BYE        /* rank: it is done and leaves */
} wire_kind;

typedef struct wire_head {
    uint32_t magic, kind;
    uint64_t bytes; /* after the head */
} wire_head;

typedef struct wire_hello {
    uint32_t version;
    int32_t rank, size; /* as this rank was told */
    uint32_t options_bytes;
    uint64_t run_id; /* of the job, the same for all its ranks */
    uint64_t binary; /* hash of the program's file */
    uint64_t host;   /* differs between hosts */
    char host_name[64];
} wire_hello;

typedef struct wire_place {
    uint64_t host;
} wire_place;

enum { WIRE_NAME_BYTES = 32 };
typedef struct wire_gather {
    char name[WIRE_NAME_BYTES]; /* must be the same on all ranks */
    uint64_t bytes;             /* that follow */
} wire_gather;

/* One end of a channel. Nothing here blocks: what can't be sent yet waits in `out`. */
typedef struct channel {
    int fd;      /* -1: closed */
    bool broken; /* the other end is gone */
    char *in, *out;
    size_t in_bytes, in_capacity, in_taken, out_bytes, out_capacity;
} channel;

void channel_open(channel *c, int fd); /* takes over fd */
void channel_close(channel *c);
void channel_put(channel *c, wire_kind kind, const void *a, size_t a_bytes, const void *b, size_t b_bytes);
void channel_flush(channel *c); /* sends what the socket takes */
void channel_fill(channel *c);  /* reads what is there */
/* The next whole message, valid until the next call; NULL: there is none yet. A stream that is none of ours breaks. */
const void *channel_next(channel *c, wire_kind *kind, size_t *bytes);

#endif
