/* SPDX-License-Identifier: MIT */
/* Cross-entropy of each row of logits with its target, and the gradient in place of the logits.
 *
 * Bound: bytes. A row is read once and, for the gradient, written once. One block a row: the row stays in registers,
 * packed as it is stored, through maximum, sum of exponentials and gradient, while other blocks of the SM keep the
 * memory busy. A longer row than registers hold is read twice, the second time mostly from L2. With a gradient an
 * element of a 16-bit dtype takes 18 instructions of the 27 that 4 bytes at 4.2 TB/s leave time for.
 * A vocabulary that is no multiple of a vector leaves rows unaligned: the elements before the first whole vector of a
 * row and after its last are held one a thread. A target outside the vocabulary gives the loss NaN. */
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/packed.cuh"
#include "kernels/cuda/primitives/reduction.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

#include <type_traits>

namespace
{

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;
constexpr int STREAMED = 0; /* "vectors per thread" of a kernel that does not keep its row */
constexpr int STREAMED_THREADS = 1024, BATCH = 4;
constexpr int MEAN_THREADS = 1024;

/* Threads of a block and blocks of an SM by the vectors a thread holds: at least two blocks, so that one loads while
 * the other computes, as long as registers hold their rows. */
constexpr int max_threads(int vectors)
{
    switch (vectors) {
    case 1: return 256;
    case 4: return 512;
    case 13: return 320;
    case 16: return 512;
    default: return STREAMED_THREADS;
    }
}
constexpr int min_blocks(int vectors)
{
    switch (vectors) {
    case 1: return 6;
    case 4: return 3;
    case 13: return 2;
    default: return 1;
    }
}

struct arguments {
    const int32_t *targets;
    float *row_loss;
    const float *scale;
    float inverse_rows;
    int vocab;
    bool backward;
    unsigned zero; /* see vector16::stay_packed */
};

/* Where a row's whole vectors begin. */
template <typename T>
struct row_layout {
    static constexpr int N = vector16<T>::N;
    int head, vectors, edges; /* elements before the vectors; vectors; elements before and after them */

