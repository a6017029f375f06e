/* SPDX-License-Identifier: MIT */
/* All-reduce of small tensors between GPUs of one host that reach each other's memory, without a library: every rank
 * stores packets that carry their own flag (the idea of NCCL's low-latency protocol) into mailboxes of the others, and
 * polls its own. One-shot: everyone sends everything to everyone, and adds up. Two-shot: rank j adds up slice j and
 * sends the sum to everyone; that sends 2 (n-1)/n of the message instead of n-1 times it, for a second trip. Its trips
 * alone are a reduce-scatter and an all-gather.
 *
 * Sums are in fp32 in the order of ranks, rounded once: all ranks get the same bits. Packets of 16 bytes are loaded and
 * stored at once, which CUDA's memory model promises between GPUs with native atomics to each other's memory
 * (cudaDevP2PAttrNativeAtomicSupported: NVLink), from sm_70 on. */
#pragma once

#include "kernels/types.h"

SB_C_BEGIN

enum { SB_DIRECT_RANKS_MAX = 8 };
typedef enum sb_direct_algorithm {
    SB_DIRECT_ONE_SHOT, /* all-reduces */
    SB_DIRECT_TWO_SHOT,
    SB_DIRECT_ALL_GATHER, /* one trip: every rank's slice goes to everyone */
    SB_DIRECT_REDUCE_SCATTER
} sb_direct_algorithm;

typedef struct sb_direct_collective {
    sb_direct_algorithm algorithm;
    int rank, ranks; /* 2 to SB_DIRECT_RANKS_MAX */
    sb_dtype dtype;  /* SB_FP32, SB_BF16 or SB_FP16 */
    size_t n;        /* elements, of an all-gather or reduce-scatter those of a rank's slice; 0: nothing is done */
    /* In this GPU's memory, 4-byte aligned, slices of an odd number of 16-bit elements 2-byte. Of (n), but an all-gather's
     * out and a reduce-scatter's in of (ranks, n). In place: both are the same, or the smaller one is this rank's slice of
     * the larger one; else they do not overlap. */
    const void *in;
    void *out;
    /* The mailbox of each rank as mapped here, [rank] this one's own; 128-byte aligned device memory. All bytes are zero
     * before the first call, and only these kernels write there. */
    void *mailboxes[SB_DIRECT_RANKS_MAX];
    size_t mailbox_bytes; /* size of each mailbox, the same for all ranks and calls */
    /* A word the GPU can read (mapped host memory, for instance): once it is not 0, waiting ends and results are wrong.
     * A call in which another rank has died ends in no other way. */
    const uint32_t *leave;
} sb_direct_collective;

/* Size of a mailbox for messages of up to message_bytes between `ranks` ranks. */
size_t sb_direct_mailbox_bytes(size_t message_bytes, int ranks);
/* The largest message of an algorithm that a mailbox takes, all slices together; a multiple of 4 bytes. */
size_t sb_direct_message_bytes(size_t mailbox_bytes, int ranks, sb_direct_algorithm algorithm);
/* SB_INVALID or SB_UNSUPPORTED with a sentence; looks at no memory. */
sb_status sb_direct_check(const sb_direct_collective *p);

/* Enqueues it on the stream (cudaStream_t). All ranks make the same calls, of the same n, dtype and algorithm, in the
 * same order; the calls on one set of mailboxes follow one another in stream order on every rank. Can be captured in a
 * graph and replayed. A place in the mailbox that was last used exactly a multiple of 2^32 calls ago would be taken for
 * new. Without CUDA: SB_UNSUPPORTED. */
sb_status sb_cuda_direct_collective(const sb_direct_collective *p, void *stream);

/* All-gather of slices in the memory of GPUs of one host: a kernel of this GPU loads them over whatever link reaches
 * them. The kernel does not wait: all slices must be complete before it starts, and unchanged until it has ended. */
typedef struct sb_direct_all_gather {
    int rank, ranks;                         /* 1 to SB_DIRECT_RANKS_MAX */
    const void *slices[SB_DIRECT_RANKS_MAX]; /* the slice of each rank, as mapped here; 16-byte aligned */
    void *out;      /* (ranks, bytes), 16-byte aligned, in this GPU's memory, apart from all slices */
    size_t bytes;   /* size of a slice, a multiple of 16 */
    int max_blocks; /* thread blocks; 0: 16 */
} sb_direct_all_gather;

sb_status sb_direct_gather_check(const sb_direct_all_gather *p);
/* Enqueues it on the stream (cudaStream_t). Without CUDA: SB_UNSUPPORTED. */
sb_status sb_cuda_direct_all_gather(const sb_direct_all_gather *p, void *stream);

typedef struct sb_direct_gate {
    int rank, ranks;                      /* 2 to SB_DIRECT_RANKS_MAX */
    void *mailboxes[SB_DIRECT_RANKS_MAX]; /* as above; of any size, and all-reduces may use them, too */
    const uint32_t *leave;                /* as above */
} sb_direct_gate;

sb_status sb_direct_gate_check(const sb_direct_gate *p);
/* Enqueues it on the stream (cudaStream_t): what follows it there sees what all ranks have enqueued ahead of their gate
 * of the same number, in each other's memory, too. All gates of a rank are on one stream, or on several that wait for
 * each other. While it waits it holds a single warp. Can be captured in a graph. Without CUDA: SB_UNSUPPORTED. */
sb_status sb_cuda_direct_gate(const sb_direct_gate *p, void *stream);

SB_C_END
