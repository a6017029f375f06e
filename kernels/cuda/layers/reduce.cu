/* SPDX-License-Identifier: MIT */
/* Sums, or largest elements, along the rows or down the columns of a matrix.
 *
 * Bound: bytes, read once. Along rows: a warp a row where rows are short, else a block a row. Down columns: a warp's
 * lanes hold neighbouring columns and its block's warps take turns at the rows of a part of the matrix; there are
 * enough parts to fill the chip, each leaves one partial a column, and a second kernel adds those in order. All sums
 * are fp32.
 * Loads are 16 bytes where alignment allows, else single elements: V is the number of elements in a load. */
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/packed.cuh"
#include "kernels/cuda/primitives/reduction.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int UNROLL = 4;            /* loads a thread has in flight */
constexpr int SHORT_ROW = 2048;      /* most elements that one warp reduces */
constexpr int PART_ROWS = 8 * WARPS; /* at least, of a part */
constexpr int BLOCKS_PER_SM = 8;
constexpr int MAX_GRID_Y = 65535;

struct matrix {
    const void *x;
    int rows, columns;
    int64_t ld;
    float scale;
    void *out;
    sb_dtype dtype_out;
};

__device__ __forceinline__ void store_result(const matrix &a, int64_t at, float x)
{
    set_element(a.out, a.dtype_out, at, x * a.scale);
}

/* V neighbouring elements as they are stored. */
template <typename T, int V>
struct elements {
    packed<T, V> p;
    __device__ __forceinline__ void load(const T *from) { p = *reinterpret_cast<const packed<T, V> *>(from); }
    __device__ __forceinline__ void unpack(float (&x)[V]) const { p.unpack(x); }
};
template <typename T>
struct elements<T, 1> {
    T p;
    __device__ __forceinline__ void load(const T *from) { p = *from; }
    __device__ __forceinline__ void unpack(float (&x)[1]) const { x[0] = to_float(p); }
};

/* Up to UNROLL loads, `step` elements apart, onto V results; `count` of them, if fewer, exist. */
template <typename OP, typename T, int V>
__device__ __forceinline__ void accumulate(const T *x, int64_t step, int64_t count, float (&sum)[V])
{
    elements<T, V> e[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
        if (i < count)
            e[i].load(x + i * step);
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
        if (i < count) {
            float f[V];
            e[i].unpack(f);
#pragma unroll
            for (int j = 0; j < V; j++)
                sum[j] = OP::apply(sum[j], f[j]);
        }
}

/* Thread `thread` of `threads` reduces its share of a row. */
template <typename OP, typename T, int V>
__device__ __forceinline__ float reduce_share(const T *row, int columns, int thread, int threads)
{
    float sum[V], total = OP::identity();
#pragma unroll
    for (int j = 0; j < V; j++)
        sum[j] = OP::identity();
    const int64_t loads = columns / V;
    for (int64_t at = thread; at < loads; at += threads * UNROLL)
        accumulate<OP, T, V>(row + at * V, (int64_t)threads * V, (loads - at + threads - 1) / threads, sum);
    for (int64_t at = loads * V + thread; at < columns; at += threads)
        total = OP::apply(total, to_float(row[at]));
#pragma unroll
    for (int j = 0; j < V; j++)
        total = OP::apply(total, sum[j]);
    return total;
}

template <typename OP, typename T, int V>
__global__ void __launch_bounds__(THREADS) short_rows_kernel(matrix a)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= a.rows)
        return;
    const float x =
        warp_reduce<OP>(reduce_share<OP, T, V>((const T *)a.x + row * a.ld, a.columns, threadIdx.x % 32, 32));
    if (threadIdx.x % 32 == 0)
        store_result(a, row, x);
}

template <typename OP, typename T, int V>
__global__ void __launch_bounds__(THREADS) long_rows_kernel(matrix a)
{
    __shared__ float shared[32];
    const int64_t row = blockIdx.x;
    const float x =
        block_reduce<OP>(reduce_share<OP, T, V>((const T *)a.x + row * a.ld, a.columns, threadIdx.x, THREADS), shared);
    if (threadIdx.x == 0)
        store_result(a, row, x);
}

/* x covers the columns, 32 V a block, y the parts, part_rows rows each. `partials` (parts, columns); NULL for one part,
 * whose result is final. */
template <typename OP, typename T, int V>
__global__ void __launch_bounds__(THREADS) columns_kernel(matrix a, int part_rows, float *partials)
{
    __shared__ float shared[WARPS][V][33];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t first_column = (int64_t)blockIdx.x * (32 * V), column = first_column + lane * V;
    const int64_t first = (int64_t)blockIdx.y * part_rows;
    const int rows = (int)min((int64_t)part_rows, a.rows - first);
    float sum[V];
#pragma unroll
    for (int j = 0; j < V; j++)
        sum[j] = OP::identity();
    if (column < a.columns)
        for (int r = warp; r < rows; r += WARPS * UNROLL)
            accumulate<OP, T, V>((const T *)a.x + (first + r) * a.ld + column, WARPS * a.ld,
                                 (rows - r + WARPS - 1) / WARPS, sum);
#pragma unroll
    for (int j = 0; j < V; j++)
        shared[warp][j][lane] = sum[j];
    __syncthreads();
    for (int at = threadIdx.x; at < 32 * V && first_column + at < a.columns; at += THREADS) {
        float total = shared[0][at % V][at / V];
#pragma unroll
        for (int w = 1; w < WARPS; w++)
            total = OP::apply(total, shared[w][at % V][at / V]);
        if (partials)
            partials[blockIdx.y * (int64_t)a.columns + first_column + at] = total;
        else
            store_result(a, first_column + at, total);
    }
}

