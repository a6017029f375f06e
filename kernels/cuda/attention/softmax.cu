/* SPDX-License-Identifier: MIT */
/* Softmax over the rows of the score matrix, with scale and causal mask, and its gradient: what fused attention runs as
 * one kernel each, and unfused with scale 1 and no mask. One block a row. A row that fits stays in registers, so that
 * memory is read once and written once; a longer one is read twice, the second time mostly from L2. */
#include "kernels/cuda/attention/scores.h"
#include "kernels/cuda/primitives/reduction.cuh"
#include "kernels/cuda/primitives/vector.cuh"

namespace
{

constexpr float LOG2_E = 1.44269504f;
constexpr int STREAMED = 0; /* "vectors per thread" of a kernel that does not keep its row */
constexpr int STREAMED_THREADS = 1024;

/* The most threads of a block: few enough that what a thread holds stays in registers. */
constexpr int max_threads(int vectors)
{
    return vectors == STREAMED ? STREAMED_THREADS : vectors > 4 ? 512 : 256;
}

struct row_shape {
    int seq_q, seq_k;
    int64_t pitch;
    bool causal;
    float scale;
};

/* How many keys the query of this row sees. */
__device__ __forceinline__ int visible_keys(const row_shape &r, int row)
{
    if (!r.causal)
        return r.seq_k;
    return max(0, min(r.seq_k, row % r.seq_q + 1 + r.seq_k - r.seq_q));
}

/* The bits of the first n elements of a word. */
template <typename T>
__device__ __forceinline__ unsigned first_bits(int n)
{
    return n >= word<T>::N ? ~0u : n <= 0 ? 0u : 0xffffu;
}

/* Vector `at` of a row of which `limit` elements count; the others become `fill`, a whole vector of them unread. */
template <typename T>
__device__ __forceinline__ vector16<T> load_limited(const T *row, int at, int limit, float fill)
{
    const int first = at * vector16<T>::N;
    const float fills[2] = {fill, fill};
    const unsigned filled = word<T>::pack(fills);
    vector16<T> x = {{filled, filled, filled, filled}};
    if (first < limit) {
        x = reinterpret_cast<const vector16<T> *>(row)[at];
        if (first + vector16<T>::N > limit) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const unsigned keep = first_bits<T>(limit - first - i * word<T>::N);
                x.w[i] = (x.w[i] & keep) | (filled & ~keep);
            }
        }
    }
    return x;
}

template <typename T>
__device__ __forceinline__ void store(T *row, int at, const vector16<T> &x)
{
    reinterpret_cast<vector16<T> *>(row)[at] = x;
}

/* Unlike max_op, it takes the other of a NaN and a number. */
struct larger_op {
    static __device__ __forceinline__ float identity() { return -INFINITY; }
    static __device__ __forceinline__ float apply(float x, float y) { return fmaxf(x, y); }
};

/* A row without a visible key has maximum -inf; 0 in its place keeps -inf - -inf out of the exponent. */
__device__ __forceinline__ float finite_maximum(float m)
{
    return m == -INFINITY ? 0.0f : m;
}

template <typename T>
__device__ __forceinline__ float vector_maximum(const vector16<T> &x, float scale)
{
    float m = -INFINITY, f[vector16<T>::N];
    x.unpack(f);
#pragma unroll
    for (int j = 0; j < vector16<T>::N; j++)
        m = fmaxf(m, f[j] * scale);
    return m;
}

__device__ __forceinline__ float exponential(float x, float scale, float m)
{
    return exp2f((x * scale - m) * LOG2_E);
}

template <typename T>
__device__ __forceinline__ float vector_sum(const vector16<T> &x, float scale, float m)
{
    float sum = 0, f[vector16<T>::N];
    x.unpack(f);
#pragma unroll
    for (int j = 0; j < vector16<T>::N; j++)
        sum += exponential(f[j], scale, m);
    return sum;
}

