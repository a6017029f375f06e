/* SPDX-License-Identifier: MIT */
/* The matmul with SwiGLU at its end on Hopper: what it can run, maps, launches. */
#include "kernels/cuda/matmul/hopper/swiglu_matmul.h"

#include "kernels/cuda/matmul/hopper/matmul16_launch.cuh"
#include "kernels/cuda/primitives/row_chunks.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

using namespace matmul16;

namespace
{

/* Columns [first, first + columns) of h. */
struct range {
    int first, columns;
    bool beside; /* another range's launch is the kernel ahead */
};

/* Makes the maps of gate and up in gate_up, and of h. */
template <class T, class S>
sb_status map_results(params &p, const sb_swiglu_matmul *x, range r)
{
    const matrix gate_up = {x->gate_up, x->rows, r.columns, 2 * (int64_t)x->f};
    const matrix h = {x->h, x->rows, r.columns, x->f};
    matrix out[3] = {gate_up, gate_up, h};
    out[0].data = gate_up.at(0, r.first), out[1].data = gate_up.at(0, (int64_t)x->f + r.first);
    out[2].data = h.at(0, r.first);
    CUtensorMap *const maps[3] = {&p.out[0], &p.out[1], &p.h};
    for (int i = 0; i < 3; i++)
        if (i < 2 ? x->gate_up != NULL : x->h != NULL) {
            const sb_status st = map_of<T>(maps[i], out[i], BOX_ROWS, S::CHUNK);
            if (st)
                return st;
        }
    p.beside = r.beside;
    return SB_OK;
}

template <class T, int N>
sb_status forward(sb_context *ctx, const sb_swiglu_matmul *x, range r, cudaStream_t stream)
{
    using S = matmul16::tile<SWIGLU_FORWARD, N, false>;
    params p = {};
    sb_status st = map_results<T, S>(p, x, r);
    for (int part = 0; part < 2 && st == SB_OK; part++) {
        const matrix w13 = {x->w13, 2 * (int64_t)x->f, x->d, x->d};
        const matrix w = {w13.at((int64_t)part * x->f + r.first, 0), r.columns, x->d, x->d};
        st = map_of<T>(&p.b[part], w, N / 2, STEP);
    }
    p.option = x->gate_up != NULL;
    return st ? st : launch<T, S>(ctx, "swiglu_matmul_forward", p, {x->x, x->rows, x->d, x->lda}, r.columns, stream);
}

template <class T, int N>
sb_status backward(sb_context *ctx, const sb_swiglu_matmul *x, range r, cudaStream_t stream)
{
    using S = matmul16::tile<SWIGLU_BACKWARD, N, true>;
    const matrix w2 = {x->w2, x->d, x->f, x->f}, w = {w2.at(0, r.first), x->d, r.columns, x->f};
    params p = {};
    sb_status st = map_results<T, S>(p, x, r);
    if (st == SB_OK)
        st = map_of<T>(&p.b[0], w, STEP / 2, STEP);
    p.option = x->h != NULL;
    return st ? st : launch<T, S>(ctx, "swiglu_matmul_backward", p, {x->dy, x->rows, x->d, x->lda}, r.columns, stream);
}

template <class T, int N>
sb_status run(sb_context *ctx, const sb_swiglu_matmul *x, bool back, range r, cudaStream_t stream)
{
    return back ? backward<T, N>(ctx, x, r, stream) : forward<T, N>(ctx, x, r, stream);
}

template <class T>
sb_status run_range(sb_context *ctx, const sb_swiglu_matmul *x, bool back, int n, range r, cudaStream_t stream)
{
    switch (n) {
    case 256: return run<T, 256>(ctx, x, back, r, stream);
    case 192: return run<T, 192>(ctx, x, back, r, stream);
    case 128: return run<T, 128>(ctx, x, back, r, stream);
    case 64: return run<T, 64>(ctx, x, back, r, stream);
    default: return sb_error(SB_UNSUPPORTED, "swiglu_matmul: there are no tiles of %d columns", n);
    }
}

template <class T>
sb_status run_plan(sb_context *ctx, const sb_swiglu_matmul *x, bool back, const swiglu_matmul_plan *plan,
                   cudaStream_t stream)
{
    const sb_status st = run_range<T>(ctx, x, back, plan->n, {0, plan->columns, false}, stream);
    if (st || plan->columns == x->f)
        return st;
    return run_range<T>(ctx, x, back, plan->rest_n, {plan->columns, x->f - plan->columns, true}, stream);
}

int clusters_at_once(sb_context *ctx)
{
    using S = matmul16::tile<SWIGLU_FORWARD, 256, false>;
    return count_clusters(ctx, (const void *)matmul16_kernel<__nv_bfloat16, S>, THREADS, S::BYTES)[1];
}

sb_status run_op(sb_context *ctx, const sb_swiglu_matmul *p, bool backward, void *stream)
{
    SB_TRY(sb_cuda_swiglu_matmul_supported(ctx, p));
    const swiglu_matmul_plan plan = swiglu_matmul_plan_of(p, backward, clusters_at_once(ctx));
    return swiglu_matmul_run(ctx, p, backward, &plan, stream);
}

} // namespace

extern "C" sb_status swiglu_matmul_run(sb_context *ctx, const sb_swiglu_matmul *p, bool backward,
                                       const swiglu_matmul_plan *plan, void *stream)
{
    const char *const op = backward ? "swiglu_matmul_backward" : "swiglu_matmul_forward";
    SB_TRY(sb_swiglu_matmul_check(p, backward));
    SB_TRY(backward ? check_aligned(op, {{"dy", p->dy}, {"w2", p->w2}, {"gate_up", p->gate_up}, {"h", p->h}})
                    : check_aligned(op, {{"x", p->x}, {"w13", p->w13}, {"gate_up", p->gate_up}, {"h", p->h}}));
    return p->dtype == SB_BF16 ? run_plan<__nv_bfloat16>(ctx, p, backward, plan, (cudaStream_t)stream)
                               : run_plan<__half>(ctx, p, backward, plan, (cudaStream_t)stream);
}

extern "C" sb_status sb_cuda_swiglu_matmul_supported(sb_context *ctx, const sb_swiglu_matmul *p)
{
    SB_TRY(sb_swiglu_matmul_shape_check(p));
    if (ctx->cc_major != 9 || ctx->cc_minor != 0 || ctx->smem_optin_bytes < SMEM_LIMIT)
        return sb_error(SB_UNSUPPORTED, "swiglu_matmul: compute capability %d.%d, not 9.0 (Hopper)", ctx->cc_major,
                        ctx->cc_minor);
    if (clusters_at_once(ctx) < 1)
        return sb_error(SB_UNSUPPORTED, "swiglu_matmul: no cluster of two blocks fits on this device");
    return SB_OK;
}

extern "C" sb_status sb_cuda_swiglu_matmul_forward(sb_context *ctx, const sb_swiglu_matmul *p, void *stream)
{
    return run_op(ctx, p, false, stream);
}

extern "C" sb_status sb_cuda_swiglu_matmul_backward(sb_context *ctx, const sb_swiglu_matmul *p, void *stream)
{
    return run_op(ctx, p, true, stream);
}
