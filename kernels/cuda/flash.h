/* FlashAttention on CUDA: "flash" picks the Hopper kernels where they apply and the portable ones elsewhere. */
#ifndef STEPBENCH_FLASH_H
#define STEPBENCH_FLASH_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const sb_attention_op sb_flash_op;          /* "flash" */
extern const sb_attention_op sb_flash_portable_op; /* "flash_portable": mma.sync, sm_80 and up, every dtype */

#ifdef __cplusplus
}
#endif
#endif
