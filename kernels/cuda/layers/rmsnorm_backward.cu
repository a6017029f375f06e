/* SPDX-License-Identifier: MIT */
/* RMSNorm backward. With xhat = x rstd and g = dy weight: dx = rstd (g - xhat mean(g xhat)) + d_residual for each row,
 * and dweight sums dy xhat over the rows. Bound by memory: x, dy (and d_residual) are read once, dx is written once.
 *
 * A group of warps owns a row at a time and holds it in registers between the mean and the output. A thread always has
 * the same columns, whose dweight it sums in registers; at the end a block adds its groups up and writes one partial
 * sum a column, and a second kernel adds those up. The order of all sums is fixed by the shape and the number of SMs.
 * Rows that are not 16-byte aligned, or too long for registers, take two plain passes instead. */
#include "kernels/cuda/primitives/early.cuh"
#include "kernels/cuda/primitives/row_chunks.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

#include <cuda_pipeline_primitives.h>

namespace
{

constexpr int SUM_COLUMNS = 32; /* columns of a block of the second kernel, which has as many warps */
constexpr int ANY_WARPS = 8, ANY_PARTS = 128;

/* How the rows are spread over blocks, each of which leaves a partial sum of every column. */
struct layout {
    int warps, groups, blocks; /* warps of a group (0: the plain kernels), groups of a block */
};

/* One block an SM, as large as its registers allow: few partial sums, and the rows spread evenly. */
layout layout_of(const sb_context *ctx, const sb_rmsnorm *p)
{
    const int warps = row_warps(p->d, 16 / sb_dtype_bytes(p->dtype));
    if (warps == 0)
        return {0, 1, p->rows < ANY_PARTS ? p->rows : ANY_PARTS};
    const int rows = (p->rows + ctx->sm_count - 1) / ctx->sm_count, most = ROW_MAX_WARPS / warps;
    const int groups = rows < most ? rows : most, blocks = (p->rows + groups - 1) / groups;
    return {warps, groups, blocks < ctx->sm_count ? blocks : ctx->sm_count};
}

/* Adds dy xhat to the columns' sums; returns the thread's share of sum(g xhat). */
template <typename T, typename W, int N>
__device__ __forceinline__ float accumulate(float (&columns)[N], const chunk<T, N> &x, const chunk<T, N> &dy,
                                            const chunk<W, N> &weight, float rstd)
{
    float f[N], g[N], w[N], dot = 0;
    x.unpack(f);
    dy.unpack(g);
    weight.unpack(w);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float product = g[j] * (f[j] * rstd);
        columns[j] += product;
        dot += product * w[j];
    }
    return dot;
}

/* dx takes the place of x. */
template <typename T, typename W, int N>
__device__ __forceinline__ void input_gradient(chunk<T, N> &x, const chunk<T, N> &dy, const chunk<W, N> &weight,
                                               const chunk<T, N> &residual, float rstd, float mean)
{
    float f[N], g[N], w[N], r[N];
    x.unpack(f);
    dy.unpack(g);
    weight.unpack(w);
    residual.unpack(r);
#pragma unroll
    for (int j = 0; j < N; j++)
        f[j] = rstd * (g[j] * w[j] - f[j] * rstd * mean) + r[j];
    x.pack(f);
}

/* Adds the columns of all groups of the block to the columns of group 0, by halves. */
template <int N>
__device__ __forceinline__ void add_groups(float (&columns)[ROW_CHUNKS][N], const row_group &g, float4 *shared)
{
    constexpr int FLOAT4S = ROW_CHUNKS * N / 4;
    for (int active = (int)blockDim.y, keep; active > 1; active = keep) {
        keep = (active + 1) / 2;
        if (g.index >= keep && g.index < active)
#pragma unroll
            for (int k = 0; k < FLOAT4S; k++) {
                const float *c = &columns[k * 4 / N][k * 4 % N];
                shared[((g.index - keep) * FLOAT4S + k) * g.threads + g.thread] = make_float4(c[0], c[1], c[2], c[3]);
            }
        __syncthreads();
        if (g.index + keep < active)
#pragma unroll
            for (int k = 0; k < FLOAT4S; k++) {
                float *c = &columns[k * 4 / N][k * 4 % N];
                const float4 other = shared[(g.index * FLOAT4S + k) * g.threads + g.thread];
                c[0] += other.x;
                c[1] += other.y;
                c[2] += other.z;
                c[3] += other.w;
            }
        __syncthreads();
    }
}

