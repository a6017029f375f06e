/* SPDX-License-Identifier: MIT */
/* Names and sizes of scales, and which GPUs multiply with them; see kernels/float8.h. cuBLAS has scales by row and by block on
 * Hopper alone (github.com/pytorch/pytorch, issue 160693). */
#include "kernels/shared/float8.h"
#include "kernels/shared/internal.h"

enum { ADA = 89, HOPPER = 90, LIBRARY = 120900 };

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

size_t sb_scale_place(sb_scaling s, int rows, int columns, int row, int column)
{
    switch (s) {
    case SB_SCALE_NONE:
    case SB_SCALE_TENSOR: break;
    case SB_SCALE_ROW: return (size_t)row;
    case SB_SCALE_1X128: return (size_t)(column / SB_FLOAT8_BLOCK) * (size_t)rows + (size_t)row;
    case SB_SCALE_128X128:
        return (size_t)(row / SB_FLOAT8_BLOCK) * (size_t)sb_float8_square_ld(columns) +
               (size_t)(column / SB_FLOAT8_BLOCK);
    case SB_SCALE_1X32: return (size_t)(column / SB_FLOAT8_MX_BLOCK) * (size_t)rows + (size_t)row;
    }
    return 0;
}

sb_status sb_float8_gate(sb_scaling scaling, int capability, int library)
{
    const bool tensor = scaling == SB_SCALE_TENSOR;
    if (scaling == SB_SCALE_1X32)
        return sb_error(
            SB_UNSUPPORTED,
            "float8 products scaled by 1x32 need compute capability 10.0 and a kernel that is not here yet; the CPU "
            "backend runs every scaling");
    if (tensor ? capability < ADA : capability != HOPPER)
        return sb_error(
            SB_UNSUPPORTED,
            "float8 products scaled by %s need compute capability %s; this GPU has %d.%d%s; the CPU backend runs "
            "every scaling",
            sb_scaling_name(scaling), tensor ? "8.9 or above" : "9.0 exactly", capability / 10, capability % 10,
            !tensor && capability >= ADA ? ", which takes scaling by tensor" : "");
    if (!tensor && library < LIBRARY)
        return sb_error(SB_UNSUPPORTED, "float8 products scaled by %s need cuBLAS 12.9 or newer, not %d.%d",
                        sb_scaling_name(scaling), library / 10000, library / 100 % 100);
    return SB_OK;
}
