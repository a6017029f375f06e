/* SPDX-License-Identifier: MIT */
/* What kernels do for ranks of one host whose copy engines put rows into each other's memory: they count steps, wait for
 * flags, and add up. Behind the rows, a copy engine moves the number of the step, a word of its own GPU, to a flag of the
 * receiver. So nothing is sent by a multiprocessor, and a captured step can be replayed. */
#pragma once

#include "kernels/shared/direct.h"

SB_C_BEGIN

/* *number += 1, in stream order; it goes round. Without CUDA: SB_UNSUPPORTED, as the calls below. */
sb_status sb_cuda_direct_count(uint32_t *number, void *stream);

/* What follows on the stream sees what was sent ahead of all these flags. While it waits it holds a single warp. */
typedef struct sb_direct_await {
    int count;                                  /* 1 to SB_DIRECT_RANKS_MAX */
    const uint32_t *flags[SB_DIRECT_RANKS_MAX]; /* of this GPU's memory: each is to reach *number */
    const uint32_t *number, *leave;             /* leave: as in direct.h */
} sb_direct_await;
sb_status sb_direct_await_check(const sb_direct_await *p);
sb_status sb_cuda_direct_await(const sb_direct_await *p, void *stream);

/* out = the sum of the parts in their order, in fp32, rounded to the dtype; with a residual that is added then, and rounded
 * again: the bits of a sum and an addition behind it. */
typedef struct sb_direct_sum {
    sb_dtype dtype;                         /* fp32, tf32 (as fp32), bf16 or fp16 */
    int count;                              /* of parts, 1 to SB_DIRECT_RANKS_MAX */
    size_t n;                               /* elements of each, a multiple of 16 bytes */
    const void *parts[SB_DIRECT_RANKS_MAX]; /* all 16-byte aligned */
    const void *residual;                   /* NULL: none */
    void *out;                              /* may be a part or the residual */
} sb_direct_sum;
sb_status sb_direct_sum_check(const sb_direct_sum *p);
sb_status sb_cuda_direct_sum(const sb_direct_sum *p, void *stream);
sb_status sb_cpu_direct_sum(const sb_direct_sum *p); /* in memory of the host, at once */

SB_C_END
