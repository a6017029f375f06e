/* SPDX-License-Identifier: MIT */
/* Pieces of large arrays: all bytes, in order, whether the device's memory is the host's or is copied through the two
 * pinned pieces, for which the CPU passes as a GPU here. */
#include "tests/support/test.h"

#include "common/device/internal.h"
#include "common/device/pieces.h"

enum { SIXTEEN = 16 << 20 };

typedef struct host {
    char *bytes;
    size_t next; /* where the next piece begins */
    int pieces;
} host;

static void take(void *arg, const void *piece, size_t at, size_t bytes)
{
    host *h = arg;
    assert_int_equal(at, h->next);
    assert_true(at % (1 << 20) == 0);
    memcpy(h->bytes + at, piece, bytes);
    h->next += bytes;
    h->pieces++;
}

static void give(void *arg, void *piece, size_t at, size_t bytes)
{
    host *h = arg;
    assert_int_equal(at, h->next);
    memcpy(piece, h->bytes + at, bytes);
    h->next += bytes;
    h->pieces++;
}

static void both_ways(device_kind kind, size_t bytes, int pieces)
{
    device *d = device_open(DEVICE_CPU, 0);
    OWNED char *there = xcalloc(bytes + 1, 1);
    host from = {.bytes = xmalloc(bytes + 1)}, to = {.bytes = xcalloc(bytes + 1, 1)};
    d->kind = kind;
    for (size_t i = 0; i < bytes; i++)
        from.bytes[i] = (char)(i * 2654435761u >> 11);
    pieces_write(d, there, bytes, give, &from);
    assert_memory_equal(there, from.bytes, bytes);
    pieces_read(d, there, bytes, take, &to);
    assert_memory_equal(to.bytes, from.bytes, bytes);
    assert_int_equal(there[bytes] | to.bytes[bytes], 0);
    assert_int_equal(from.next, bytes);
    assert_int_equal(to.next, bytes);
    assert_int_equal(to.pieces, pieces);
    free(from.bytes);
    free(to.bytes);
    d->kind = DEVICE_CPU;
    device_close(d);
}

TEST(in_the_hosts_memory)
{
    both_ways(DEVICE_CPU, ((size_t)5 << 20) + 2, 1);
}

TEST(through_pinned_pieces)
{
    both_ways(DEVICE_CUDA, 0, 0);
    both_ways(DEVICE_CUDA, 6, 1);
    both_ways(DEVICE_CUDA, (size_t)2 * SIXTEEN, 1);
    both_ways(DEVICE_CUDA, (size_t)5 * SIXTEEN + 2, 3);
}
