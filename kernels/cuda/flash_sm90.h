/* Host interface of the Hopper kernels (compute capability 9.0): bf16, fp16, and fp32 as split bf16. */
#ifndef STEPBENCH_FLASH_SM90_H
#define STEPBENCH_FLASH_SM90_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t flash_sm90_forward_workspace(sb_context *ctx, const sb_attention *a);
size_t flash_sm90_backward_workspace(sb_context *ctx, const sb_attention *a);
sb_status flash_sm90_forward(sb_context *ctx, const sb_attention *a, void *stream);
sb_status flash_sm90_backward(sb_context *ctx, const sb_attention *a, void *stream);

/* How the backward runs, for tests and for timing one way beside another; all zeros is what flash_sm90_backward does. */
typedef enum flash_backward_kernel {
    FLASH_BACKWARD_CHOSEN = 0, /* by shape */
    FLASH_BACKWARD_WIDE,       /* flash_backward_sm90.cuh, which takes every shape */
    FLASH_BACKWARD_NARROW,     /* flash_backward_narrow_sm90.cuh: head_dim <= 64, 16-bit */
    FLASH_BACKWARD_PAIR        /* flash_backward_pair_sm90.cuh: above that, 16-bit */
} flash_backward_kernel;
typedef struct flash_backward_options {
    flash_backward_kernel kernel;
    int section; /* key/value heads walked together */
    int blocks;  /* of the narrow kernel, at most; fewer blocks take more jobs each */
    int turns;   /* narrow kernel, adders of dq: 1 in turns, -1 in any order unless deterministic, 0 as chosen */
    int passes;  /* 1: the pass before the main kernel alone, 2: that and the main kernel (dq is not written) */
    int sums;    /* deterministic, not narrow: sums of dQ, at most one a key tile or pair of them; 0 as chosen */
} flash_backward_options;
/* Workspace with any options of the same `kernel` and `sums`; with zeros it is that of flash_sm90_backward_workspace. */
size_t flash_sm90_backward_workspace_with(sb_context *ctx, const sb_attention *a,
                                          const flash_backward_options *options);
sb_status flash_sm90_backward_with(sb_context *ctx, const sb_attention *a, const flash_backward_options *options,
                                   void *stream);

#ifdef __cplusplus
}
#endif
#endif