/* A thread's own place in shared memory for its chunk i of a row. */
template <typename T, int N>
__device__ __forceinline__ chunk<T, N> &slot(float4 *shared, int i)
{
    return reinterpret_cast<chunk<T, N> *>(shared)[(i * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x];
}

/* Starts to copy the thread's chunks of a row there, past the registers. */
template <int N, typename T>
__device__ __forceinline__ void fetch_row(float4 *shared, const T *row, int n, const row_group &g)
{
#pragma unroll
    for (int i = 0; i < ROW_CHUNKS; i++)
        if (g.thread + i * g.threads < n)
            __pipeline_memcpy_async(&slot<T, N>(shared, i),
                                    reinterpret_cast<const chunk<T, N> *>(row) + g.thread + i * g.threads, 16);
    __pipeline_commit();
}

/* Row k of group i of block b is b + (i + k groups) blocks: every block has the same number of rows, or one more. dx
 * may be dy or d_residual: a thread reads its elements of a row before it writes them. */
template <typename T, typename W>
__global__ void __launch_bounds__(32 * ROW_MAX_WARPS, 1)
    rmsnorm_backward_kernel(sb_rmsnorm p, float inverse_d, float *partials)
{
    constexpr int N = vector16<T>::N;
    __shared__ float shared[2][32];
    extern __shared__ float4 scratch[]; /* d_residual of the row; after the last row, sums of columns */
    wait_if_early();
    row_group g;
    const int n = p.d / N;
    const unsigned zero = (unsigned)p.d % N;
    const int64_t step = (int64_t)gridDim.x * blockDim.y;
    float columns[ROW_CHUNKS][N] = {};
    if (!p.d_residual)
#pragma unroll
        for (int i = 0; i < ROW_CHUNKS; i++)
            slot<T, N>(scratch, i) = {};
    for (int64_t row = blockIdx.x + (int64_t)gridDim.x * g.index; row < p.rows; row += step) {
        const int64_t first = row * p.d;
        chunk<T, N> x[ROW_CHUNKS], dy[ROW_CHUNKS];
        chunk<W, N> weight[ROW_CHUNKS];
        if (p.d_residual)
            fetch_row<N>(scratch, (const T *)p.d_residual + first, n, g);
        load_row(x, (const T *)p.x + first, n, g);
        load_row(dy, (const T *)p.dy + first, n, g);
        load_row(weight, (const W *)p.weight, n, g);
        const float rstd = p.rstd[row];
        float dot = 0;
#pragma unroll
        for (int i = 0; i < ROW_CHUNKS; i++)
            dot += accumulate(columns[i], x[i], dy[i], weight[i], rstd);
        const float mean = g.sum<true>(dot, shared) * inverse_d;
        load_row(weight, (const W *)p.weight, n, g); /* again, from L1: registers are short */
        __pipeline_wait_prior(0);
#pragma unroll
        for (int i = 0; i < ROW_CHUNKS; i++) {
            x[i].stay_packed(zero);
            dy[i].stay_packed(zero);
            input_gradient(x[i], dy[i], weight[i], slot<T, N>(scratch, i), rstd, mean);
        }
        store_row((T *)p.dx + first, n, x, g);
    }
    __syncthreads();
    add_groups(columns, g, scratch);
    if (g.index > 0)
        return;
    chunk<float, N> sums[ROW_CHUNKS];
#pragma unroll
    for (int i = 0; i < ROW_CHUNKS; i++)
        sums[i].pack(columns[i]);
    store_row(partials + (int64_t)blockIdx.x * p.d, n, sums, g);
}

/* dx of any row, one a block. */
template <typename T>
__global__ void __launch_bounds__(32 * ANY_WARPS) rmsnorm_dx_any_kernel(sb_rmsnorm p, float inverse_d)
{
    __shared__ float shared[2][32];
    row_group g;
    const int64_t first = (int64_t)blockIdx.x * p.d;
    const T *x = (const T *)p.x + first, *dy = (const T *)p.dy + first, *residual = (const T *)p.d_residual + first;
    T *dx = (T *)p.dx + first;
    const float rstd = p.rstd[blockIdx.x];
    float dot = 0;
    for (int j = g.thread; j < p.d; j += g.threads)
        dot += (float)dy[j] * get_element(p.weight, p.dtype_param, j) * ((float)x[j] * rstd);
    const float mean = g.sum<false>(dot, shared) * inverse_d;
    for (int j = g.thread; j < p.d; j += g.threads) {
        const float gradient = (float)dy[j] * get_element(p.weight, p.dtype_param, j);
        const float passing = p.d_residual ? (float)residual[j] : 0.0f;
        dx[j] = (T)(rstd * (gradient - (float)x[j] * rstd * mean) + passing);
    }
}

/* Partial sums of dweight: a thread has one column of rows y, y + gridDim.y, ... */
template <typename T>
__global__ void __launch_bounds__(32 * ANY_WARPS) rmsnorm_columns_any_kernel(sb_rmsnorm p, float *partials)
{
    const int64_t j = (int64_t)blockIdx.x * (32 * ANY_WARPS) + threadIdx.x;
    if (j >= p.d)
        return;
    float sum = 0;
#pragma unroll 4
    for (int row = blockIdx.y; row < p.rows; row += gridDim.y)
        sum += (float)((const T *)p.dy)[(int64_t)row * p.d + j] *
               ((float)((const T *)p.x)[(int64_t)row * p.d + j] * p.rstd[row]);
    partials[(int64_t)blockIdx.y * p.d + j] = sum;
}

/* Warp w adds partial sums w, w + 32, ... of 32 columns; then warp w adds up what the warps have of column w. */
__global__ void __launch_bounds__(32 * SUM_COLUMNS)
    rmsnorm_dweight_kernel(const float *__restrict__ partials, int parts, int d, void *dweight, sb_dtype dtype,
                           bool accumulate)
{
    __shared__ float sums[32][SUM_COLUMNS + 1];
    wait_if_early();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t first = (int64_t)blockIdx.x * SUM_COLUMNS;
    float sum = 0;
    if (first + lane < d)
#pragma unroll 4
        for (int i = warp; i < parts; i += 32)
            sum += partials[(int64_t)i * d + first + lane];
    sums[warp][lane] = sum;
    __syncthreads();
    sum = warp_reduce<add_op>(sums[lane][warp]);
    if (lane == 0 && first + warp < d)
        set_element(dweight, dtype, first + warp, accumulate ? get_element(dweight, dtype, first + warp) + sum : sum);
}

template <typename T>
void launch_any(const sb_rmsnorm *p, const layout &l, float *partials, cudaStream_t stream)
{
    const dim3 grid((unsigned)(((int64_t)p->d + 32 * ANY_WARPS - 1) / (32 * ANY_WARPS)), (unsigned)l.blocks);
    rmsnorm_columns_any_kernel<T><<<grid, 32 * ANY_WARPS, 0, stream>>>(*p, partials); /* first: dx may be dy */
    rmsnorm_dx_any_kernel<T><<<p->rows, 32 * ANY_WARPS, 0, stream>>>(*p, 1.0f / (float)p->d);
}

template <typename T>
void launch_held(const sb_context *ctx, const sb_rmsnorm *p, const layout &l, float *partials, cudaStream_t stream)
{
    const dim3 threads(32 * l.warps, l.groups);
    const size_t residual = (size_t)threads.x * l.groups * ROW_CHUNKS * 16;
    const size_t columns = (size_t)threads.x * (l.groups / 2) * ROW_CHUNKS * vector16<T>::N * sizeof(float);
    const size_t bytes = residual > columns ? residual : columns; /* at most 32 KB */
    with_element_type(p->dtype_param, [&](auto weight) {
        using W = decltype(weight);
        launch_early(ctx, rmsnorm_backward_kernel<T, W>, l.blocks, threads, bytes, stream, *p, 1.0f / (float)p->d,
                     partials);
    });
}

} // namespace

