/* SPDX-License-Identifier: MIT */
/* What every op of the API speaks of: status, dtypes, strided tensors, the context. */
#ifndef STEPBENCH_KERNELS_TYPES_H
#define STEPBENCH_KERNELS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define SB_C_BEGIN extern "C" {
#define SB_C_END }
#else
#define SB_C_BEGIN
#define SB_C_END
#endif

SB_C_BEGIN

typedef enum sb_status {
    SB_OK = 0,
    SB_UNSUPPORTED, /* valid, but this op can't do this shape, dtype or device; sb_last_message says why */
    SB_INVALID,     /* arguments contradict each other */
    SB_NO_MEMORY,   /* workspace too small, or the library had no memory */
    SB_DEVICE_ERROR /* the device or a library reported an error; sb_last_message has its text */
} sb_status;

const char *sb_status_name(sb_status s);
const char *sb_last_message(void); /* the last error of this thread; "" when there was none */

typedef enum sb_dtype {
    SB_BF16 = 0,
    SB_FP16 = 1,
    SB_TF32 = 2, /* fp32 in memory, tf32 products, fp32 sums */
    SB_FP32 = 3, /* fp32 in memory, in the errors of products, and in sums */
    SB_BF16X3 =
        4,       /* only for flash: fp32 in memory, three products of bf16 parts for one (2^-17 left out), fp32 sums */
    SB_E4M3 = 5, /* only operands of products and what quantize makes of them; kernels/float8.h */
    SB_E5M2 = 6  /* likewise */
} sb_dtype;
const char *sb_dtype_name(sb_dtype t); /* "bf16", "fp16", "tf32", "fp32", "bf16x3", "e4m3", "e5m2" */
int sb_dtype_bytes(sb_dtype t);        /* bytes of an element in memory */

/* A (B, H, S, D) tensor of any layout with D contiguous: element (b,h,s,d) at data + b*stride_b + h*stride_h +
 * s*stride_s + d, strides in elements. BHSD: (H*S*D, S*D, D); BSHD: (S*H*D, D, H*D). On CUDA data must be 16-byte
 * aligned and every stride a multiple of 16 bytes. */
typedef struct sb_tensor {
    void *data;
    int64_t stride_b, stride_h, stride_s;
} sb_tensor;

/* Library handles, their workspace and counters on one device: one thread and one stream at a time. */
typedef struct sb_context sb_context;

SB_C_END
#endif
