/* SPDX-License-Identifier: MIT */
/* Rotary embedding in place. One pass over memory: each element is read and written once. Neighbouring threads rotate
 * neighbouring chunks of one token's heads, so that the heads of a fused row are read as one run. A thread rotates the
 * same chunk of up to EACH heads by the same angles, which it reads once, from a table small enough for L2. */
#include "kernels/cuda/primitives/early.cuh"
#include "kernels/cuda/primitives/rope_math.cuh"
#include "kernels/cuda/primitives/row_chunks.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

#include <algorithm>

namespace
{

constexpr int THREADS = 128;     /* at most, of a block of (chunks, slots, tokens) */
constexpr int EACH = 4;          /* most heads of a thread */
constexpr int FEW_CHUNKS = 1024; /* an SM: below that a thread rotates one head, which is sooner done */
constexpr int MAX_GRID = 65535, MAX_BLOCK_Z = 64; /* limits of CUDA: blocks along y and z, threads along z */

struct rope_shape {
    int batch, seq, heads, head_dim;
    int chunks; /* chunks of a head */
    int slots;  /* threads that share the heads of a token: slot i rotates heads i, i + slots, ... */
    int64_t stride_b, stride_h, stride_s;
    float sign; /* sign of the angle */
};

template <int N>
__device__ __forceinline__ void rotate(float (&x)[N], const float (&angles)[N], float sign)
{
#pragma unroll
    for (int j = 0; j < N; j += 2) {
        const rope_math::pair p = rope_math::turned(x[j], x[j + 1], angles[j], sign * angles[j + 1]);
        x[j] = p.first, x[j + 1] = p.second;
    }
}

/* Chunk `at` of the heads of this slot; x is the token's head 0. */
template <typename T, int N>
__device__ __forceinline__ void rotate_heads(T *x, const float *table, int at, int slot, const rope_shape &r)
{
    chunk<T, N> v[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (slot + k * r.slots < r.heads)
            v[k] = load_chunk<N>(x + (slot + k * r.slots) * r.stride_h, at);
    float angles[N];
    load_chunk<N>(table, at).unpack(angles);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (slot + k * r.slots >= r.heads)
            return;
        float f[N];
        v[k].unpack(f);
        rotate(f, angles, r.sign);
        v[k].pack(f);
        store_chunk<N>(x + (slot + k * r.slots) * r.stride_h, at, v[k]);
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) rope_kernel(T *x, const float *table, rope_shape r)
{
    wait_if_early();
    const int s = (int)(blockIdx.x * blockDim.z + threadIdx.z), slot = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    if (s >= r.seq || slot >= r.slots)
        return;
    for (int b = (int)blockIdx.z; b < r.batch; b += (int)gridDim.z)
        for (int at = (int)threadIdx.x; at < r.chunks; at += (int)blockDim.x)
            rotate_heads<T, N>(x + b * r.stride_b + s * r.stride_s, table + (int64_t)s * r.head_dim, at, slot, r);
}

template <typename T, int N>
sb_status launch(const sb_context *ctx, const sb_rope *p, cudaStream_t stream)
{
    const int chunks = p->head_dim / N;
    const int64_t all = (int64_t)p->batch * p->seq * p->heads * chunks;
    const int each = all > (int64_t)FEW_CHUNKS * ctx->sm_count ? EACH : 1, slots = (p->heads + each - 1) / each;
    const rope_shape r = {p->batch, p->seq,        p->heads,      p->head_dim,   chunks,
                          slots,    p->x.stride_b, p->x.stride_h, p->x.stride_s, p->inverse ? -1.0f : 1.0f};
    const int along = std::min(chunks, THREADS), across = std::min(slots, THREADS / along);
    const int tokens = std::min({THREADS / (along * across), p->seq, MAX_BLOCK_Z});
    const dim3 threads(along, across, tokens);
    const dim3 blocks((unsigned)(((int64_t)p->seq + tokens - 1) / tokens), (slots + across - 1) / across,
                      std::min(p->batch, MAX_GRID));
    launch_early(ctx, rope_kernel<T, N>, blocks, threads, 0, stream, (T *)p->x.data, p->table, r);
    return sb_cuda_launched("rope kernel");
}

/* What only the CUDA backend requires; sb_rope_check has what every backend requires. */
sb_status check_tensor(const sb_rope *p)
{
    const int unit = 16 / sb_dtype_bytes(p->dtype);
    if (p->x.stride_b % unit || p->x.stride_h % unit || p->x.stride_s % unit)
        return sb_error(SB_UNSUPPORTED, "rope: every stride must be a multiple of %d elements (16 bytes) on CUDA",
                        unit);
    if (p->heads > MAX_GRID)
        return sb_error(SB_UNSUPPORTED, "rope: %d heads are more than one launch can rotate", p->heads);
    return check_aligned("rope", {{"x.data", p->x.data}, {"table", p->table}});
}

} // namespace

extern "C" sb_status sb_cuda_rope(sb_context *ctx, const sb_rope *p, void *stream)
{
    SB_TRY(sb_rope_check(p));
    SB_TRY(check_tensor(p));
    return with_element_type(p->dtype, [&](auto element) {
        using T = decltype(element);
        constexpr int N = vector16<T>::N;
        return p->head_dim % N == 0 ? launch<T, N>(ctx, p, (cudaStream_t)stream)
                                    : launch<T, 2>(ctx, p, (cudaStream_t)stream);
    });
}