template <typename OP>
__global__ void __launch_bounds__(THREADS) columns_finish_kernel(matrix a, int parts, const float *partials)
{
    const int64_t column = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (column >= a.columns)
        return;
    float total = OP::identity();
#pragma unroll 8
    for (int i = 0; i < parts; i++)
        total = OP::apply(total, partials[i * (int64_t)a.columns + column]);
    store_result(a, column, total);
}

/* Elements of a load. Down columns whole loads must make up a row; along rows the rest of a row is read singly. */
int load_elements(const sb_reduce *p)
{
    const int n = 16 / sb_dtype_bytes(p->dtype);
    const bool aligned = (uintptr_t)p->x % 16 == 0 && (p->ld % n == 0 || (!p->over_rows && p->rows == 1));
    return aligned && (!p->over_rows || p->columns % n == 0) ? n : 1;
}

int ceiling(int n, int d)
{
    return (int)(((int64_t)n + d - 1) / d);
}

/* Parts of the rows: the chip full of blocks, and each part worth its partials. Takes wide loads for granted, so that
 * the workspace does not depend on pointers. */
int parts_of(const sb_context *ctx, const sb_reduce *p)
{
    const int strips = ceiling(p->columns, 32 * 16 / sb_dtype_bytes(p->dtype));
    const int wanted = ceiling(ctx->sm_count * BLOCKS_PER_SM, strips), most = ceiling(p->rows, PART_ROWS);
    const int parts = wanted < most ? wanted : most;
    return parts < MAX_GRID_Y ? parts : MAX_GRID_Y;
}

template <typename OP, typename T, int V>
sb_status launch_columns(const sb_reduce *p, const matrix &a, int parts, cudaStream_t stream)
{
    const int part_rows = ceiling(p->rows, parts), used = ceiling(p->rows, part_rows);
    float *partials = used > 1 ? (float *)p->workspace : NULL;
    const dim3 grid((unsigned)ceiling(p->columns, 32 * V), (unsigned)used);
    columns_kernel<OP, T, V><<<grid, THREADS, 0, stream>>>(a, part_rows, partials);
    const sb_status status = sb_cuda_launched("reduce kernel, down columns");
    if (status != SB_OK || !partials)
        return status;
    columns_finish_kernel<OP><<<(unsigned)ceiling(p->columns, THREADS), THREADS, 0, stream>>>(a, used, partials);
    return sb_cuda_launched("reduce kernel, of partials");
}

template <typename OP, typename T, int V>
sb_status launch(const sb_context *ctx, const sb_reduce *p, cudaStream_t stream)
{
    const matrix a = {p->x, p->rows, p->columns, p->ld, p->scale, p->out, p->dtype_out};
    if (p->over_rows)
        return launch_columns<OP, T, V>(p, a, parts_of(ctx, p), stream);
    if (p->columns <= SHORT_ROW)
        short_rows_kernel<OP, T, V><<<(unsigned)ceiling(p->rows, WARPS), THREADS, 0, stream>>>(a);
    else
        long_rows_kernel<OP, T, V><<<(unsigned)p->rows, THREADS, 0, stream>>>(a);
    return sb_cuda_launched("reduce kernel, along rows");
}

template <typename OP>
sb_status launch_type(const sb_context *ctx, const sb_reduce *p, cudaStream_t stream)
{
    return with_element_type(p->dtype, [&](auto zero) {
        using T = decltype(zero);
        return load_elements(p) > 1 ? launch<OP, T, 16 / (int)sizeof(T)>(ctx, p, stream)
                                    : launch<OP, T, 1>(ctx, p, stream);
    });
}

} // namespace

extern "C" size_t sb_cuda_reduce_workspace(sb_context *ctx, const sb_reduce *p)
{
    if (!p->over_rows || p->rows < 1 || p->columns < 1)
        return 0;
    const int parts = parts_of(ctx, p);
    return parts > 1 ? (size_t)parts * (size_t)p->columns * sizeof(float) : 0;
}

extern "C" sb_status sb_cuda_reduce(sb_context *ctx, const sb_reduce *p, void *stream)
{
    SB_TRY(sb_reduce_check(p));
    SB_TRY(sb_train_workspace_check("reduce", p->workspace, p->workspace_bytes, sb_cuda_reduce_workspace(ctx, p)));
    if ((uintptr_t)p->workspace % sizeof(float) != 0)
        return sb_error(SB_INVALID, "reduce: the workspace must be aligned to 4 bytes");
    return p->maximum ? launch_type<max_op>(ctx, p, (cudaStream_t)stream)
                      : launch_type<add_op>(ctx, p, (cudaStream_t)stream);
}
