/* SPDX-License-Identifier: MIT */
/* What each rank sends and what it must receive. Input i of rank r is a small whole number from a table of
 * COLLECTIVE_PERIOD entries, so that results can be compared block by block, bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/collective/collective.h"
#include "common/core/error.h"
#include "common/core/numeric.h"

/* Values are below the limit, so that the sum over ranks needs at most 8 bits. */
static unsigned value_of(int ranks, int rank, size_t i)
{
    const unsigned limit = ranks <= 16 ? 16 : ranks <= 64 ? 4 : 2;
    return ((unsigned)(i % COLLECTIVE_PERIOD) + 7u * (unsigned)rank) * 2654435761u >> 24 & (limit - 1);
}

static void put(char *to, size_t i, comm_dtype t, float x)
{
    const uint16_t half = bf16_from_float(x);
    if (t == COMM_FP32)
        memcpy(to + 4 * i, &x, 4);
    else
        memcpy(to + 2 * i, &half, 2);
}

/* One period of a rank's input, from element `first` on. Caller frees. */
static char *input_of(const collective *k, int rank, size_t first)
{
    char *table = xmalloc(COLLECTIVE_PERIOD * comm_dtype_bytes(k->t));
    for (size_t i = 0; i < COLLECTIVE_PERIOD; i++)
        put(table, i, k->t, (float)value_of(comm_size(k->c), rank, first + i));
    return table;
}

static float round_to(comm_dtype t, double x, bool *rounded)
{
    const float y = t == COMM_FP32 ? (float)x : bf16_to_float(bf16_from_float((float)x));
    *rounded = *rounded || y != x;
    return y;
}

/* One period of sums from element `first` on, after `calls` calls. In place a call takes what the one before left: an
 * all-reduce the sum on every rank, a reduce-scatter or reduce the sum and the others' elements. Where
 * sums had to be rounded, other orders of adding may end `tolerance` of them apart: a random walk. Caller frees. */
static char *sums_of(const collective *k, size_t first, int calls, double *tolerance)
{
    const int ranks = comm_size(k->c);
    char *table = xmalloc(COLLECTIVE_PERIOD * comm_dtype_bytes(k->t));
    bool rounded = false;
    for (size_t i = 0; i < COLLECTIVE_PERIOD; i++) {
        unsigned sum = 0, own = value_of(ranks, comm_rank(k->c), first + i);
        for (int r = 0; r < ranks; r++)
            sum += value_of(ranks, r, first + i);
        float x = (float)sum;
        for (int call = 1; call < calls && k->in_place; call++)
            x = round_to(k->t, k->op == COLLECTIVE_ALL_REDUCE ? (double)ranks * x : (double)x + (sum - own), &rounded);
        put(table, i, k->t, x);
    }
    *tolerance = rounded ? 4 * sqrt((double)calls * ranks) * (k->t == COMM_FP32 ? 0x1p-24 : 0x1p-8) : 0;
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
    /* Off the root, what a reduce receives is lost, and must not be its input. */
    const bool in_place = k->in_place && (k->op != COLLECTIVE_REDUCE || comm_rank(k->c) == 0);
    const bool source = in_place && k->op == COLLECTIVE_ALL_REDUCE;
    *asked_bytes = in_place ? larger(send, recv) + (source ? send : 0) : send + recv;
    /* The ranks of a host share the memory of its processors, and none may take what another counts on. */
    if (device_kind_of(k->s->dev) == DEVICE_CPU &&
        *asked_bytes > device_free_bytes(k->s->dev) / (size_t)launch_local_size(k->l))
        return false;
    if (!in_place) {
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
    OWNED char *piece = repeated(table, bytes, size);
    device_upload(k->s->dev, to, piece, size < total ? size : total);
    for (size_t have = size; have < total; have *= 2)
        device_copy(k->s->dev, (char *)to + have, to, have < total - have ? have : total - have);
    device_sync(k->s->dev);
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
        upload(k, k->send, k->send_n, input_of(k, comm_rank(k->c), 0));
    if (k->source)
        upload(k, k->source, k->send_n, input_of(k, comm_rank(k->c), 0));
}

static bool same(comm_dtype t, const char *got, const char *want, double tolerance)
{
    uint16_t half[2];
    float x[2];
    if (tolerance == 0)
        return memcmp(got, want, comm_dtype_bytes(t)) == 0;
    if (t == COMM_FP32) {
        memcpy(&x[0], got, 4);
        memcpy(&x[1], want, 4);
    } else {
        memcpy(&half[0], got, 2);
        memcpy(&half[1], want, 2);
        x[0] = bf16_to_float(half[0]);
        x[1] = bf16_to_float(half[1]);
    }
    return fabs((double)x[0] - x[1]) <= tolerance * x[1];
}

static size_t wrong_in(const collective *k, const char *from, size_t n, char *table, double tolerance)
{
    const size_t e = comm_dtype_bytes(k->t), bytes = COLLECTIVE_PERIOD * e, size = piece_bytes(bytes, n * e);
    OWNED char *want = repeated(table, bytes, size), *got = xmalloc(size);
    size_t wrong = 0;
    for (size_t at = 0; at < n * e; at += size) {
        const size_t left = n * e - at, now = left < size ? left : size;
        device_download(k->s->dev, got, from + at, now);
        if (memcmp(got, want, now) != 0)
            for (size_t i = 0; i < now; i += e)
                wrong += !same(k->t, got + i, want + i, tolerance);
    }
    free(table);
    return wrong;
}

static size_t wrong_sums(const collective *k, size_t first, int calls)
{
    double tolerance;
    char *table = sums_of(k, first, calls, &tolerance);
    return wrong_in(k, k->recv, k->recv_n, table, tolerance);
}

size_t collective_wrong(collective *k, int calls)
{
    const size_t e = comm_dtype_bytes(k->t);
    size_t wrong = 0;
    switch (k->op) {
    case COLLECTIVE_ALL_REDUCE: return wrong_sums(k, 0, calls);
    case COLLECTIVE_REDUCE_SCATTER: return wrong_sums(k, (size_t)comm_rank(k->c) * k->count, calls);
    case COLLECTIVE_REDUCE: return comm_rank(k->c) == 0 ? wrong_sums(k, 0, calls) : 0;
    case COLLECTIVE_ALL_TO_ALL:
        for (int r = 0; r < comm_size(k->c); r++)
            wrong += wrong_in(k, (char *)k->recv + (size_t)r * k->count * e, k->count,
                              input_of(k, r, (size_t)comm_rank(k->c) * k->count), 0);
        return wrong;
    case COLLECTIVE_SEND_RECV:
        return wrong_in(k, k->recv, k->recv_n,
                        input_of(k, (comm_rank(k->c) + comm_size(k->c) - 1) % comm_size(k->c), 0), 0);
    case COLLECTIVE_BROADCAST: return wrong_in(k, k->recv, k->recv_n, input_of(k, 0, 0), 0);
    default:
        for (int r = 0; r < comm_size(k->c); r++)
            wrong += wrong_in(k, (char *)k->recv + (size_t)r * k->count * e, k->count, input_of(k, r, 0), 0);
        return wrong;
    }
}
