/* SPDX-License-Identifier: MIT */
/* h = silu(gate) up and its gradients. One pass over memory: forward reads 2 and writes 1 element per element of h,
 * backward reads 3 and writes 2, or 3 where h is wanted again. A block does a tile of one row; a thread loads all its
 * chunks before it stores any, since outputs may overlap inputs. */
#include "kernels/cuda/primitives/row_chunks.cuh"
#include "kernels/cuda/primitives/swiglu_math.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

#include <limits.h>
#include <type_traits>

namespace
{

constexpr int EACH = 2; /* chunks a thread */

template <typename T, int N>
__global__ void __launch_bounds__(TILE_THREADS) swiglu_forward_kernel(const T *gate_up, T *h, int f, row_tiles tiles)
{
    const tile_span span = this_tile(tiles);
    const T *gate = gate_up + (int64_t)span.row * 2 * f, *up = gate + f;
    h += (int64_t)span.row * f;
    chunk<T, N> g[EACH], u[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = span.start + (int)(threadIdx.x + i * blockDim.x);
        if (at < span.end) {
            g[i] = load_chunk<N>(gate, at);
            u[i] = load_chunk<N>(up, at);
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = span.start + (int)(threadIdx.x + i * blockDim.x);
        if (at >= span.end)
            return;
        float x[N], y[N];
        g[i].unpack(x);
        u[i].unpack(y);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = swiglu_math::product<T>(x[j], y[j]);
        g[i].pack(x);
        store_chunk<N>(h, at, g[i]);
    }
}

/* g, u and dh become d_gate, d_up and h. */
template <typename T, int N>
__device__ __forceinline__ void gradients(chunk<T, N> &g, chunk<T, N> &u, chunk<T, N> &dh)
{
    float x[N], y[N], z[N];
    g.unpack(x);
    u.unpack(y);
    dh.unpack(z);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const swiglu_math::gradient d = swiglu_math::gradients<T>(x[j], y[j], z[j]);
        x[j] = d.gate;
        y[j] = d.up;
        z[j] = d.h;
    }
    g.pack(x);
    u.pack(y);
    dh.pack(z);
}

template <typename T, int N>
__global__ void __launch_bounds__(TILE_THREADS)
    swiglu_backward_kernel(const T *gate_up, const T *dh, T *d_gate_up, T *h, int f, row_tiles tiles)
{
    const tile_span span = this_tile(tiles);
    const int64_t gate = (int64_t)span.row * 2 * f, up = gate + f, hidden = (int64_t)span.row * f;
    chunk<T, N> g[EACH], u[EACH], d[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = span.start + (int)(threadIdx.x + i * blockDim.x);
        if (at < span.end) {
            g[i] = load_chunk<N>(gate_up + gate, at);
            u[i] = load_chunk<N>(gate_up + up, at);
            d[i] = load_chunk<N>(dh + hidden, at);
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = span.start + (int)(threadIdx.x + i * blockDim.x);
        if (at >= span.end)
            return;
        gradients(g[i], u[i], d[i]);
        store_chunk<N>(d_gate_up + gate, at, g[i]);
        store_chunk<N>(d_gate_up + up, at, u[i]);
        if (h)
            store_chunk<N>(h + hidden, at, d[i]);
    }
}

/* launch(element, N, tiles, blocks) with the type of the elements and as many of them in a chunk as can be. */
template <typename F>
sb_status with_tiles(const char *op, const sb_swiglu *p, F launch)
{
    return with_element_type(p->dtype, [&](auto element) {
        constexpr int N = vector16<decltype(element)>::N;
        const bool whole = p->f % N == 0;
        const row_tiles tiles = tile_rows(whole ? p->f / N : p->f, EACH * TILE_THREADS);
        const int64_t blocks = (int64_t)p->rows * tiles.tiles;
        if (blocks > INT_MAX)
            return sb_error(SB_UNSUPPORTED, "%s: %d rows of f %d are more than one launch can do", op, p->rows, p->f);
        if (whole)
            launch(element, std::integral_constant<int, N>(), tiles, (unsigned)blocks);
        else
            launch(element, std::integral_constant<int, 1>(), tiles, (unsigned)blocks);
        return sb_cuda_launched(op);
    });
}

} // namespace

extern "C" sb_status sb_cuda_swiglu_forward(sb_context *ctx, const sb_swiglu *p, void *stream)
{
    (void)ctx;
    SB_TRY(sb_swiglu_check(p, false));
    SB_TRY(check_aligned("swiglu_forward", {{"gate_up", p->gate_up}, {"h", p->h}}));
    return with_tiles("swiglu_forward", p, [&](auto element, auto n, row_tiles tiles, unsigned blocks) {
        using T = decltype(element);
        swiglu_forward_kernel<T, n><<<blocks, tile_threads(tiles, EACH), 0, (cudaStream_t)stream>>>(
            (const T *)p->gate_up, (T *)p->h, p->f, tiles);
    });
}

extern "C" sb_status sb_cuda_swiglu_backward(sb_context *ctx, const sb_swiglu *p, void *stream)
{
    (void)ctx;
    SB_TRY(sb_swiglu_check(p, true));
    SB_TRY(check_aligned("swiglu_backward",
                         {{"gate_up", p->gate_up}, {"dh", p->dh}, {"d_gate_up", p->d_gate_up}, {"h", p->h}}));
    return with_tiles("swiglu_backward", p, [&](auto element, auto n, row_tiles tiles, unsigned blocks) {
        using T = decltype(element);
        swiglu_backward_kernel<T, n><<<blocks, tile_threads(tiles, EACH), 0, (cudaStream_t)stream>>>(
            (const T *)p->gate_up, (const T *)p->dh, (T *)p->d_gate_up, (T *)p->h, p->f, tiles);
    });
}
