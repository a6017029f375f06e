/* SPDX-License-Identifier: MIT */
/* The passes of unfused attention that touch each element of the score matrix once: scale, mask, masked fill. Every
 * thread moves several independent 16-byte vectors, enough in flight to fill the memory system. */
#include "kernels/cuda/attention/scores.h"
#include "kernels/cuda/primitives/vector.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int VECTORS = 4; /* per thread */
constexpr unsigned MAX_GRID_Y = 65535;

unsigned blocks_for(int64_t vectors)
{
    return (unsigned)((vectors + THREADS * VECTORS - 1) / (THREADS * VECTORS));
}

/* This thread's vector number `i`: neighbouring threads hold neighbouring vectors. */
__device__ __forceinline__ int64_t vector_index(int i)
{
    return (int64_t)blockIdx.x * (THREADS * VECTORS) + i * THREADS + threadIdx.x;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    scale_kernel(const vector16<T> *__restrict__ in, vector16<T> *__restrict__ out, int64_t vectors, float factor)
{
    vector16<T> x[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++)
        if (vector_index(i) < vectors)
            x[i] = in[vector_index(i)];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        float f[vector16<T>::N];
        x[i].unpack(f);
#pragma unroll
        for (int j = 0; j < vector16<T>::N; j++)
            f[j] *= factor;
        x[i].pack(f);
        if (vector_index(i) < vectors)
            out[vector_index(i)] = x[i];
    }
}

/* Eight mask bytes a thread; `eighths` of them in a row. Row in y, so that no index is divided. */
__global__ void __launch_bounds__(THREADS)
    causal_mask_kernel(uint2 *__restrict__ mask, int eighths, int seq_q, int offset)
{
    const int at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= eighths)
        return;
    for (int row = blockIdx.y; row < seq_q; row += gridDim.y) {
        unsigned word[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (at * 8 + j > row + offset)
                word[j / 4] |= 1u << (8 * (j % 4));
        mask[(int64_t)row * eighths + at] = make_uint2(word[0], word[1]);
    }
}

/* As many mask bytes as a vector has elements. */
template <int N>
struct alignas(N) mask_bytes {
    unsigned char e[N];
};

/* All bits of the elements of word `i` that the mask hides. */
template <typename T>
__device__ __forceinline__ unsigned hidden_bits(const mask_bytes<vector16<T>::N> &m, int i)
{
    if constexpr (word<T>::N == 1)
        return 0u - m.e[i];
    else
        return ((0u - m.e[2 * i + 1]) << 16) | ((0u - m.e[2 * i]) & 0xffffu);
}

/* x covers the (Sq, pitch) plane of a head, y the heads. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    masked_fill_kernel(const vector16<T> *__restrict__ in, const mask_bytes<vector16<T>::N> *__restrict__ mask,
                       vector16<T> *__restrict__ out, int64_t plane_vectors, int heads, float value)
{
    constexpr int N = vector16<T>::N;
    const float values[2] = {value, value};
    const unsigned fill = word<T>::pack(values);
    for (int head = blockIdx.y; head < heads; head += gridDim.y) {
        const int64_t first = head * plane_vectors;
        vector16<T> x[VECTORS];
        mask_bytes<N> m[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            if (vector_index(i) < plane_vectors) {
                x[i] = in[first + vector_index(i)];
                m[i] = mask[vector_index(i)];
            }
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const unsigned hidden = hidden_bits<T>(m[i], j);
                x[i].w[j] = (x[i].w[j] & ~hidden) | (fill & hidden);
            }
            if (vector_index(i) < plane_vectors)
                out[first + vector_index(i)] = x[i];
        }
    }
}

unsigned grid_y(int n)
{
    return (unsigned)n < MAX_GRID_Y ? (unsigned)n : MAX_GRID_Y;
}

} // namespace

extern "C" sb_status sb_scores_scale(const sb_scores *s, const void *in, void *out, float factor, void *stream)
{
    return with_element_type(s->dtype, [&](auto zero) {
        using T = decltype(zero);
        const int64_t vectors = s->heads * s->head_stride / vector16<T>::N;
        scale_kernel<T><<<blocks_for(vectors), THREADS, 0, (cudaStream_t)stream>>>((const vector16<T> *)in,
                                                                                   (vector16<T> *)out, vectors, factor);
        return sb_cuda_launched("scale kernel");
    });
}

extern "C" sb_status sb_scores_causal_mask(const sb_scores *s, unsigned char *mask, void *stream)
{
    const int eighths = (int)(s->pitch / 8);
    const dim3 grid((eighths + THREADS - 1) / THREADS, grid_y(s->seq_q));
    causal_mask_kernel<<<grid, THREADS, 0, (cudaStream_t)stream>>>((uint2 *)mask, eighths, s->seq_q,
                                                                   s->seq_k - s->seq_q);
    return sb_cuda_launched("causal mask kernel");
}

extern "C" sb_status sb_scores_masked_fill(const sb_scores *s, const void *in, const unsigned char *mask, float value,
                                           void *out, void *stream)
{
    return with_element_type(s->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = vector16<T>::N;
        const int64_t vectors = s->head_stride / N;
        const dim3 grid(blocks_for(vectors), grid_y(s->heads));
        masked_fill_kernel<T><<<grid, THREADS, 0, (cudaStream_t)stream>>>(
            (const vector16<T> *)in, (const mask_bytes<N> *)mask, (vector16<T> *)out, vectors, s->heads, value);
        return sb_cuda_launched("masked fill kernel");
    });
}
