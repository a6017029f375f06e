/* The plain 16-bit matmul for Hopper: what it can run, maps, launch. */
#include "kernels/cuda/matmul16_sm90.h"

#include "kernels/cuda/matmul16_launch.cuh"
#include "kernels/train_check.h"

using namespace matmul16;

const int matmul16_tiles[MATMUL16_TILES] = {256, 200, 192, 160, 128};

namespace
{

bool aligned(const void *p, int ld)
{
    return (uintptr_t)p % 16 == 0 && ld % 8 == 0;
}

template <class T, int N, bool B_ROWS>
sb_status run_tile(sb_context *ctx, const sb_matmul *x, cudaStream_t stream)
{
    using S = tile<PLAIN, N, B_ROWS>;
    const matrix a = {x->a, x->m, x->k, x->lda}, d = {x->d, x->m, x->n, x->ldd};
    const matrix c = x->c ? matrix{x->c, x->m, x->n, x->ldc} : d;
    const matrix b = B_ROWS ? matrix{x->b, x->k, x->n, x->ldb} : matrix{x->b, x->n, x->k, x->ldb};
    params p = {};
    sb_status st;
    if ((st = map_of<T>(&p.b[0], b, B_ROWS ? STEP / 2 : S::B_FIRST, STEP)) ||
        (st = map_of<T>(&p.b[1], b, B_ROWS ? STEP / 2 : N - S::B_FIRST, STEP)) ||
        (st = map_of<T>(&p.out[0], d, BOX_ROWS, S::CHUNK)) || (st = map_of<T>(&p.out[1], c, BOX_ROWS, S::CHUNK)))
        return st;
    p.option = x->c != NULL;
    return launch<T, S>(ctx, "matmul (Hopper)", p, a, x->n, stream);
}

template <class T, int N>
sb_status run_layout(sb_context *ctx, const sb_matmul *x, cudaStream_t stream)
{
    return x->transpose_b ? run_tile<T, N, false>(ctx, x, stream) : run_tile<T, N, true>(ctx, x, stream);
}

template <class T>
sb_status run(sb_context *ctx, const sb_matmul *x, int n, cudaStream_t stream)
{
    switch (n) {
    case 256: return run_layout<T, 256>(ctx, x, stream);
    case 200: return run_layout<T, 200>(ctx, x, stream);
    case 192: return run_layout<T, 192>(ctx, x, stream);
    case 160: return run_layout<T, 160>(ctx, x, stream);
    case 128: return run_layout<T, 128>(ctx, x, stream);
    }
    return sb_error(SB_UNSUPPORTED, "matmul (Hopper): there are no tiles of %d columns", n);
}

} // namespace

extern "C" sb_status matmul16_supported(const sb_context *ctx, const sb_matmul *p)
{
    const sb_status s = sb_matmul_check(p);
    if (s != SB_OK)
        return s;
    if (ctx->cc_major != 9 || ctx->cc_minor != 0 || ctx->smem_optin_bytes < SMEM_LIMIT)
        return sb_error(SB_UNSUPPORTED, "matmul (Hopper): the device is no Hopper GPU");
    if (p->dtype != SB_BF16 || p->dtype_out != SB_BF16 || p->transpose_a)
        return sb_error(SB_UNSUPPORTED, "matmul (Hopper): operands and result must be bf16, A not transposed");
    if (!aligned(p->a, p->lda) || !aligned(p->b, p->ldb) || !aligned(p->d, p->ldd) || (p->c && !aligned(p->c, p->ldc)))
        return sb_error(SB_UNSUPPORTED, "matmul (Hopper): pointers or rows are not whole units of 16 bytes");
    return SB_OK;
}

extern "C" sb_status matmul16_run(sb_context *ctx, const sb_matmul *p, int n, void *stream)
{
    const sb_status s = matmul16_supported(ctx, p);
    if (s != SB_OK)
        return s;
    return run<__nv_bfloat16>(ctx, p, n, (cudaStream_t)stream);
}
