/* SPDX-License-Identifier: MIT */
/* Pieces from rank to rank, on the side stream: by a library of collectives, or by copy engines into the other rank's memory, which
 * take no multiprocessor from attention. A word at the sender says that the receiver's side stream has come to these moves, so that
 * what lay there is read; one at the receiver, that its pieces have come. Each is raised and lowered once for the moves of a group:
 * who opens has lowered what the last group filled, and who has filled waited for it to be open. */
#include "common/context/internal.h"

static bool sends(const context *k)
{
    return !k->planning && k->moving && k->comm;
}

static bool copies(const context *k)
{
    return k->at_rank[0];
}

/* ---- copies ---- */

static uint32_t *word(const context *k, int of, bool full, int from)
{
    return (uint32_t *)k->at_rank[of] + full * k->as.shape.ranks + from;
}

static bool first_of(unsigned *ranks, int rank)
{
    const bool first = !(*ranks >> rank & 1);
    *ranks |= 1u << rank;
    return first;
}

static void copy_to(context *k, int to, const void *src, const void *dst, size_t bytes)
{
    if (first_of(&k->gives, to)) {
        await(k, k->push[to], k->reached);
        device_flag_lower(k->as.d, k->push[to], word(k, k->rank, false, to));
    }
    device_stream_copy(k->as.d, k->push[to], k->at_rank[to] + ((const char *)dst - k->at_rank[k->rank]), src, bytes);
}

static void open_for(context *k, int from)
{
    if (first_of(&k->takes, from))
        device_flag_raise(k->as.d, k->side, word(k, from, false, k->rank));
}

/* As behind a send and a receive of the library: what came is here, and what went has left. */
static void end_copies(context *k)
{
    const int n = k->as.shape.ranks;
    for (int r = 0; r < n; r++)
        if (k->gives >> r & 1) {
            device_flag_raise(k->as.d, k->push[r], word(k, r, true, k->rank));
            record(k, k->push[r], k->sent[r]);
        }
    for (int r = 0; r < n; r++) {
        if (k->takes >> r & 1)
            device_flag_lower(k->as.d, k->side, word(k, k->rank, true, r));
        if (k->gives >> r & 1)
            await(k, k->side, k->sent[r]);
    }
}

/* ---- either ---- */

void moves_begin(context *k)
{
    if (!sends(k))
        return;
    k->gives = k->takes = 0;
    if (copies(k))
        record(k, k->side, k->reached);
    else
        comm_group_begin(k->comm);
}

void moves_end(context *k)
{
    if (!sends(k))
        return;
    if (copies(k))
        end_copies(k);
    else
        comm_group_end(k->comm);
}

void move(context *k, int from, int to, const void *src, void *dst, size_t elements, comm_dtype t)
{
    const size_t bytes = elements * comm_dtype_bytes(t);
    const bool stays = from == to;
    if (k->planning || (from != k->rank && to != k->rank))
        return;
    if (to == k->rank && (sends(k) ? stays : k->stands_in)) {
        if (src != dst)
            device_stream_copy(k->as.d, k->side, dst, src, bytes);
    } else if (sends(k) && to == k->rank) {
        k->received_bytes += (double)bytes;
        if (copies(k))
            open_for(k, from);
        else
            comm_recv(k->comm, dst, elements, t, from, k->side);
    } else if (sends(k)) {
        if (copies(k))
            copy_to(k, to, src, dst, bytes);
        else
            comm_send(k->comm, src, elements, t, to, k->side);
    }
}
