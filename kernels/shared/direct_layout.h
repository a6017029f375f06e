/* SPDX-License-Identifier: MIT */
/* Where a packet of an all-reduce between GPUs is stored, and when its place may be overwritten; see direct.h. The kernels
 * and the host's emulation of them (tests/comm/test_peer.c) share this arithmetic.
 *
 * A message is cut into packets of 12 bytes. A packet travels with the number of its call, the epoch, in one access of
 * 16 bytes; the receiver polls its own mailbox until the epoch arrives. A mailbox has two halves, for even and
 * odd epochs, each with a region for every rank that sends.
 * Nothing is overwritten before it has been read. Rank p writes epoch e + 2 where it wrote epoch e. Its call e + 1 has ended
 * by then, and needed a packet from every rank; so every rank had begun call e + 1, and had finished reading epoch e. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define DIRECT_FUNCTION static __host__ __device__ __forceinline__
#else
#define DIRECT_FUNCTION static inline
#endif

enum {
    DIRECT_WORDS = 3, /* words of 4 bytes in a packet */
    DIRECT_PAYLOAD_BYTES = 12,
    DIRECT_PACKET_BYTES = 16,
    DIRECT_HEADER_BYTES = 128, /* start of a mailbox: the state, which only its owner uses, and the gate's words: */
    DIRECT_GATE_PASSED = 8,    /* how many gates its owner has begun; only the owner reads it */
    DIRECT_GATE_SLOTS = 64,    /* for each rank, how many it has begun, in its own word */
    DIRECT_ALIGN = 8,          /* packets: regions begin at a cache line */
    DIRECT_BLOCKS_MAX = 64,
    DIRECT_THREADS_MAX = 512
};

/* ---- sizes ---- */

DIRECT_FUNCTION size_t direct_packets(size_t bytes)
{
    return (bytes + DIRECT_PAYLOAD_BYTES - 1) / DIRECT_PAYLOAD_BYTES;
}

/* Two-shot: rank j adds up packets j * slice to (j + 1) * slice - 1, as far as there are any. */
DIRECT_FUNCTION size_t direct_slice(size_t packets, int ranks)
{
    return (packets + (size_t)ranks - 1) / (size_t)ranks;
}

/* A region holds a message, or two slices: parts of sums, then sums. Of two ranks those can be one packet more. */
DIRECT_FUNCTION size_t direct_mailbox_bytes(size_t message_bytes, int ranks)
{
    const size_t capacity = (direct_packets(message_bytes) + 1 + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN;
    return DIRECT_HEADER_BYTES + 2 * (size_t)ranks * capacity * DIRECT_PACKET_BYTES;
}

/* Packets in a region of a mailbox of this size. */
DIRECT_FUNCTION size_t direct_capacity(size_t mailbox_bytes, int ranks)
{
    if (mailbox_bytes < DIRECT_HEADER_BYTES)
        return 0;
    return (mailbox_bytes - DIRECT_HEADER_BYTES) / DIRECT_PACKET_BYTES / 2 / (size_t)ranks / DIRECT_ALIGN *
           DIRECT_ALIGN;
}

/* A thread does one packet (of each slice) at a time. Few blocks start faster, and a small message needs no more. */
DIRECT_FUNCTION void direct_grid(size_t positions, unsigned *blocks, unsigned *threads)
{
    const size_t few = 256;
    *threads = positions <= few                       ? (unsigned)((positions + 31) / 32 * 32)
               : positions <= few * DIRECT_BLOCKS_MAX ? (unsigned)few
                                                      : (unsigned)DIRECT_THREADS_MAX;
    const size_t wanted = (positions + *threads - 1) / *threads;
    *blocks = wanted < DIRECT_BLOCKS_MAX ? (unsigned)wanted : (unsigned)DIRECT_BLOCKS_MAX;
}

/* ---- places, in packets after the header ---- */

DIRECT_FUNCTION size_t direct_half(uint32_t epoch, int ranks, size_t capacity)
{
    return (epoch & 1) * (size_t)ranks * capacity;
}

DIRECT_FUNCTION size_t direct_region(int source, size_t capacity)
{
    return (size_t)source * capacity;
}

/* ---- the epoch ---- */

/* The state is one word of 64 bits: the calls that are over, and below them the blocks of this call that have begun.
 * Each block adds 1 when it begins; what was there says its epoch. The last to begin also adds direct_turn: by then all
 * have read it, and the next call finds one more. So a call needs no number from the host and can be replayed. */
DIRECT_FUNCTION uint32_t direct_epoch(uint64_t before)
{
    return (uint32_t)(before >> 32) + 1;
}

DIRECT_FUNCTION bool direct_is_last(uint64_t before, unsigned blocks)
{
    return (uint32_t)before == blocks - 1;
}

DIRECT_FUNCTION uint64_t direct_turn(unsigned blocks)
{
    return ((uint64_t)1 << 32) - blocks;
}

/* What a block that is the only one of its call leaves there. */
DIRECT_FUNCTION uint64_t direct_after_one_block(uint64_t before)
{
    return before + 1 + direct_turn(1);
}

/* ---- the gate ---- */

/* Whether a rank that has begun `seen` gates has begun number `number`. It may be one ahead; numbers go round. */
DIRECT_FUNCTION bool direct_gate_is_open(uint32_t seen, uint32_t number)
{
    return (int32_t)(seen - number) >= 0;
}