template <typename T>
__device__ __forceinline__ void store_probabilities(T *row, int at, vector16<T> x, float scale, float m, float inverse)
{
    float f[vector16<T>::N];
    x.unpack(f);
#pragma unroll
    for (int j = 0; j < vector16<T>::N; j++)
        f[j] = exponential(f[j], scale, m) * inverse;
    x.pack(f);
    store(row, at, x);
}

/* in may be out. */
template <typename T, int VECTORS>
__global__ void __launch_bounds__(max_threads(VECTORS)) softmax_kernel(const T *in, T *out, float *lse, row_shape r)
{
    __shared__ float shared_max[32], shared_sum[32];
    const int64_t row = blockIdx.x;
    const int limit = visible_keys(r, (int)row), vectors = (int)(r.pitch / vector16<T>::N);
    const float scale = r.scale;
    const unsigned zero = (unsigned)r.pitch % 8;
    in += row * r.pitch;
    out += row * r.pitch;

    float m = -INFINITY, sum = 0;
    if constexpr (VECTORS != STREAMED) {
        vector16<T> x[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            x[i] = load_limited(in, threadIdx.x + i * blockDim.x, limit, -INFINITY);
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            m = fmaxf(m, vector_maximum(x[i], scale));
        m = finite_maximum(block_reduce<larger_op>(m, shared_max));
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            x[i].stay_packed(zero);
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            sum += vector_sum(x[i], scale, m);
        sum = block_reduce<add_op>(sum, shared_sum);
        const float inverse = sum > 0 ? 1 / sum : sum;
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            x[i].stay_packed(zero);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const int at = threadIdx.x + i * blockDim.x;
            if (at < vectors)
                store_probabilities(out, at, x[i], scale, m, inverse);
        }
    } else {
        /* Maximum and sum in one reading: a thread's sum is rescaled when its maximum grows. */
        for (int at = threadIdx.x; at < vectors; at += blockDim.x) {
            const vector16<T> x = load_limited(in, at, limit, -INFINITY);
            const float larger = fmaxf(m, vector_maximum(x, scale)), base = finite_maximum(larger);
            sum = sum * exp2f((m - base) * LOG2_E) + vector_sum(x, scale, base);
            m = larger;
        }
        const float mine = m;
        m = finite_maximum(block_reduce<larger_op>(m, shared_max));
        sum = block_reduce<add_op>(sum * exp2f((mine - m) * LOG2_E), shared_sum);
        const float inverse = sum > 0 ? 1 / sum : sum;
        for (int at = threadIdx.x; at < vectors; at += blockDim.x)
            store_probabilities(out, at, load_limited(in, at, limit, -INFINITY), scale, m, inverse);
    }
    if (threadIdx.x == 0)
        lse[row] = m + logf(sum);
}

template <typename T>
__device__ __forceinline__ float vector_dot(const vector16<T> &x, const vector16<T> &y)
{
    float sum = 0, f[vector16<T>::N], g[vector16<T>::N];
    x.unpack(f);
    y.unpack(g);
#pragma unroll
    for (int j = 0; j < vector16<T>::N; j++)
        sum += f[j] * g[j];
    return sum;
}

template <typename T>
__device__ __forceinline__ void store_gradient(T *row, int at, const vector16<T> &p, vector16<T> dp, float dot,
                                               float scale)
{
    float f[vector16<T>::N], g[vector16<T>::N];
    p.unpack(f);
    dp.unpack(g);
#pragma unroll
    for (int j = 0; j < vector16<T>::N; j++)
        g[j] = scale * (f[j] * (g[j] - dot));
    dp.pack(g);
    store(row, at, dp);
}

