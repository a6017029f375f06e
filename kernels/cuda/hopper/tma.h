/* SPDX-License-Identifier: MIT */
/* Tensor maps for the copy engine (TMA) of Hopper and later. */
#pragma once

#include <cuda.h>

#include "kernels/kernels.h"

SB_C_BEGIN

/* Map of a (B, H, S, D) tensor of 16-bit elements (bf16 or fp16), box of `rows` x 64 columns, 128-byte swizzle; what
 * is outside the tensor reads as zero. */
sb_status tma_map_tensor(CUtensorMap *map, sb_dtype dtype, const sb_tensor *t, int batch, int heads, int seq,
                         int head_dim, int rows);
/* Like tma_map_tensor, with a box of `columns`: 64, or 32 with 64-byte swizzle. */
sb_status tma_map_panels(CUtensorMap *map, sb_dtype dtype, const sb_tensor *t, int batch, int heads, int seq,
                         int head_dim, int rows, int columns);
/* Map of a (rows, columns) matrix of 16-bit elements, `ld` of them from row to row, box of box_rows x box_columns. Rows
 * of a box that are 128 or 64 bytes long have the swizzle of that length, others none; what is outside the matrix
 * reads as zero and is not written. */
sb_status tma_map_matrix(CUtensorMap *map, sb_dtype dtype, const void *data, int64_t rows, int64_t columns, int64_t ld,
                         int box_rows, int box_columns);
/* Map of a (rows, columns) matrix of floats, contiguous, box of one row x `width` columns. */
sb_status tma_map_rows(CUtensorMap *map, const float *data, int64_t rows, int64_t columns, int width);

SB_C_END
