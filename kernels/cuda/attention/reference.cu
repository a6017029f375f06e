/* SPDX-License-Identifier: MIT */
/* The oracle on the GPU: attention of chosen rows in fp64, from the definition. A query row needs only itself and the
 * keys. A key row needs the log-sum-exp and delta = dO . O of every query row, which a tiled kernel computes first. */
#include "kernels/cuda/runtime/backend.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/documents.cuh"
#include "kernels/cuda/primitives/vector.cuh"
#include "kernels/shared/internal.h"

#include <math.h>

namespace
{

constexpr int ROWS_AT_ONCE = 256; /* samples of one launch */
constexpr int WARPS = 16;         /* warps of a block, which computes one sample */
constexpr int LANE_ELEMENTS = 8;  /* elements of a row that each of 32 lanes holds */
constexpr int MAX_D = 32 * LANE_ELEMENTS;
static_assert(MAX_D >= SB_HEAD_DIM_MAX, "a row does not fit in the lanes");

/* Workspace of one call. */
struct scratch {
    double *lse, *delta;             /* (B*H, Sq), with key rows only */
    double *o, *dq, *dk, *dv;        /* (ROWS_AT_ONCE, Dv), (ROWS_AT_ONCE, D) of dq and dk */
    double *row_lse, *terms;         /* (ROWS_AT_ONCE); terms of dq, then of dk */
    int *bh, *q_row, *bh_kv, *k_row; /* (ROWS_AT_ONCE) */
    size_t bytes;
};

scratch scratch_of(const sb_attention *a, bool backward)
{
    scratch s = {};
    const size_t rows = backward ? (size_t)a->batch * a->heads * a->seq_q : 0;
    const size_t row_doubles = (size_t)ROWS_AT_ONCE * sb_head_dim_most(a);
    double *doubles = (double *)a->workspace;
    const auto take = [&](size_t n) {
        double *p = doubles;
        doubles = (double *)((uintptr_t)doubles + n * sizeof(double));
        s.bytes += n * sizeof(double);
        return p;
    };
    s.lse = take(rows);
    s.delta = take(rows);
    s.o = take(row_doubles);
    s.dq = take(row_doubles);
    s.dk = take(row_doubles);
    s.dv = take(row_doubles);
    s.row_lse = take(ROWS_AT_ONCE);
    s.terms = take(ROWS_AT_ONCE);
    s.bh = (int *)take(ROWS_AT_ONCE / 2);
    s.q_row = (int *)take(ROWS_AT_ONCE / 2);
    s.bh_kv = (int *)take(ROWS_AT_ONCE / 2);
    s.k_row = (int *)take(ROWS_AT_ONCE / 2);
    return s;
}

template <typename T>
__device__ __forceinline__ double to_double(T x)
{
    return (float)x;
}

/* Row s of head h of batch entry b. */
template <typename T>
__device__ __forceinline__ const T *row_of(const sb_tensor &t, int b, int h, int s)
{
    return (const T *)t.data + b * t.stride_b + h * t.stride_h + s * t.stride_s;
}

/* Queries and keys that see each other: the whole sequence, or a document. */
struct extent {
    int q_begin, q_end, k_begin, k_end;
};

/* The rows of the document to which a query, or a key, belongs. */
__device__ __forceinline__ extent extent_of(const sb_attention &a, int row, bool key = false)
{
    if (!a.packed)
        return {0, a.seq_q, 0, a.seq_k};
    const int i = documents::find(key ? a.cu_seqlens_k : a.cu_seqlens_q, a.documents, 0, row);
    return {a.cu_seqlens_q[i], a.cu_seqlens_q[i + 1], a.cu_seqlens_k[i], a.cu_seqlens_k[i + 1]};
}

/* A query sees keys first_visible .. visible - 1. The sides of the window have been resolved, with or without one, and so has
 * head_dim_v. */
__device__ __forceinline__ int visible(const sb_attention &a, int query)
{
    const extent e = extent_of(a, query);
    return max(e.k_begin, min(e.k_end, query + 1 + e.k_end - e.q_end + a.window_right));
}
__device__ __forceinline__ int first_visible(const sb_attention &a, int query)
{
    const extent e = extent_of(a, query);
    return max(e.k_begin, query + e.k_end - e.q_end - a.window_left);
}

/* The base of the exponents of a row whose maximum so far is m: 0 instead of -inf, so that -inf - -inf never occurs. */
__device__ __forceinline__ double base_of(double m)
{
    return m == -INFINITY ? 0.0 : m;
}

/* ---- lse and delta of every query row ---- */

constexpr int TILE = 64;         /* query rows of a block, and keys of a step */
constexpr int CHUNK = 16;        /* elements of D in shared memory at a time */
constexpr int PITCH = CHUNK + 2; /* doubles; keeps 16-byte reads of neighbouring rows on different banks */
constexpr int SIDE = 16;         /* threads along each side of a tile; each owns a 4 x 4 grid of pairs */
constexpr int OWN = TILE / SIDE;

/* Elements d0 .. d0+CHUNK-1 of up to TILE rows from `row`, zero beyond the tensor. */
template <typename T>
__device__ __forceinline__ void load_tile(double (*tile)[PITCH], const sb_tensor &t, int b, int h, int row, int rows,
                                          int d0, int d)
{
    for (int i = threadIdx.x; i < TILE * CHUNK; i += SIDE * SIDE) {
        const int r = i / CHUNK, c = i % CHUNK;
        tile[r][c] = row + r < rows && d0 + c < d ? to_double(row_of<T>(t, b, h, row + r)[d0 + c]) : 0.0;
    }
}

__device__ __forceinline__ void multiply_tile(const double (*x)[PITCH], const double (*y)[PITCH], int ty, int tx,
                                              double (&sum)[OWN][OWN])
{
#pragma unroll 2
    for (int c = 0; c < CHUNK; c += 2) {
        double2 u[OWN], v[OWN];
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            u[i] = *reinterpret_cast<const double2 *>(&x[ty + SIDE * i][c]);
            v[i] = *reinterpret_cast<const double2 *>(&y[tx + SIDE * i][c]);
        }
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int j = 0; j < OWN; j++)
                sum[i][j] += u[i].x * v[j].x + u[i].y * v[j].y;
    }
}

