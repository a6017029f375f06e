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

#ifdef __cplusplus
}
#endif
#endif
