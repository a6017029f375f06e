/* SPDX-License-Identifier: MIT */
/* Sizes and argument checks of what GPUs do in each other's memory, which need no GPU; see direct.h. */
#include "kernels/shared/direct.h"

#include <limits.h>

#include "kernels/shared/internal.h"
#include "kernels/shared/direct_layout.h"

size_t sb_direct_mailbox_bytes(size_t message_bytes, int ranks)
{
    return direct_mailbox_bytes(message_bytes, ranks);
}

size_t sb_direct_message_bytes(size_t mailbox_bytes, int ranks, sb_direct_algorithm algorithm)
{
    const size_t capacity = direct_capacity(mailbox_bytes, ranks);
    const size_t packets = algorithm == SB_DIRECT_ONE_SHOT   ? capacity
                           : algorithm == SB_DIRECT_TWO_SHOT ? capacity / 2 * (size_t)ranks
                                                             : capacity * (size_t)ranks;
    return packets * DIRECT_PAYLOAD_BYTES;
}

static sb_status check_mailboxes(void *const *mailboxes, int ranks)
{
    for (int r = 0; r < ranks; r++)
        if (!mailboxes[r] || (uintptr_t)mailboxes[r] % DIRECT_HEADER_BYTES)
            return sb_error(SB_INVALID, "the mailbox of rank %d is %s", r,
                            mailboxes[r] ? "not 128-byte aligned" : "NULL");
    return SB_OK;
}

/* n elements are a rank's slice. */
static bool is_sliced(const sb_direct_collective *p)
{
    return p->algorithm >= SB_DIRECT_ALL_GATHER;
}

static sb_status check_ranks(const char *what, int rank, int ranks)
{
    if (ranks < 2 || ranks > SB_DIRECT_RANKS_MAX)
        return sb_error(SB_UNSUPPORTED, "%s between GPUs is for 2 to %d ranks, not %d", what, SB_DIRECT_RANKS_MAX,
                        ranks);
    if (rank < 0 || rank >= ranks)
        return sb_error(SB_INVALID, "rank %d is none of the %d", rank, ranks);
    return SB_OK;
}

/* bytes: of n elements. */
static sb_status check_memory(const sb_direct_collective *p, size_t bytes)
{
    const uintptr_t in = (uintptr_t)p->in, out = (uintptr_t)p->out, align = is_sliced(p) && bytes % 4 ? 2 : 4;
    const size_t all = bytes * (size_t)p->ranks, own = bytes * (size_t)p->rank;
    const bool gather = p->algorithm == SB_DIRECT_ALL_GATHER, scatter = p->algorithm == SB_DIRECT_REDUCE_SCATTER;
    const bool in_place = in + (scatter ? own : 0) == out + (gather ? own : 0);
    if (!p->in || !p->out || !p->leave)
        return sb_error(SB_INVALID, "%s is NULL", !p->in ? "in" : !p->out ? "out" : "leave");
    if (in % align || out % align || (uintptr_t)p->leave % 4)
        return sb_error(SB_INVALID, "in and out must be %d-byte aligned, and leave 4-byte", (int)align);
    if (!in_place && in < out + (gather ? all : bytes) && out < in + (scatter ? all : bytes))
        return sb_error(SB_INVALID, "in and out overlap without being the same");
    return check_mailboxes(p->mailboxes, p->ranks);
}

sb_status sb_direct_gate_check(const sb_direct_gate *p)
{
    SB_TRY(check_ranks("a gate", p->rank, p->ranks));
    if (!p->leave || (uintptr_t)p->leave % 4)
        return sb_error(SB_INVALID, "leave must be given and 4-byte aligned");
    return check_mailboxes(p->mailboxes, p->ranks);
}

sb_status sb_direct_check(const sb_direct_collective *p)
{
    SB_TRY(check_ranks("a collective", p->rank, p->ranks));
    if (p->dtype != SB_FP32 && p->dtype != SB_BF16 && p->dtype != SB_FP16)
        return sb_error(SB_UNSUPPORTED, "a collective between GPUs takes fp32, bf16 or fp16");
    if ((unsigned)p->algorithm > SB_DIRECT_REDUCE_SCATTER)
        return sb_error(SB_INVALID, "there is no algorithm %d of collectives between GPUs", (int)p->algorithm);
    const size_t e = (size_t)sb_dtype_bytes(p->dtype);
    const size_t most =
        sb_direct_message_bytes(p->mailbox_bytes, p->ranks, p->algorithm) / (is_sliced(p) ? (size_t)p->ranks : 1);
    if (p->n > most / e || p->n > INT_MAX)
        return sb_error(SB_UNSUPPORTED,
                        "%zu elements of %zu bytes are more than the %zu bytes that mailboxes of %zu take", p->n, e,
                        most, p->mailbox_bytes);
    return p->n == 0 ? SB_OK : check_memory(p, p->n * e);
}

sb_status sb_direct_gather_check(const sb_direct_all_gather *p)
{
    if (p->ranks < 1 || p->ranks > SB_DIRECT_RANKS_MAX)
        return sb_error(SB_UNSUPPORTED, "an all-gather between GPUs is for 1 to %d ranks, not %d", SB_DIRECT_RANKS_MAX,
                        p->ranks);
    if (p->rank < 0 || p->rank >= p->ranks)
        return sb_error(SB_INVALID, "rank %d is none of the %d", p->rank, p->ranks);
    if (p->bytes % 16 || p->max_blocks < 0)
        return sb_error(SB_INVALID, p->max_blocks < 0 ? "%d thread blocks" : "a slice is no multiple of 16 bytes",
                        p->max_blocks);
    const uintptr_t out = (uintptr_t)p->out;
    if (p->bytes && (!out || out % 16))
        return sb_error(SB_INVALID, "out is %s", out ? "not 16-byte aligned" : "NULL");
    for (int r = 0; r < p->ranks && p->bytes; r++) {
        const uintptr_t slice = (uintptr_t)p->slices[r];
        if (!slice || slice % 16)
            return sb_error(SB_INVALID, "the slice of rank %d is %s", r, slice ? "not 16-byte aligned" : "NULL");
        if (slice < out + p->bytes * (size_t)p->ranks && out < slice + p->bytes)
            return sb_error(SB_INVALID, "out overlaps the slice of rank %d", r);
    }
    return SB_OK;
}
