/* SPDX-License-Identifier: MIT */
/* Products by kernels of our own are algorithms beside the library's: what the bytes of such an algorithm mean. Not part
 * of the API. */
#ifndef STEPBENCH_CUDA_MATMUL_OWN_H
#define STEPBENCH_CUDA_MATMUL_OWN_H

#include <stdint.h>

/* The first bytes, those behind them are zero. No algorithm of the library begins with such a word: its first one is a
 * small number. */
typedef struct matmul_own {
    uint64_t kernel;
    int64_t value; /* at least 1 */
} matmul_own;

#define MATMUL_OWN_FP32 0x32337066206e776full /* "own fp32": matmul/hopper/matmul_fp32.h; the value is the blocks of a cluster */
#define MATMUL_OWN_16 0x666c6168206e776full   /* "own half": matmul/hopper/matmul16.h; the value is the columns of a tile */

#endif