/* dp may be ds. What is beyond the visible keys is taken as 0 in both inputs, so it is 0 in ds. */
template <typename T, int VECTORS>
__global__ void __launch_bounds__(max_threads(VECTORS))
    softmax_backward_kernel(const T *p, const T *dp, T *ds, row_shape r)
{
    __shared__ float shared[32];
    const int64_t row = blockIdx.x;
    const int limit = visible_keys(r, (int)row), vectors = (int)(r.pitch / vector16<T>::N);
    const unsigned zero = (unsigned)r.pitch % 8;
    p += row * r.pitch;
    dp += row * r.pitch;
    ds += row * r.pitch;

    float dot = 0;
    if constexpr (VECTORS != STREAMED) {
        vector16<T> x[VECTORS], y[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const int at = threadIdx.x + i * blockDim.x;
            x[i] = load_limited(p, at, limit, 0);
            y[i] = load_limited(dp, at, limit, 0);
        }
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            dot += vector_dot(x[i], y[i]);
        dot = block_reduce<add_op>(dot, shared);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            x[i].stay_packed(zero);
            y[i].stay_packed(zero);
        }
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            const int at = threadIdx.x + i * blockDim.x;
            if (at < vectors)
                store_gradient(ds, at, x[i], y[i], dot, r.scale);
        }
    } else {
        for (int at = threadIdx.x; at < vectors; at += blockDim.x)
            dot += vector_dot(load_limited(p, at, limit, 0), load_limited(dp, at, limit, 0));
        dot = block_reduce<add_op>(dot, shared);
        for (int at = threadIdx.x; at < vectors; at += blockDim.x)
            store_gradient(ds, at, load_limited(p, at, limit, 0), load_limited(dp, at, limit, 0), dot, r.scale);
    }
}

/* launch(vectors per thread, threads of a block) for rows of n vectors, of which a thread holds at most MOST. */
template <int MOST, typename LAUNCH>
void launch_for(int n, LAUNCH launch)
{
    const auto with = [&](auto each) {
        constexpr int EACH = decltype(each)::value;
        launch(each, (unsigned)((n + EACH - 1) / EACH + 31) / 32 * 32);
    };
    if (n <= 128)
        with(std::integral_constant<int, 1>());
    else if (n <= 512)
        with(std::integral_constant<int, 2>());
    else if (n <= 1024)
        with(std::integral_constant<int, 4>());
    else if (n <= 4096)
        with(std::integral_constant<int, 8>());
    else if (MOST >= 16 && n <= 8192)
        with(std::integral_constant < int, MOST >= 16 ? 16 : 8 > ());
    else
        launch(std::integral_constant<int, STREAMED>(), STREAMED_THREADS);
}

} // namespace

extern "C" sb_status sb_scores_softmax(const sb_scores *s, const void *in, void *p, float *lse, float scale,
                                       bool causal, void *stream)
{
    const row_shape r = {s->seq_q, s->seq_k, s->pitch, causal, scale};
    const unsigned rows = (unsigned)(s->heads * s->seq_q);
    const cudaStream_t on = (cudaStream_t)stream;
    return with_element_type(s->dtype, [&](auto zero) {
        using T = decltype(zero);
        const T *x = (const T *)in;
        T *y = (T *)p;
        const int n = (int)(s->pitch / vector16<T>::N);
        launch_for<16>(n, [&](auto each, unsigned threads) {
            softmax_kernel<T, decltype(each)::value><<<rows, threads, 0, on>>>(x, y, lse, r);
        });
        return sb_cuda_launched("softmax kernel");
    });
}

extern "C" sb_status sb_scores_softmax_backward(const sb_scores *s, const void *p, const void *dp, void *ds,
                                                float scale, bool causal, void *stream)
{
    const row_shape r = {s->seq_q, s->seq_k, s->pitch, causal, scale};
    const unsigned rows = (unsigned)(s->heads * s->seq_q);
    const cudaStream_t on = (cudaStream_t)stream;
    return with_element_type(s->dtype, [&](auto zero) {
        using T = decltype(zero);
        const T *x = (const T *)p, *y = (const T *)dp;
        T *z = (T *)ds;
        const int n = (int)(s->pitch / vector16<T>::N);
        launch_for<8>(n, [&](auto each, unsigned threads) {
            softmax_backward_kernel<T, decltype(each)::value><<<rows, threads, 0, on>>>(x, y, z, r);
        });
        return sb_cuda_launched("softmax gradient kernel");
    });
}