/* Every thread keeps the maximum, the sum and the weighted sum of dP of its rows over its own keys; the 16 threads of a
 * row put them together at the end. Of a head, blocks with the most keys start first. Heads and tiles are both in x: y ends
 * at 65535. */
template <typename T>
__global__ void __launch_bounds__(SIDE *SIDE)
    statistics_kernel(sb_attention a, int tiles, double scale, double *lse, double *delta)
{
    __shared__ alignas(16) double q[TILE][PITCH], d_o[TILE][PITCH], k[TILE][PITCH], v[TILE][PITCH];
    const int bh = blockIdx.x / tiles, b = bh / a.heads, h = bh % a.heads, h_kv = h / (a.heads / a.heads_kv);
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    const int q0 = (tiles - 1 - (int)blockIdx.x % tiles) * TILE;
    const int keys = visible(a, min(q0 + TILE, a.seq_q) - 1), first_key = first_visible(a, q0) / TILE * TILE;

    double m[OWN], l[OWN], weighted[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++)
        m[i] = -INFINITY, l[i] = weighted[i] = 0;

    for (int k0 = first_key; k0 < keys; k0 += TILE) {
        /* S and dP of the tile */
        double s[OWN][OWN] = {}, dp[OWN][OWN] = {};
        for (int d0 = 0; d0 < max(a.head_dim, a.head_dim_v); d0 += CHUNK) {
            __syncthreads();
            load_tile<T>(q, a.q, b, h, q0, a.seq_q, d0, a.head_dim);
            load_tile<T>(d_o, a.d_o, b, h, q0, a.seq_q, d0, a.head_dim_v);
            load_tile<T>(k, a.k, b, h_kv, k0, a.seq_k, d0, a.head_dim);
            load_tile<T>(v, a.v, b, h_kv, k0, a.seq_k, d0, a.head_dim_v);
            __syncthreads();
            multiply_tile(q, k, ty, tx, s);
            multiply_tile(d_o, v, ty, tx, dp);
        }
        /* online softmax of this thread's keys */
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int first = first_visible(a, q0 + ty + SIDE * i), seen = visible(a, q0 + ty + SIDE * i);
            double larger = m[i];
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const int key = k0 + tx + SIDE * j;
                s[i][j] = key >= first && key < seen ? scale * s[i][j] : -INFINITY;
                larger = fmax(larger, s[i][j]);
            }
            const double base = base_of(larger);
            if (larger != m[i]) {
                const double shrink = exp(m[i] - base);
                l[i] *= shrink;
                weighted[i] *= shrink;
                m[i] = larger;
            }
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const double p = exp(s[i][j] - base);
                l[i] += p;
                weighted[i] += p * dp[i][j];
            }
        }
    }
    /* the 16 threads of a row put their parts together */
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int row = q0 + ty + SIDE * i;
        double largest = m[i];
        for (int step = SIDE / 2; step > 0; step /= 2)
            largest = fmax(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        const double shrink = exp(m[i] - base_of(largest));
        double sum = l[i] * shrink, dot = weighted[i] * shrink;
        for (int step = SIDE / 2; step > 0; step /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
            dot += __shfl_xor_sync(0xffffffffu, dot, step);
        }
        if (tx == 0 && row < a.seq_q) {
            lse[(int64_t)bh * a.seq_q + row] = base_of(largest) + log(sum);
            delta[(int64_t)bh * a.seq_q + row] = sum > 0 ? dot / sum : 0.0;
        }
    }
}

