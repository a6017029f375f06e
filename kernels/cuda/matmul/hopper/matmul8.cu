/* SPDX-License-Identifier: MIT */
/* The float8 matmul for Hopper: what it can run, maps, launch. */
#include "kernels/cuda/matmul/hopper/matmul8.h"

#include <algorithm>

#include "kernels/cuda/hopper/cluster_split.h"
#include "kernels/cuda/hopper/launch.cuh"
#include "kernels/cuda/hopper/tma.h"
#include "kernels/cuda/matmul/hopper/matmul8.cuh"
#include "kernels/shared/float8.h"

using namespace matmul8;

namespace
{

constexpr int64_t GROUP_BYTES = 20 << 20; /* bytes of A that stay in L2 while B and the result pass through */
/* The taller tile reads less, the other one fills the chip where few tiles of 256 rows would leave much of it idle. */
constexpr int TILES[MATMUL8_MAX_PROPOSALS] = {256, 128};

int parts(int64_t x, int unit)
{
    return (int)((x + unit - 1) / unit);
}

/* A map of words of 16 bits; `bytes` of an element, codes or D. */
sb_status map_of(CUtensorMap *map, const void *data, int rows, int columns, int ld, int bytes, int box_rows,
                 int box_bytes)
{
    return tma_map_matrix(map, SB_BF16, data, rows, (int64_t)columns * bytes / 2, (int64_t)ld * bytes / 2, box_rows,
                          box_bytes / 2);
}

/* After sb_scale_place. */
scale_view view_of(sb_scaling scaling, const float *data, int rows, int k)
{
    switch (scaling) {
    case SB_SCALE_ROW: return {data, 0, 0, 1, rows};
    case SB_SCALE_1X128: return {data, rows, 0, 1, rows};
    case SB_SCALE_128X128: return {data, 1, 7, sb_float8_square_ld(k), rows};
    default: return {data, 0, 0, 0, rows};
    }
}

template <class S>
sb_status run_tile(sb_context *ctx, const sb_matmul *x, cudaStream_t stream)
{
    static const char what[] = "float8 matmul (Hopper)";
    const int bytes = sb_dtype_bytes(x->dtype_out);
    params p = {};
    sb_status st = map_of(&p.a, x->a, x->m, x->k, x->lda, 1, S::ROWS / 2, STEP);
    if (!st)
        st = map_of(&p.b, x->b, x->n, x->k, x->ldb, 1, COLUMNS, STEP);
    if (!st)
        st = map_of(&p.d, x->d, x->m, x->n, x->ldd, bytes, BOX_ROWS, SLOT_ROW);
    if (st)
        return st;
    p.scale_a = view_of(x->scaling_a, x->scale_a, x->m, x->k);
    p.scale_b = view_of(x->scaling_b, x->scale_b, x->n, x->k);
    p.c = x->c, p.ldc = x->ldc, p.m = x->m, p.n = x->n, p.out = x->dtype_out;
    p.steps = parts(x->k, STEP);
    p.tiles_m = parts(x->m, S::ROWS);
    p.tiles_n = parts(x->n, CLUSTER * COLUMNS);
    p.tiles = p.tiles_m * p.tiles_n;
    const int64_t fit = std::max<int64_t>(1, GROUP_BYTES / ((int64_t)S::ROWS * x->k));
    p.group = parts(p.tiles_m, parts(p.tiles_m, (int)std::min<int64_t>(fit, p.tiles_m))); /* groups alike */
    const auto kernel = matmul8_kernel<S>;
    const int at_once = count_clusters(ctx, (const void *)kernel, THREADS, S::BYTES)[1];
    if (at_once < 1)
        return sb_error(SB_UNSUPPORTED, "%s: no cluster of two blocks fits on this device", what);
    return launch_hopper(what, kernel, dim3((unsigned)std::min(p.tiles, at_once) * CLUSTER), THREADS, S::BYTES, CLUSTER,
                         stream, p);
}

template <bool A_E5M2, scaling WHEN>
sb_status run_rows(sb_context *ctx, const sb_matmul *x, int rows, cudaStream_t stream)
{
    return rows == TILES[0] ? run_tile<matmul8::tile<A_E5M2, WHEN, 2>>(ctx, x, stream)
                            : run_tile<matmul8::tile<A_E5M2, WHEN, 1>>(ctx, x, stream);
}

template <bool A_E5M2>
sb_status run(sb_context *ctx, const sb_matmul *x, int rows, cudaStream_t stream)
{
    switch (x->scaling_b) {
    case SB_SCALE_1X128: return run_rows<A_E5M2, BY_ELEMENT>(ctx, x, rows, stream);
    case SB_SCALE_128X128: return run_rows<A_E5M2, BY_ROW>(ctx, x, rows, stream);
    default: return run_rows<A_E5M2, AT_END>(ctx, x, rows, stream);
    }
}

bool whole_units(const sb_matmul *p, int ld)
{
    return (int64_t)ld * sb_dtype_bytes(p->dtype_out) % 16 == 0;
}

int clusters_at_once(sb_context *ctx)
{
    using S = matmul8::tile<false, AT_END, 2>;
    return count_clusters(ctx, (const void *)matmul8_kernel<S>, THREADS, S::BYTES)[1];
}

} // namespace

extern "C" int matmul8_propose(sb_context *ctx, int rows[MATMUL8_MAX_PROPOSALS])
{
    if (ctx->cc_major != 9 || ctx->cc_minor != 0 || ctx->smem_optin_bytes < SMEM_LIMIT || clusters_at_once(ctx) < 1)
        return 0;
    std::copy(TILES, TILES + MATMUL8_MAX_PROPOSALS, rows);
    return MATMUL8_MAX_PROPOSALS;
}

extern "C" sb_status matmul8_run(sb_context *ctx, const sb_matmul *p, int rows, void *stream)
{
    int proposed[MATMUL8_MAX_PROPOSALS];
    const int count = matmul8_propose(ctx, proposed);
    if (std::find(proposed, proposed + count, rows) == proposed + count)
        return sb_error(SB_UNSUPPORTED, "float8 matmul (Hopper): no tiles of %d rows on this device", rows);
    if (p->sums != SB_SUMS_EXACT || p->dtype_b != SB_E4M3)
        return sb_error(SB_UNSUPPORTED, "float8 matmul (Hopper): sums are not exact, or B is not in e4m3");
    if (!whole_units(p, p->ldd) || (p->c && !whole_units(p, p->ldc)))
        return sb_error(SB_UNSUPPORTED, "float8 matmul (Hopper): rows of C or D are not whole units of 16 bytes");
    return p->dtype == SB_E5M2 ? run<true>(ctx, p, rows, (cudaStream_t)stream)
                               : run<false>(ctx, p, rows, (cudaStream_t)stream);
}