    __device__ __forceinline__ row_layout(int64_t first, int vocab)
    {
        head = min((int)(-first & (N - 1)), vocab);
        vectors = (vocab - head) / N;
        edges = vocab - vectors * N;
    }
    /* The element that thread t < edges holds besides its vectors. */
    __device__ __forceinline__ int edge(int t) const { return t < head ? t : t + vectors * N; }
};

/* 2^x; the little below 2^-126 is flushed to zero. */
__device__ __forceinline__ float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* e^x over 2^base. Everything is relative to `base`, the maximum times log2(e) as it was rounded, so that its rounding
 * is in every term alike and cancels. */
__device__ __forceinline__ float exponential(float x, float base)
{
    return power_of_two(fmaf(x, LOG2_E, -base));
}

template <typename T>
__device__ __forceinline__ vector16<T> load_or_fill(const vector16<T> *row, int at, int vectors)
{
    const float fills[2] = {-INFINITY, -INFINITY};
    const unsigned filled = word<T>::pack(fills);
    return at < vectors ? row[at] : vector16<T>{{filled, filled, filled, filled}};
}

/* The larger of each element of two words: one instruction for both halves of a 16-bit dtype. */
template <typename T>
__device__ __forceinline__ unsigned larger_elements(unsigned x, unsigned y)
{
    unsigned m;
    if constexpr (std::is_same_v<T, __nv_bfloat16>)
        asm("max.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(x), "r"(y));
    else if constexpr (std::is_same_v<T, __half>)
        asm("max.f16x2 %0, %1, %2;" : "=r"(m) : "r"(x), "r"(y));
    else
        m = __float_as_uint(fmaxf(__uint_as_float(x), __uint_as_float(y)));
    return m;
}

template <typename T, int VECTORS>
__device__ __forceinline__ float vector_maximum(const vector16<T> (&x)[VECTORS])
{
    unsigned w = x[0].w[0];
    float f[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 1; i < 4 * VECTORS; i++)
        w = larger_elements<T>(w, x[i / 4].w[i % 4]);
    word<T>::unpack(w, f);
    return fmaxf(f[0], f[1]);
}

template <typename T>
__device__ __forceinline__ float vector_sum(const vector16<T> &x, float base)
{
    float sum = 0, f[vector16<T>::N];
    x.unpack(f);
#pragma unroll
    for (int j = 0; j < vector16<T>::N; j++)
        sum += exponential(f[j], base);
    return sum;
}

template <typename T>
__device__ __forceinline__ void store_gradient(vector16<T> *row, int at, vector16<T> x, float base, float factor)
{
    float f[vector16<T>::N];
    x.unpack(f);
#pragma unroll
    for (int j = 0; j < vector16<T>::N; j++)
        f[j] = exponential(f[j], base) * factor;
    x.pack(f);
    row[at] = x;
}

struct fmax_op {
    static __device__ __forceinline__ float identity() { return -INFINITY; }
    static __device__ __forceinline__ float apply(float x, float y) { return fmaxf(x, y); }
};

/* 2^(before - after): what a sum is multiplied by when its base grows. A base of 0 also stands for a maximum of -inf, whose sum is 0;
 * the next one may be so far below it that the power alone would be infinite, and 0 times that a NaN. */
__device__ __forceinline__ float rescale(float before, float after)
{
    return power_of_two(fminf(before - after, 0.0f));
}

/* Maximum and sum in one reading: a thread's sum is rescaled when its maximum grows. A thread may see nothing but -inf;
 * 0 in place of such a maximum keeps -inf - -inf out of the exponents. */
template <typename T>
__device__ __forceinline__ void streamed_statistics(const vector16<T> *body, int vectors, float edge, float &base,
                                                    float &sum, float *shared_max, float *shared_sum)
{
    float m = edge, mine = m == -INFINITY ? 0.0f : m * LOG2_E, total = exponential(edge, mine);
    for (int first = threadIdx.x; first < vectors; first += BATCH * blockDim.x) {
        vector16<T> x[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            x[i] = load_or_fill(body, first + i * blockDim.x, vectors);
        m = fmaxf(m, vector_maximum(x));
        const float larger = m == -INFINITY ? 0.0f : m * LOG2_E;
        total *= rescale(mine, larger);
        mine = larger;
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            total += vector_sum(x[i], mine);
    }
    base = block_reduce<fmax_op>(m, shared_max) * LOG2_E;
    sum = block_reduce<add_op>(total * rescale(mine, base), shared_sum);
}

template <typename T>
__device__ __forceinline__ void streamed_gradient(vector16<T> *body, int vectors, float base, float factor)
{
    for (int first = threadIdx.x; first < vectors; first += BATCH * blockDim.x) {
        vector16<T> x[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            x[i] = load_or_fill(body, first + i * blockDim.x, vectors);
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (first + i * blockDim.x < vectors)
                store_gradient(body, first + i * blockDim.x, x[i], base, factor);
    }
}

template <typename T, int VECTORS>
__global__ void __launch_bounds__(max_threads(VECTORS), min_blocks(VECTORS))
    cross_entropy_kernel(T *logits, arguments a)
{
    __shared__ float shared_max[32], shared_sum[32];
    const int64_t first = (int64_t)blockIdx.x * a.vocab;
    const row_layout<T> l(first, a.vocab);
    T *row = logits + first;
    vector16<T> *body = reinterpret_cast<vector16<T> *>(row + l.head);
    const int target = a.targets[blockIdx.x];
    const bool known = target >= 0 && target < a.vocab;
    const float numerator = (a.scale ? *a.scale : 1.0f) * a.inverse_rows;
    const float edge = threadIdx.x < l.edges ? to_float(row[l.edge(threadIdx.x)]) : -INFINITY;
    float base, sum, at_target = NAN, factor;

    if constexpr (VECTORS != STREAMED) {
        vector16<T> x[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            x[i] = load_or_fill(body, threadIdx.x + i * blockDim.x, l.vectors);
        base = block_reduce<fmax_op>(fmaxf(edge, vector_maximum(x)), shared_max) * LOG2_E;
        if (known)
            at_target = to_float(row[target]);
        sum = exponential(edge, base);
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            sum += vector_sum(x[i], base);
        sum = block_reduce<add_op>(sum, shared_sum);
        factor = __fdividef(numerator, sum);
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            x[i].stay_packed(a.zero);
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            if (a.backward && threadIdx.x + i * blockDim.x < l.vectors)
                store_gradient(body, threadIdx.x + i * blockDim.x, x[i], base, factor);
    } else {
        if (known)
            at_target = to_float(row[target]);
        streamed_statistics(body, l.vectors, edge, base, sum, shared_max, shared_sum);
        factor = __fdividef(numerator, sum);
        if (a.backward)
            streamed_gradient(body, l.vectors, base, factor);
    }
    if (a.backward) {
        if (threadIdx.x < l.edges)
            from_float(exponential(edge, base) * factor, &row[l.edge(threadIdx.x)]);
        __syncthreads(); /* the target's gradient comes on top of what was written like any other */
    }
    if (threadIdx.x == 0) {
        a.row_loss[blockIdx.x] = LN_2 * (log2f(sum) + fmaf(-at_target, LOG2_E, base));
        if (a.backward && known)
            from_float((exponential(at_target, base) - sum) * factor, &row[target]);
    }
}

__global__ void __launch_bounds__(MEAN_THREADS) mean_kernel(const float *row_loss, int rows, float *loss)
{
    __shared__ double shared[32];
    const double sum = block_sum(row_loss, rows, shared);
    if (threadIdx.x == 0)
        *loss = (float)(sum / rows);
}

/* Threads of a block that holds `vectors` vectors, `each` per thread. */
unsigned threads_for(int vectors, int each)
{
    return vectors == 0 ? 32 : (unsigned)((vectors + each - 1) / each + 31) / 32 * 32;
}

template <typename T>
void launch(T *logits, unsigned rows, const arguments &a, cudaStream_t stream)
{
    const int n = a.vocab / vector16<T>::N;
    if (n <= 256)
        cross_entropy_kernel<T, 1><<<rows, threads_for(n, 1), 0, stream>>>(logits, a);
    else if (n <= 4 * 512)
        cross_entropy_kernel<T, 4><<<rows, threads_for(n, 4), 0, stream>>>(logits, a);
    else if (n <= 13 * 320)
        cross_entropy_kernel<T, 13><<<rows, threads_for(n, 13), 0, stream>>>(logits, a);
    else if (n <= 16 * 512)
        cross_entropy_kernel<T, 16><<<rows, threads_for(n, 16), 0, stream>>>(logits, a);
    else
        cross_entropy_kernel<T, STREAMED><<<rows, STREAMED_THREADS, 0, stream>>>(logits, a);
}

} // namespace

extern "C" sb_status sb_cuda_cross_entropy(sb_context *ctx, const sb_cross_entropy *p, void *stream)
{
    (void)ctx;
    sb_status status = sb_cross_entropy_check(p);
    if (status != SB_OK)
        return status;
    if ((uintptr_t)p->logits % 16 != 0)
        return sb_error(SB_INVALID, "cross_entropy: logits must be aligned to 16 bytes");
    const cudaStream_t on = (cudaStream_t)stream;
    const float inverse = 1.0f / (float)(p->total_rows ? p->total_rows : p->rows);
    const arguments a = {p->targets, p->row_loss, p->scale, inverse, p->vocab, p->backward, 0};
    status = with_element_type(p->dtype, [&](auto zero) {
        launch((decltype(zero) *)p->logits, (unsigned)p->rows, a, on);
        return sb_cuda_launched("cross_entropy kernel");
    });
    if (status != SB_OK)
        return status;
    mean_kernel<<<1, MEAN_THREADS, 0, on>>>(p->row_loss, p->rows, p->loss);
    return sb_cuda_launched("cross_entropy mean kernel");
}