/* ---- one sample a block: the other side's rows are dealt to the warps, the elements of a row to the lanes ---- */

struct lane_row {
    double x[LANE_ELEMENTS]; /* elements lane, lane + 32, ... of a row; 0 beyond D */
};

template <typename T>
__device__ __forceinline__ lane_row load_row(const T *row, int d)
{
    lane_row r;
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++) {
        const int at = threadIdx.x % 32 + 32 * i;
        r.x[i] = at < d ? to_double(row[at]) : 0.0;
    }
    return r;
}

__device__ __forceinline__ double dot(const lane_row &u, const lane_row &v)
{
    double sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        sum += u.x[i] * v.x[i];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
}

/* Sum of the squares of the terms of dot(u, v). */
__device__ __forceinline__ double squares_of_terms(const lane_row &u, const lane_row &v)
{
    lane_row terms;
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        terms.x[i] = u.x[i] * v.x[i];
    return dot(terms, terms);
}

__device__ __forceinline__ void add(lane_row &sum, double weight, const lane_row &row)
{
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        sum.x[i] += weight * row.x[i];
}

/* Sum over the warps of a block, in every warp. */
__device__ __forceinline__ lane_row add_warps(const lane_row &mine, double (*shared)[MAX_D])
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    lane_row sum = {};
    __syncthreads();
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        shared[warp][lane + 32 * i] = mine.x[i];
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
#pragma unroll
        for (int i = 0; i < LANE_ELEMENTS; i++)
            sum.x[i] += shared[w][lane + 32 * i];
    return sum;
}

/* Sum over the warps of a block of a number that the lanes of each agree on, in every thread. */
__device__ __forceinline__ double add_warps(double mine, double (*shared)[MAX_D])
{
    double sum = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32][0] = mine;
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
        sum += shared[w][0];
    return sum;
}

/* By the first warp. */
__device__ __forceinline__ void store_row(double *out, const lane_row &r, int d)
{
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        if (threadIdx.x < 32 && threadIdx.x + 32 * i < d)
            out[threadIdx.x + 32 * i] = r.x[i];
}

