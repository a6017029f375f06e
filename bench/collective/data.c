/* SPDX-License-Identifier: MIT */
/* What each rank sends and what it must receive. Input i of rank r is a small whole number from a table of
 * COLLECTIVE_PERIOD entries, so that results can be compared block by block, bit for bit. */
#include <stdlib.h>
#include <string.h>

#include "bench/collective/data.h"
#include "common/core/error.h"
#include "common/core/numeric.h"

/* Values are below the limit, so that the sum over ranks needs at most 8 bits. */
static unsigned value_of(int ranks, int rank, size_t i)
{
    const unsigned limit = ranks <= 16 ? 16 : ranks <= 64 ? 4 : 2;
    return ((unsigned)(i % COLLECTIVE_PERIOD) + 7u * (unsigned)rank) * 2654435761u >> 24 & (limit - 1);
}

static void put(char *to, size_t i, comm_dtype t, unsigned value)
{
    const float x = (float)value;
    const uint16_t half = bf16_from_float(x);
    if (t == COMM_FP32)
        memcpy(to + 4 * i, &x, 4);
    else
        memcpy(to + 2 * i, &half, 2);
}

/* One period of elements: of one rank (the sum of all for rank -1), from element `first` on. Caller frees. */
static char *period(const collective *k, int rank, size_t first)
{
    const int ranks = comm_size(k->c);
    char *table = xmalloc(COLLECTIVE_PERIOD * comm_dtype_bytes(k->t));
    for (size_t i = 0; i < COLLECTIVE_PERIOD; i++) {
        unsigned value = rank >= 0 ? value_of(ranks, rank, first + i) : 0;
        for (int r = 0; r < ranks && rank < 0; r++)
            value += value_of(ranks, r, first + i);
        put(table, i, k->t, value);
    }
    return table;
}

/* ---- buffers ---- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

bool collective_allocate(collective *k, size_t *asked_bytes)
{
    const size_t e = comm_dtype_bytes(k->t), send = k->send_n * e, recv = k->recv_n * e;
    const bool source = k->in_place && k->op == COLLECTIVE_ALL_REDUCE;
    *asked_bytes = k->in_place ? larger(send, recv) + (source ? send : 0) : send + recv;
    /* The ranks of a host share the memory of its processors, and none may take what another counts on. */
    if (device_kind_of(k->s->dev) == DEVICE_CPU &&
        *asked_bytes > device_free_bytes(k->s->dev) / (size_t)launch_local_size(k->l))
        return false;
    if (!k->in_place) {
        k->send = memory_alloc(k->s->mem, send, "the input");
        k->recv = memory_alloc(k->s->mem, recv, "the output");
        return k->send && k->recv;
    }
    char *both = memory_alloc(k->s->mem, larger(send, recv), "input and output");
    const size_t own = (size_t)comm_rank(k->c) * k->count * e;
    k->source = source ? memory_alloc(k->s->mem, send, "a copy of the input") : NULL;
    if (!both || (source && !k->source))
        return false;
    k->send = both + (k->op == COLLECTIVE_ALL_GATHER ? own : 0);
    k->recv = both + (k->op == COLLECTIVE_REDUCE_SCATTER ? own : 0);
    return true;
}

/* ---- filling and comparing, in pieces of whole periods ---- */

enum { PIECE = 512 }; /* periods: some 8 MB of fp32 */

/* As many periods as the total needs, and at most a piece: their bytes. */
static size_t piece_bytes(size_t bytes, size_t total)
{
    const size_t periods = (total + bytes - 1) / bytes;
    return (periods < PIECE ? periods : PIECE) * bytes;
}

static char *repeated(const char *table, size_t bytes, size_t piece)
{
    char *out = xmalloc(piece);
    for (size_t at = 0; at < piece; at += bytes)
        memcpy(out + at, table, bytes);
    return out;
}

/* The device itself doubles what it has. */
static void upload(const collective *k, void *to, size_t n, char *table)
{
    const size_t e = comm_dtype_bytes(k->t), bytes = COLLECTIVE_PERIOD * e, total = n * e;
    const size_t size = piece_bytes(bytes, total);
    char *piece = repeated(table, bytes, size);
    device_upload(k->s->dev, to, piece, size < total ? size : total);
    for (size_t have = size; have < total; have *= 2)
        device_copy(k->s->dev, (char *)to + have, to, have < total - have ? have : total - have);
    device_sync(k->s->dev);
    free(piece);
    free(table);
}

void collective_fill(collective *k)
{
    const bool root = comm_rank(k->c) == 0, broadcast = k->op == COLLECTIVE_BROADCAST;
    /* Nothing right may be there before the call but the input. */
    const bool input_there = k->in_place && k->op != COLLECTIVE_ALL_GATHER && (root || !broadcast);
    if (!input_there)
        device_memset(k->s->dev, k->recv, 0xff, k->recv_n * comm_dtype_bytes(k->t));
    device_sync(k->s->dev);
    if (root || !broadcast || !k->in_place)
        upload(k, k->send, k->send_n, period(k, comm_rank(k->c), 0));
    if (k->source)
        upload(k, k->source, k->send_n, period(k, comm_rank(k->c), 0));
}

static size_t wrong_in(const collective *k, const char *from, size_t n, char *table)
{
    const size_t e = comm_dtype_bytes(k->t), bytes = COLLECTIVE_PERIOD * e, size = piece_bytes(bytes, n * e);
    char *want = repeated(table, bytes, size), *got = xmalloc(size);
    size_t wrong = 0;
    for (size_t at = 0; at < n * e; at += size) {
        const size_t left = n * e - at, now = left < size ? left : size;
        device_download(k->s->dev, got, from + at, now);
        if (memcmp(got, want, now) != 0)
            for (size_t i = 0; i < now; i += e)
                wrong += memcmp(got + i, want + i, e) != 0;
    }
    free(want);
    free(got);
    free(table);
    return wrong;
}

size_t collective_wrong(collective *k)
{
    const size_t e = comm_dtype_bytes(k->t);
    size_t wrong = 0;
    switch (k->op) {
    case COLLECTIVE_ALL_REDUCE: return wrong_in(k, k->recv, k->recv_n, period(k, -1, 0));
    case COLLECTIVE_REDUCE_SCATTER:
        return wrong_in(k, k->recv, k->recv_n, period(k, -1, (size_t)comm_rank(k->c) * k->count));
    case COLLECTIVE_BROADCAST: return wrong_in(k, k->recv, k->recv_n, period(k, 0, 0));
    default:
        for (int r = 0; r < comm_size(k->c); r++)
            wrong += wrong_in(k, (char *)k->recv + (size_t)r * k->count * e, k->count, period(k, r, 0));
        return wrong;
    }
}
