/* SPDX-License-Identifier: MIT */
/* Small ops: normal random numbers, a copy at memory bandwidth, and a kernel that does nothing. */
#include "kernels/cuda/runtime/backend.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/vector.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int COPY_VECTORS = 4; /* 16-byte vectors a thread has in flight */

/* Philox4x32-10 and Box-Muller exactly as common/core/rng.h defines them. */
__device__ __forceinline__ uint4 philox(uint4 c, uint2 key)
{
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const unsigned low0 = 0xD2511F53u * c.x, high0 = __umulhi(0xD2511F53u, c.x);
        const unsigned low1 = 0xCD9E8D57u * c.z, high1 = __umulhi(0xCD9E8D57u, c.z);
        c = make_uint4(high1 ^ c.y ^ key.x, low1, high0 ^ c.w ^ key.y, low0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return c;
}

__device__ __forceinline__ void box_muller(unsigned x0, unsigned x1, float scale, float *z)
{
    const float u = ((float)x0 + 0.5f) * 0x1p-32f;
    const float angle = 6.2831853f * (((float)x1 + 0.5f) * 0x1p-32f);
    const float radius = sqrtf(-2.0f * logf(u));
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    z[0] = radius * cosine * scale;
    z[1] = radius * sine * scale;
}

/* Four elements, one store. */
template <int WORDS>
struct alignas(4 * WORDS) packed_draws {
    unsigned w[WORDS];
};

/* Four draws a thread: one counter, from that of the first draw on. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    fill_normal_kernel(unsigned *out, int64_t n, uint2 key, unsigned stream_id, int64_t from, float scale)
{
    constexpr int N = word<T>::N, WORDS = 4 / N;
    const int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x, first = 4 * j;
    if (first >= n)
        return;
    const int64_t counter = from + j;
    const uint4 x = philox(make_uint4((unsigned)counter, (unsigned)(counter >> 32), stream_id, 0), key);
    float z[4];
    box_muller(x.x, x.y, scale, z);
    box_muller(x.z, x.w, scale, z + 2);
    if (first + 4 <= n) {
        packed_draws<WORDS> whole;
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            whole.w[i] = word<T>::pack(z + i * N);
        reinterpret_cast<packed_draws<WORDS> *>(out)[j] = whole;
        return;
    }
    for (int i = 0; i < (int)(n - first); i++) {
        const float pair[2] = {z[i], 0};
        const unsigned w = word<T>::pack(pair);
        if (N == 1)
            out[first + i] = w;
        else
            reinterpret_cast<unsigned short *>(out)[first + i] = (unsigned short)w;
    }
}

__global__ void __launch_bounds__(THREADS)
    copy_kernel(uint4 *__restrict__ dst, const uint4 *__restrict__ src, int64_t vectors, int tail_bytes)
{
    const int64_t first = (int64_t)blockIdx.x * (THREADS * COPY_VECTORS) + threadIdx.x;
    uint4 x[COPY_VECTORS];
#pragma unroll
    for (int i = 0; i < COPY_VECTORS; i++)
        if (first + i * THREADS < vectors)
            x[i] = src[first + i * THREADS];
#pragma unroll
    for (int i = 0; i < COPY_VECTORS; i++)
        if (first + i * THREADS < vectors)
            dst[first + i * THREADS] = x[i];
    if (first < tail_bytes)
        reinterpret_cast<unsigned char *>(dst + vectors)[first] =
            reinterpret_cast<const unsigned char *>(src + vectors)[first];
}

__global__ void nothing_kernel() {}

bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

} // namespace

extern "C" sb_status sb_cuda_fill_normal_from(sb_context *ctx, sb_dtype dtype, void *out, size_t n, uint64_t seed,
                                              uint32_t stream_id, uint64_t first, float scale, void *stream)
{
    (void)ctx;
    if (!aligned(out) || first % 4 != 0)
        return sb_error(SB_INVALID, "the output of fill_normal must be aligned to 16 bytes, and its first draw to 4");
    if (n == 0)
        return SB_OK;
    const unsigned blocks = (unsigned)((n + 4 * THREADS - 1) / (4 * THREADS));
    return with_element_type(dtype, [&](auto zero) {
        fill_normal_kernel<decltype(zero)><<<blocks, THREADS, 0, (cudaStream_t)stream>>>(
            (unsigned *)out, (int64_t)n, make_uint2((unsigned)seed, (unsigned)(seed >> 32)), stream_id,
            (int64_t)(first / 4), scale);
        return sb_cuda_launched("fill_normal kernel");
    });
}

extern "C" sb_status sb_cuda_fill_normal(sb_context *ctx, sb_dtype dtype, void *out, size_t n, uint64_t seed,
                                         uint32_t stream_id, float scale, void *stream)
{
    return sb_cuda_fill_normal_from(ctx, dtype, out, n, seed, stream_id, 0, scale, stream);
}

extern "C" sb_status sb_cuda_copy(sb_context *ctx, void *dst, const void *src, size_t bytes, void *stream)
{
    (void)ctx;
    if (!aligned(dst) || !aligned(src))
        return sb_error(SB_INVALID, "both ends of a copy must be aligned to 16 bytes");
    if (bytes == 0)
        return SB_OK;
    const size_t vectors = bytes / 16, per_block = THREADS * COPY_VECTORS;
    const unsigned blocks = (unsigned)(vectors / per_block + 1);
    copy_kernel<<<blocks, THREADS, 0, (cudaStream_t)stream>>>((uint4 *)dst, (const uint4 *)src, (int64_t)vectors,
                                                              (int)(bytes % 16));
    return sb_cuda_launched("copy kernel");
}

extern "C" sb_status sb_cuda_nothing(sb_context *ctx, void *stream)
{
    (void)ctx;
    nothing_kernel<<<1, 1, 0, (cudaStream_t)stream>>>();
    return sb_cuda_launched("empty kernel");
}