template <typename T>
__global__ void __launch_bounds__(32 * WARPS) query_rows_kernel(sb_attention a, double scale, scratch to, bool backward)
{
    __shared__ double shared[WARPS][MAX_D], shared_m[WARPS], shared_l[WARPS];
    const int sample = blockIdx.x, warp = threadIdx.x / 32, d = a.head_dim, d_v = a.head_dim_v;
    const int bh = to.bh[sample], query = to.q_row[sample];
    const int b = bh / a.heads, h = bh % a.heads, h_kv = h / (a.heads / a.heads_kv);
    const int first = first_visible(a, query), keys = visible(a, query);
    const lane_row q = load_row(row_of<T>(a.q, b, h, query), d);

    /* each warp: online softmax over its share of the keys */
    double m = -INFINITY, l = 0;
    lane_row o = {};
    for (int j = first + warp; j < keys; j += WARPS) {
        const double s = scale * dot(q, load_row(row_of<T>(a.k, b, h_kv, j), d)), larger = fmax(m, s);
        const double shrink = exp(m - larger), p = exp(s - larger);
        l = l * shrink + p;
#pragma unroll
        for (int i = 0; i < LANE_ELEMENTS; i++)
            o.x[i] *= shrink;
        add(o, p, load_row(row_of<T>(a.v, b, h_kv, j), d_v));
        m = larger;
    }
    if (threadIdx.x % 32 == 0) {
        shared_m[warp] = m;
        shared_l[warp] = l;
    }
    __syncthreads();
    /* the warps' shares together: lse and O */
    double largest = -INFINITY, sum = 0;
    for (int w = 0; w < WARPS; w++)
        largest = fmax(largest, shared_m[w]);
    for (int w = 0; w < WARPS; w++)
        sum += shared_l[w] * exp(shared_m[w] - base_of(largest));
    const double lse = base_of(largest) + log(sum), share = sum > 0 ? exp(m - base_of(largest)) / sum : 0.0;
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++)
        o.x[i] *= share;
    o = add_warps(o, shared);
    store_row(to.o + (int64_t)sample * d_v, o, d_v);
    if (threadIdx.x == 0)
        to.row_lse[sample] = lse;
    if (!backward)
        return;

    /* a second walk over the keys: dQ and the size of its terms */
    const lane_row d_o = load_row(row_of<T>(a.d_o, b, h, query), d_v);
    const double delta = dot(d_o, o);
    lane_row dq = {};
    double squares = 0;
    for (int j = first + warp; j < keys; j += WARPS) {
        const lane_row k = load_row(row_of<T>(a.k, b, h_kv, j), d), v = load_row(row_of<T>(a.v, b, h_kv, j), d_v);
        const double weight = scale * exp(scale * dot(q, k) - lse);
        add(dq, weight * (dot(d_o, v) - delta), k);
        squares += weight * weight * squares_of_terms(d_o, v) * dot(k, k);
    }
    store_row(to.dq + (int64_t)sample * d, add_warps(dq, shared), d);
    squares = add_warps(squares, shared);
    if (threadIdx.x == 0)
        to.terms[sample] = sqrt(squares);
}

template <typename T>
__global__ void __launch_bounds__(32 * WARPS) key_rows_kernel(sb_attention a, double scale, scratch to)
{
    __shared__ double shared[WARPS][MAX_D];
    const int sample = blockIdx.x, warp = threadIdx.x / 32, d = a.head_dim, d_v = a.head_dim_v;
    const int group = a.heads / a.heads_kv;
    const int bh_kv = to.bh_kv[sample], key = to.k_row[sample];
    const int b = bh_kv / a.heads_kv, h_kv = bh_kv % a.heads_kv;
    const extent e = extent_of(a, key, true);
    const int same = key + e.q_end - e.k_end; /* the query of its position */
    const int first = max(e.q_begin, same - a.window_right),
              end = min(e.q_end, same + a.window_left + 1); /* that see it */
    const lane_row k = load_row(row_of<T>(a.k, b, h_kv, key), d), v = load_row(row_of<T>(a.v, b, h_kv, key), d_v);

    lane_row dk = {}, dv = {};
    double squares = 0;
    for (int h = h_kv * group; h < (h_kv + 1) * group; h++)
        for (int i = first + warp; i < end; i += WARPS) {
            const int64_t at = (int64_t)(b * a.heads + h) * a.seq_q + i;
            const lane_row q = load_row(row_of<T>(a.q, b, h, i), d), d_o = load_row(row_of<T>(a.d_o, b, h, i), d_v);
            const double p = exp(scale * dot(q, k) - to.lse[at]), weight = scale * p;
            add(dv, p, d_o);
            add(dk, weight * (dot(d_o, v) - to.delta[at]), q);
            squares += weight * weight * squares_of_terms(d_o, v) * dot(q, q);
        }
    store_row(to.dk + (int64_t)sample * d, add_warps(dk, shared), d);
    store_row(to.dv + (int64_t)sample * d_v, add_warps(dv, shared), d_v);
    squares = add_warps(squares, shared);
    if (threadIdx.x == 0)
        to.terms[sample] = sqrt(squares);
}

/* ---- host ---- */

bool in_range(const int *x, int n, int limit)
{
    for (int i = 0; i < n; i++)
        if (x[i] < 0 || x[i] >= limit)
            return false;
    return true;
}

/* Copies that do nothing where the caller gave no array; the first error is kept. */
struct copier {
    cudaStream_t stream;
    cudaError_t error;

