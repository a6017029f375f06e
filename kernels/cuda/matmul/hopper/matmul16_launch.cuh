/* SPDX-License-Identifier: MIT */
/* Host side that every kind of the 16-bit matmul for Hopper shares: what is common to all maps, the order of tiles, the
 * launch. */
#pragma once

#include <algorithm>

#include "kernels/cuda/hopper/cluster_split.h"
#include "kernels/cuda/hopper/launch.cuh"
#include "kernels/cuda/matmul/hopper/matmul16.cuh"
#include "kernels/cuda/hopper/tma.h"

namespace matmul16
{

constexpr int64_t GROUP_BYTES = 20 << 20; /* bytes of A that stay in L2 while B and the result pass through */

inline int parts(int64_t x, int unit)
{
    return (int)((x + unit - 1) / unit);
}

/* A matrix of 16-bit elements. */
struct matrix {
    const void *data;
    int64_t rows, columns, ld;

    const void *at(int64_t row, int64_t column) const { return (const char *)data + 2 * (row * ld + column); }
};

template <class T>
sb_status map_of(CUtensorMap *map, const matrix &x, int box_rows, int box_columns)
{
    return tma_map_matrix(map, is_bf16<T>::value ? SB_BF16 : SB_FP16, x.data, x.rows, x.columns, x.ld, box_rows,
                          box_columns);
}

/* The result has `rows` rows and `columns` columns (of h, for SwiGLU); maps but A's are made. */
template <class T, class S>
sb_status launch(sb_context *ctx, const char *what, params &p, const matrix &a, int64_t columns, cudaStream_t stream)
{
    const auto kernel = matmul16_kernel<T, S>;
    const sb_status st = map_of<T>(&p.a, a, ROWS, STEP);
    if (st)
        return st;
    p.steps = parts(a.columns, STEP);
    p.tiles_m = parts(a.rows, CLUSTER * ROWS);
    p.tiles_n = parts(columns, S::WIDTH);
    p.tiles = p.tiles_m * p.tiles_n;
    const int64_t fit = std::max<int64_t>(1, GROUP_BYTES / (CLUSTER * ROWS * 2 * a.columns));
    p.group = parts(p.tiles_m, parts(p.tiles_m, (int)std::min<int64_t>(fit, p.tiles_m))); /* groups alike */
    const int at_once = count_clusters(ctx, (const void *)kernel, THREADS, S::BYTES)[1];
    if (at_once < 1)
        return sb_error(SB_UNSUPPORTED, "%s: no cluster of two blocks fits on this device", what);
    return launch_hopper(what, kernel, dim3((unsigned)std::min(p.tiles, at_once) * CLUSTER), THREADS, S::BYTES, CLUSTER,
                         stream, p);
}

} // namespace matmul16
