/* SPDX-License-Identifier: MIT */
/* Tile shapes and launches of the flash_portable kernels for one policy; each flash_portable_<dtype>.cu makes its
 * table of functions from it. */
#pragma once

#include <atomic>

#include "kernels/cuda/attention/portable/portable.h"
#include "kernels/cuda/attention/portable/backward.cuh"
#include "kernels/cuda/attention/portable/forward.cuh"

namespace flash_portable
{

/* D is the padded head_dim. Tiles are as large as 255 registers a thread (two blocks of 128 threads fill an SM) and
 * the 99 KB of shared memory of sm_86 to sm_120 allow. Above 192 columns the sums of dK and dV would take 256 registers: dV has a
 * run of its own, at the price of computing the scores again. */
template <class P, int D>
struct tiling {
    static constexpr bool narrow = sizeof(typename P::element) == 2;
    static constexpr int warps = 4;
    static constexpr int forward_mt = D <= 128 ? 2 : 1, forward_keys = narrow && (D <= 96 || D == 192) ? 64 : 32;
    static constexpr int backward_mt = D <= (narrow          ? 64
                                             : P::fp32_level ? 16
                                                             : 32)
                                           ? 2
                                           : 1,
                         backward_walk = D <= (narrow ? 128 : 64) ? 32 : 16;
    static constexpr bool dv_apart = D > 192;
};

/* A kernel must be allowed more than 48 KB of dynamic shared memory, once on each device. */
template <class K>
cudaError_t launch(K kernel, int64_t blocks, int threads, int shared_bytes, std::atomic<uint64_t> &allowed_devices,
                   const sb_attention &a, cudaStream_t stream)
{
    int device;
    cudaError_t e = cudaGetDevice(&device);
    if (e != cudaSuccess)
        return e;
    const uint64_t bit = device < 64 ? (uint64_t)1 << device : 0;
    if (!(allowed_devices & bit)) {
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
        if (e != cudaSuccess)
            return e;
        allowed_devices |= bit;
    }
    kernel<<<(unsigned)blocks, threads, shared_bytes, stream>>>(a);
    return cudaGetLastError();
}

inline int64_t blocks_of(int64_t heads, int seq, int rows)
{
    return heads * ((seq + rows - 1) / rows);
}

/* How many tiles of `rows` rows there are; PACKED: counting the numbers that documents leave over. */
template <bool PACKED>
int64_t tiles_of(const sb_attention &a, int64_t heads, int seq, int rows)
{
    return PACKED ? heads * documents::tile_numbers(seq, a.documents, rows) : blocks_of(heads, seq, rows);
}

template <class P, int D, bool WINDOW = false, bool PACKED = false>
cudaError_t launch_forward(const sb_attention &a, cudaStream_t stream)
{
    using tile = tiling<P, D>;
    using shape = forward_shape<P, D, tile::forward_mt, tile::warps, tile::forward_keys>;
    static_assert(shape::shared_bytes <= 99 * 1024, "must fit sm_86 to sm_120");
    static std::atomic<uint64_t> allowed_devices;
    return launch(forward<P, D, tile::forward_mt, tile::warps, tile::forward_keys, WINDOW, PACKED>,
                  tiles_of<PACKED>(a, (int64_t)a.batch * a.heads, a.seq_q, shape::queries), shape::threads,
                  shape::shared_bytes, allowed_devices, a, stream);
}

/* MAKE: of dK and dV. */
template <class P, int D, bool WINDOW, bool PACKED, int WALK, int MAKE>
cudaError_t launch_backward_kv(const sb_attention &a, cudaStream_t stream)
{
    using tile = tiling<P, D>;
    using shape = backward_kv_shape<P, D, tile::backward_mt, tile::warps, WALK, MAKE>;
    static_assert(shape::shared_bytes <= 99 * 1024, "must fit sm_86 to sm_120");
    static std::atomic<uint64_t> allowed_devices;
    return launch(backward_kv<P, D, tile::backward_mt, tile::warps, WALK, WINDOW, PACKED, MAKE>,
                  tiles_of<PACKED>(a, (int64_t)a.batch * a.heads_kv, a.seq_k, shape::owned), shape::threads,
                  shape::shared_bytes, allowed_devices, a, stream);
}

template <class P, int D, bool WINDOW = false, bool PACKED = false>
cudaError_t launch_backward(const sb_attention &a, cudaStream_t stream)
{
    using tile = tiling<P, D>;
    using shape = backward_shape<P, D, tile::backward_mt, tile::warps, tile::backward_walk>;
    static_assert(shape::shared_bytes <= 99 * 1024, "must fit sm_86 to sm_120");
    static std::atomic<uint64_t> allowed_devices_q;
    constexpr int queries = stats_threads / stats_lanes;
    row_stats<typename P::element, P::fp32_level>
        <<<(unsigned)blocks_of(1, a.batch * a.heads * a.seq_q, queries), stats_threads, 0, stream>>>(a);
    cudaError_t e = cudaGetLastError();
    if constexpr (tile::dv_apart)
        if (e == cudaSuccess) /* it owns one tile, so there is room for larger walked ones */
            e = launch_backward_kv<P, D, WINDOW, PACKED, 32, MAKE_DV>(a, stream);
    constexpr int rest = tile::dv_apart ? MAKE_DK : MAKE_BOTH;
    if (e == cudaSuccess)
        e = launch_backward_kv<P, D, WINDOW, PACKED, tile::backward_walk, rest>(a, stream);
    if (e == cudaSuccess)
        e = launch(backward_q<P, D, tile::backward_mt, tile::warps, tile::backward_walk, WINDOW, PACKED>,
                   tiles_of<PACKED>(a, (int64_t)a.batch * a.heads, a.seq_q, shape::owned), shape::threads,
                   shape::shared_bytes, allowed_devices_q, a, stream);
    return e;
}

/* The width of the tiles, which is the same for values as for queries and keys. */
inline int columns(const sb_attention &a)
{
    return a.head_dim_v > a.head_dim ? a.head_dim_v : a.head_dim;
}

template <class P>
cudaError_t forward_any(const sb_attention &a, cudaStream_t stream)
{
    if (a.packed) /* fewer instances */
        return columns(a) <= 64 ? launch_forward<P, 64, true, true>(a, stream)
                                : launch_forward<P, 128, true, true>(a, stream);
    if (a.windowed)
        return columns(a) <= 64 ? launch_forward<P, 64, true>(a, stream) : launch_forward<P, 128, true>(a, stream);
    return columns(a) <= 16   ? launch_forward<P, 16>(a, stream)
           : columns(a) <= 32 ? launch_forward<P, 32>(a, stream)
           : columns(a) <= 64 ? launch_forward<P, 64>(a, stream)
           : columns(a) <= 96 ? launch_forward<P, 96>(a, stream)
                              : launch_forward<P, 128>(a, stream);
}

template <class P>
cudaError_t backward_any(const sb_attention &a, cudaStream_t stream)
{
    if (a.packed)
        return columns(a) <= 64 ? launch_backward<P, 64, true, true>(a, stream)
                                : launch_backward<P, 128, true, true>(a, stream);
    if (a.windowed)
        return columns(a) <= 64 ? launch_backward<P, 64, true>(a, stream) : launch_backward<P, 128, true>(a, stream);
    return columns(a) <= 16   ? launch_backward<P, 16>(a, stream)
           : columns(a) <= 32 ? launch_backward<P, 32>(a, stream)
           : columns(a) <= 64 ? launch_backward<P, 64>(a, stream)
           : columns(a) <= 96 ? launch_backward<P, 96>(a, stream)
                              : launch_backward<P, 128>(a, stream);
}

/* Above 128 columns; only for elements of 16 bits, since larger ones do not fit in shared memory. */
template <class P>
cudaError_t forward_wide(const sb_attention &a, cudaStream_t stream)
{
    return a.packed            ? launch_forward<P, 256, true, true>(a, stream)
           : a.windowed        ? launch_forward<P, 256, true>(a, stream)
           : columns(a) <= 192 ? launch_forward<P, 192>(a, stream)
                               : launch_forward<P, 256>(a, stream);
}

template <class P>
cudaError_t backward_wide(const sb_attention &a, cudaStream_t stream)
{
    return a.packed            ? launch_backward<P, 256, true, true>(a, stream)
           : a.windowed        ? launch_backward<P, 256, true>(a, stream)
           : columns(a) <= 192 ? launch_backward<P, 192>(a, stream)
                               : launch_backward<P, 256>(a, stream);
}

} // namespace flash_portable
