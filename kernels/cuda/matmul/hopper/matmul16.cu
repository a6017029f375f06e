/* SPDX-License-Identifier: MIT */
/* The plain 16-bit matmul for Hopper: what it can run, maps, launch. */
#include "kernels/cuda/matmul/hopper/matmul16.h"

#include "kernels/cuda/matmul/hopper/matmul16_launch.cuh"

using namespace matmul16;

namespace
{

/* The widest reads the least, 200 divides many a model's widths, 160 fills the chip where those leave much of it idle. */
constexpr int TILES[MATMUL16_MAX_PROPOSALS] = {256, 200, 160};

/* Only the maps that the kernel uses are made: each costs the host a call of the driver. */
template <class T, class S>
sb_status map_all(params &p, const sb_matmul *x)
{
    const matrix d = {x->d, x->m, x->n, x->ldd}, c = {x->c, x->m, x->n, x->ldc};
    const matrix b = S::B_ROWS ? matrix{x->b, x->k, x->n, x->ldb} : matrix{x->b, x->n, x->k, x->ldb};
    sb_status st;
    if ((st = S::B_ROWS ? map_of<T>(&p.b[0], b, STEP / 2, S::PANEL_COLUMNS) : map_of<T>(&p.b[0], b, S::B_FIRST, STEP)))
        return st;
    p.b[1] = p.b[0];
    if (!S::B_ROWS && 2 * S::B_FIRST != S::N && (st = map_of<T>(&p.b[1], b, S::N - S::B_FIRST, STEP)))
        return st;
    if ((st = map_of<T>(&p.out[0], d, BOX_ROWS, S::CHUNK)))
        return st;
    p.out[1] = p.out[0];
    return x->c && x->c != x->d ? map_of<T>(&p.out[1], c, BOX_ROWS, S::CHUNK) : SB_OK;
}

template <class T, int N, bool B_ROWS>
sb_status run_tile(sb_context *ctx, const sb_matmul *x, cudaStream_t stream)
{
    using S = matmul16::tile<PLAIN, N, B_ROWS>;
    params p = {};
    const sb_status st = map_all<T, S>(p, x);
    p.option = x->c != NULL;
    return st ? st : launch<T, S>(ctx, "matmul (Hopper)", p, {x->a, x->m, x->k, x->lda}, x->n, stream);
}

template <class T, int N>
sb_status run_layout(sb_context *ctx, const sb_matmul *x, cudaStream_t stream)
{
    return x->transpose_b ? run_tile<T, N, false>(ctx, x, stream) : run_tile<T, N, true>(ctx, x, stream);
}

template <class T>
sb_status run(sb_context *ctx, const sb_matmul *x, int columns, cudaStream_t stream)
{
    switch (columns) {
    case TILES[0]: return run_layout<T, TILES[0]>(ctx, x, stream);
    case TILES[1]: return run_layout<T, TILES[1]>(ctx, x, stream);
    default: return run_layout<T, TILES[2]>(ctx, x, stream);
    }
}

bool aligned(const void *p, int ld)
{
    return (uintptr_t)p % 16 == 0 && ld % 8 == 0;
}

int clusters_at_once(sb_context *ctx)
{
    using S = matmul16::tile<PLAIN, TILES[0], false>;
    return count_clusters(ctx, (const void *)matmul16_kernel<__nv_bfloat16, S>, THREADS, S::BYTES)[1];
}

} // namespace

extern "C" int matmul16_propose(sb_context *ctx, bool adds, int columns[MATMUL16_MAX_PROPOSALS])
{
    if (ctx->cc_major != 9 || ctx->cc_minor != 0 || ctx->smem_optin_bytes < SMEM_LIMIT || clusters_at_once(ctx) < 1)
        return 0;
    int count = 0;
    for (int n : TILES)
        if (!adds || n <= WIDEST_THAT_ADDS)
            columns[count++] = n;
    return count;
}

extern "C" sb_status matmul16_run(sb_context *ctx, const sb_matmul *p, int columns, void *stream)
{
    int proposed[MATMUL16_MAX_PROPOSALS];
    const int count = matmul16_propose(ctx, p->c != NULL, proposed);
    if (std::find(proposed, proposed + count, columns) == proposed + count)
        return sb_error(SB_UNSUPPORTED, "matmul (Hopper): no tiles of %d columns%s on this device", columns,
                        p->c ? " that add C" : "");
    if ((p->dtype != SB_BF16 && p->dtype != SB_FP16) || p->dtype_out != p->dtype || p->transpose_a)
        return sb_error(SB_UNSUPPORTED, "matmul (Hopper): not of one 16-bit dtype, or A is transposed");
    if (!aligned(p->a, p->lda) || !aligned(p->b, p->ldb) || !aligned(p->d, p->ldd) || (p->c && !aligned(p->c, p->ldc)))
        return sb_error(SB_UNSUPPORTED, "matmul (Hopper): pointers or rows are not whole units of 16 bytes");
    return p->dtype == SB_BF16 ? run<__nv_bfloat16>(ctx, p, columns, (cudaStream_t)stream)
                               : run<__half>(ctx, p, columns, (cudaStream_t)stream);
}
