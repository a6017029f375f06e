/* SPDX-License-Identifier: MIT */
/* Names and sizes of scales; see kernels/float8.h. */
#include "kernels/shared/float8.h"

const char *sb_scaling_name(sb_scaling s)
{
    static const char *const names[] = {
        [SB_SCALE_NONE] = "none",   [SB_SCALE_TENSOR] = "tensor",   [SB_SCALE_ROW] = "row",
        [SB_SCALE_1X128] = "1x128", [SB_SCALE_128X128] = "128x128", [SB_SCALE_1X32] = "1x32"};
    return names[s];
}

static size_t blocks(int n, int block)
{
    return ((size_t)n + (size_t)block - 1) / (size_t)block;
}

size_t sb_scale_count(sb_scaling s, int rows, int columns)
{
    switch (s) {
    case SB_SCALE_NONE: return 0;
    case SB_SCALE_TENSOR: return 1;
    case SB_SCALE_ROW: return (size_t)rows;
    case SB_SCALE_1X128: return blocks(columns, SB_FLOAT8_BLOCK) * (size_t)rows;
    case SB_SCALE_128X128: return blocks(rows, SB_FLOAT8_BLOCK) * (size_t)sb_float8_square_ld(columns);
    case SB_SCALE_1X32: return blocks(columns, SB_FLOAT8_MX_BLOCK) * (size_t)rows;
    }
    return 0;
}