extern "C" size_t sb_cuda_rmsnorm_workspace(sb_context *ctx, const sb_rmsnorm *p)
{
    return p->rows < 1 || p->d < 1 ? 0 : (size_t)layout_of(ctx, p).blocks * p->d * sizeof(float);
}

extern "C" sb_status sb_cuda_rmsnorm_backward(sb_context *ctx, const sb_rmsnorm *p, void *stream)
{
    static const char op[] = "rmsnorm_backward";
    sb_status s = sb_rmsnorm_check(p, true);
    if (s == SB_OK)
        s = sb_train_workspace_check(op, p->workspace, p->workspace_bytes, sb_cuda_rmsnorm_workspace(ctx, p));
    if (s == SB_OK)
        s = check_aligned(op, {{"x", p->x},
                               {"weight", p->weight},
                               {"dy", p->dy},
                               {"d_residual", p->d_residual},
                               {"dx", p->dx},
                               {"dweight", p->dweight},
                               {"the workspace", p->workspace}});
    if (s != SB_OK)
        return s;
    const layout l = layout_of(ctx, p);
    float *partials = (float *)p->workspace;
    s = with_element_type(p->dtype, [&](auto element) {
        using T = decltype(element);
        if (l.warps > 0)
            launch_held<T>(ctx, p, l, partials, (cudaStream_t)stream);
        else
            launch_any<T>(p, l, partials, (cudaStream_t)stream);
        return sb_cuda_launched("rmsnorm gradient kernel");
    });
    if (s != SB_OK)
        return s;
    const unsigned blocks = (unsigned)(((int64_t)p->d + SUM_COLUMNS - 1) / SUM_COLUMNS);
    launch_early(ctx, rmsnorm_dweight_kernel, blocks, 32 * SUM_COLUMNS, 0, (cudaStream_t)stream, partials, l.blocks,
                 p->d, p->dweight, p->dtype_grad, p->accumulate);
    return sb_cuda_launched("rmsnorm weight gradient kernel");
}
