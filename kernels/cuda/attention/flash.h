/* SPDX-License-Identifier: MIT */
/* FlashAttention on CUDA: "flash" picks the Hopper kernels where they apply and the portable ones elsewhere. */
#pragma once

#include "kernels/kernels.h"

SB_C_BEGIN

extern const sb_attention_op sb_flash_op;          /* "flash" */
extern const sb_attention_op sb_flash_portable_op; /* "flash_portable": mma.sync, sm_80 and up, every dtype */

/* What flash and flash_portable ask of their arguments. `flash_supported` looks at shapes
 * and strides, the others at pointers too: 16-byte copies, by the copy engine or by threads, need 16-byte aligned
 * rows. */
sb_status flash_supported(sb_context *ctx, const sb_attention *a);
sb_status flash_check_forward(sb_context *ctx, const sb_attention *a);
sb_status flash_check_backward(sb_context *ctx, const sb_attention *a);

SB_C_END
