/* D = A op(B) + C in bf16 by a kernel of our own for Hopper: see matmul16_sm90.cuh. Nothing calls it yet but
 * measurements, which compare it with the library. Not part of the API. */
#ifndef STEPBENCH_MATMUL16_SM90_H
#define STEPBENCH_MATMUL16_SM90_H

#include "kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Columns of a tile: 256, 200, 192, 160, 128. */
enum { MATMUL16_TILES = 5 };
extern const int matmul16_tiles[MATMUL16_TILES];

/* SB_OK, or why not: Hopper, bf16, A not transposed, rows and pointers in whole units of 16 bytes. */
sb_status matmul16_supported(const sb_context *ctx, const sb_matmul *p);
/* With tiles of n columns. C, where it is given, is added before the only rounding if n <= 200, after it if it is
 * 256. */
sb_status matmul16_run(sb_context *ctx, const sb_matmul *p, int n, void *stream);

#ifdef __cplusplus
}
#endif
#endif
