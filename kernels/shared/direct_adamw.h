/* SPDX-License-Identifier: MIT */
/* Sum of gradients, AdamW and the sending of parameters in one pass, between GPUs of one host that reach each other's
 * memory: each rank has a slice of a range of parameters and its optimizer state (ZeRO-1: Rajbhandari et al., 2020),
 * loads the gradients of that slice from all ranks, adds them in fp32 in the order of ranks, updates, and stores the
 * parameters to all ranks. It sends what a reduce-scatter and an all-gather send, and sums are never in memory.
 *
 * A call does not wait for other ranks. Before it, all ranks must have computed these gradients and finished reading these
 * parameters; before gradients change or parameters are read, the calls of all ranks must have ended: sb_cuda_direct_gate. */
#pragma once

#include "kernels/shared/direct.h"
#include "kernels/train.h"

SB_C_BEGIN

typedef struct sb_direct_adamw {
    int rank, ranks; /* 1 to SB_DIRECT_RANKS_MAX */
    /* The update of this rank's slice. n is a multiple of 4 and below 2^32. max_blocks: of 256 threads; 0: as many as there is room for. param and
     * grad are not looked at: */
    sb_adamw update;
    void *params[SB_DIRECT_RANKS_MAX];      /* (n) of this slice on each rank, as mapped here; written on all */
    const void *grads[SB_DIRECT_RANKS_MAX]; /* (n) of this slice on each rank; read on all */
    /* No update: the sums, rounded once to dtype_grad, go to sums (n), which may be grads[rank], and parameters are sent
     * as they are. NULL: an update. */
    void *sums;
} sb_direct_adamw;

/* SB_INVALID or SB_UNSUPPORTED with a sentence; looks at no memory. */
sb_status sb_direct_adamw_check(const sb_direct_adamw *p);

/* Enqueues it on the stream (cudaStream_t); it can be captured in a graph. All memory is aligned to 16 bytes. Dtypes:
 * all fp32; or bf16 parameters with a split master and moments in fp32 or in bf16 by chance, or with no master and bf16
 * moments to the nearest, and gradients in bf16 or fp32. With one rank it has the bits of the op adamw. Without CUDA: SB_UNSUPPORTED. */
sb_status sb_cuda_direct_adamw(const sb_direct_adamw *p, void *stream);

SB_C_END