    void operator()(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind)
    {
        if (dst && src && error == cudaSuccess)
            error = cudaMemcpyAsync(dst, src, bytes, kind, stream);
    }
};

template <typename T>
sb_status run(const sb_attention *a, const sb_attention_rows *r, const scratch &s, bool queries, bool keys,
              cudaStream_t stream)
{
    const double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)a->head_dim);
    sb_status status = SB_OK;
    copier copy = {stream, cudaSuccess};
    if (keys) {
        const int tiles = (a->seq_q + TILE - 1) / TILE;
        statistics_kernel<T>
            <<<(unsigned)(a->batch * a->heads * tiles), SIDE * SIDE, 0, stream>>>(*a, tiles, scale, s.lse, s.delta);
        status = sb_cuda_launched("reference: row statistics");
    }
    for (int first = 0; first < r->n && status == SB_OK; first += ROWS_AT_ONCE) {
        const int n = r->n - first < ROWS_AT_ONCE ? r->n - first : ROWS_AT_ONCE;
        const auto copy_rows = [&](double *to, const double *from, int columns) {
            copy(to ? to + (size_t)first * columns : NULL, from, (size_t)n * columns * sizeof(double),
                 cudaMemcpyDeviceToHost);
        };
        if (queries) {
            copy(s.bh, r->bh + first, n * sizeof(int), cudaMemcpyHostToDevice);
            copy(s.q_row, r->q_row + first, n * sizeof(int), cudaMemcpyHostToDevice);
            query_rows_kernel<T><<<n, 32 * WARPS, 0, stream>>>(*a, scale, s, r->dq != NULL);
            status = sb_cuda_launched("reference: query rows");
            copy_rows(r->o, s.o, a->head_dim_v);
            copy_rows(r->dq, s.dq, a->head_dim);
            copy_rows(r->lse, s.row_lse, 1);
            copy_rows(r->dq ? r->dq_terms : NULL, s.terms, 1);
        }
        if (keys && status == SB_OK) {
            copy(s.bh_kv, r->bh_kv + first, n * sizeof(int), cudaMemcpyHostToDevice);
            copy(s.k_row, r->k_row + first, n * sizeof(int), cudaMemcpyHostToDevice);
            key_rows_kernel<T><<<n, 32 * WARPS, 0, stream>>>(*a, scale, s);
            status = sb_cuda_launched("reference: key rows");
            copy_rows(r->dk, s.dk, a->head_dim);
            copy_rows(r->dv, s.dv, a->head_dim_v);
            copy_rows(r->dk_terms, s.terms, 1);
        }
    }
    const cudaError_t finished = cudaStreamSynchronize(stream);
    if (status == SB_OK)
        status = sb_cuda_status(copy.error, "reference: copy");
    return status == SB_OK ? sb_cuda_status(finished, "reference") : status;
}

} // namespace

extern "C" size_t sb_cuda_reference_workspace(sb_context *ctx, const sb_attention *a, bool backward)
{
    (void)ctx;
    return scratch_of(a, backward).bytes;
}

extern "C" sb_status sb_cuda_reference(sb_context *ctx, const sb_attention *a, const sb_attention_rows *rows,
                                       void *stream)
{
    const bool queries = rows->o || rows->lse || rows->dq, keys = rows->dk || rows->dv;
    const bool backward = rows->dq || keys;
    SB_TRY(sb_attention_check(a));
    SB_TRY(sb_workspace_check(a, sb_cuda_reference_workspace(ctx, a, backward)));
    if (queries && !(in_range(rows->bh, rows->n, a->batch * a->heads) && in_range(rows->q_row, rows->n, a->seq_q)))
        return sb_error(SB_INVALID, "a query row of the reference lies outside of the tensor");
    if (keys && !(in_range(rows->bh_kv, rows->n, a->batch * a->heads_kv) && in_range(rows->k_row, rows->n, a->seq_k)))
        return sb_error(SB_INVALID, "a key row of the reference lies outside of the tensor");
    const scratch s = scratch_of(a, backward);
    sb_attention resolved = *a;
    resolved.head_dim_v = sb_head_dim_v(a);
    resolved.window_left = sb_window_left(a), resolved.window_right = sb_window_right(a);
    a = &resolved;
    return with_element_type(
        a->dtype, [&](auto zero) { return run<decltype(zero)>(a, rows, s, queries, keys, (cudaStream_t)stream); });
}
