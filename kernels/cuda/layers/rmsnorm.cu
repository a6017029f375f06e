/* SPDX-License-Identifier: MIT */
/* RMSNorm forward, with or without a residual. Bound by memory: x (and the residual) is read once, y (if it is wanted, and
 * the sum) written once; a row stays in the registers of a group of warps between the sum of its squares and the output.
 * Rows that are not 16-byte aligned, or too long for that, go element by element and are read twice, the second time from
 * a cache. */
#include "kernels/cuda/primitives/early.cuh"
#include "kernels/cuda/primitives/norm_math.cuh"
#include "kernels/cuda/primitives/row_chunks.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int BLOCK_WARPS = 4; /* where a row needs fewer */
constexpr int ANY_WARPS = 8;

template <typename T, int N>
__device__ __forceinline__ void add(chunk<T, N> &a, const chunk<T, N> &b)
{
    float x[N], y[N];
    a.unpack(x);
    b.unpack(y);
#pragma unroll
    for (int j = 0; j < N; j++)
        x[j] += y[j];
    a.pack(x);
}

template <typename T, int N>
__device__ __forceinline__ float squares_of(const chunk<T, N> &v)
{
    float x[N], sum = 0;
    v.unpack(x);
#pragma unroll
    for (int j = 0; j < N; j++)
        sum += x[j] * x[j];
    return sum;
}

template <typename T, typename W, int N>
__device__ __forceinline__ void normalize(chunk<T, N> &v, const chunk<W, N> &weight, float rstd)
{
    float x[N], w[N];
    v.unpack(x);
    weight.unpack(w);
#pragma unroll
    for (int j = 0; j < N; j++)
        x[j] = norm_math::output(x[j], rstd, w[j]);
    v.pack(x);
}

/* Weights that take no more registers than x are loaded before the sum is known, so that one wait is enough. */
template <typename T, typename W, bool RESIDUAL>
__global__ void __launch_bounds__(32 * ROW_MAX_WARPS, 2) rmsnorm_forward_kernel(sb_rmsnorm p, float inverse_d)
{
    constexpr int N = vector16<T>::N;
    constexpr bool WEIGHT_EARLY = sizeof(W) <= sizeof(T);
    __shared__ float shared[2][32];
    wait_if_early();
    row_group g;
    const int row = (int)(blockIdx.x * blockDim.y) + g.index, n = row < p.rows ? p.d / N : 0, weights = p.y ? n : 0;
    const int64_t first = (int64_t)row * p.d;
    chunk<T, N> x[ROW_CHUNKS];
    chunk<W, N> weight[ROW_CHUNKS];
    load_row(x, (const T *)p.x + first, n, g);
    if constexpr (RESIDUAL) {
        chunk<T, N> residual[ROW_CHUNKS];
        load_row(residual, (const T *)p.residual + first, n, g);
        if constexpr (WEIGHT_EARLY)
            load_row(weight, (const W *)p.weight, weights, g);
#pragma unroll
        for (int i = 0; i < ROW_CHUNKS; i++)
            add(x[i], residual[i]);
        store_row((T *)p.sum + first, n, x, g);
    } else if constexpr (WEIGHT_EARLY) {
        load_row(weight, (const W *)p.weight, weights, g);
    }
    float squares = 0;
#pragma unroll
    for (int i = 0; i < ROW_CHUNKS; i++)
        squares += squares_of(x[i]);
    const float rstd = rsqrtf(g.sum<false>(squares, shared) * inverse_d + p.eps);
    if (n > 0 && g.thread == 0)
        p.rstd[row] = rstd;
    if (!p.y)
        return;
    if constexpr (!WEIGHT_EARLY)
        load_row(weight, (const W *)p.weight, weights, g);
#pragma unroll
    for (int i = 0; i < ROW_CHUNKS; i++) {
        x[i].stay_packed((unsigned)p.d % N);
        normalize(x[i], weight[i], rstd);
    }
    store_row((T *)p.y + first, n, x, g);
}

/* One block a row. A thread reads back only what it wrote itself. */
template <typename T>
__global__ void __launch_bounds__(32 * ANY_WARPS) rmsnorm_forward_any_kernel(sb_rmsnorm p, float inverse_d)
{
    __shared__ float shared[2][32];
    row_group g;
    const int64_t first = (int64_t)blockIdx.x * p.d;
    const T *x = (const T *)p.x + first, *residual = (const T *)p.residual + first;
    T *sum = (T *)p.sum + first, *y = (T *)p.y + first;
    float squares = 0;
    for (int j = g.thread; j < p.d; j += g.threads) {
        float v = (float)x[j];
        if (p.residual) {
            sum[j] = (T)(v + (float)residual[j]);
            v = (float)sum[j];
        }
        squares += v * v;
    }
    const float rstd = rsqrtf(g.sum<false>(squares, shared) * inverse_d + p.eps);
    if (g.thread == 0)
        p.rstd[blockIdx.x] = rstd;
    for (int j = g.thread; p.y && j < p.d; j += g.threads) {
        const float v = (float)(p.residual ? sum[j] : x[j]);
        y[j] = (T)norm_math::output(v, rstd, get_element(p.weight, p.dtype_param, j));
    }
}

template <typename T, typename W>
void launch_forward(const sb_context *ctx, const sb_rmsnorm *p, int warps, float inverse_d, cudaStream_t stream)
{
    const int groups = warps < BLOCK_WARPS ? BLOCK_WARPS / warps : 1, blocks = (p->rows + groups - 1) / groups;
    const dim3 threads(32 * warps, groups);
    const auto kernel = p->residual ? rmsnorm_forward_kernel<T, W, true> : rmsnorm_forward_kernel<T, W, false>;
    launch_early(ctx, kernel, blocks, threads, 0, stream, *p, inverse_d);
}

} // namespace

extern "C" sb_status sb_cuda_rmsnorm_forward(sb_context *ctx, const sb_rmsnorm *p, void *stream)
{
    SB_TRY(sb_rmsnorm_check(p, false));
    SB_TRY(
        check_aligned("rmsnorm_forward",
                      {{"x", p->x}, {"residual", p->residual}, {"sum", p->sum}, {"weight", p->weight}, {"y", p->y}}));
    const int warps = row_warps(p->d, 16 / sb_dtype_bytes(p->dtype));
    const float inverse_d = 1.0f / (float)p->d;
    return with_element_type(p->dtype, [&](auto element) {
        using T = decltype(element);
        if (warps > 0)
            with_element_type(p->dtype_param, [&](auto weight) {
                launch_forward<T, decltype(weight)>(ctx, p, warps, inverse_d, (cudaStream_t)stream);
            });
        else
            rmsnorm_forward_any_kernel<T><<<p->rows, 32 * ANY_WARPS, 0, (cudaStream_t)stream>>>(*p, inverse_d);
        return sb_cuda_launched("rmsnorm kernel");
    });
}
