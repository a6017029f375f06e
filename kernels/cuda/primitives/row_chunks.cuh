/* SPDX-License-Identifier: MIT */
/* What kernels over the rows of a matrix share: runs of elements that are one load or store, tiles of a row, groups of
 * warps that own a row, and the host's check of alignment. */
#pragma once

#include <initializer_list>

#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/reduction.cuh"
#include "kernels/cuda/primitives/vector.cuh"

/* N neighbouring elements, packed as they are stored. One element where rows are not aligned; otherwise as many as
 * fill 16 bytes of some tensor, which are 8 or 32 bytes of another that goes along with it. */
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) chunk {
    static_assert(N % word<T>::N == 0, "a chunk is whole words");
    unsigned w[N / word<T>::N];

    __device__ __forceinline__ void unpack(float (&x)[N]) const
    {
#pragma unroll
        for (int i = 0; i < N / word<T>::N; i++)
            word<T>::unpack(w[i], x + i * word<T>::N);
    }
    __device__ __forceinline__ void pack(const float (&x)[N])
    {
#pragma unroll
        for (int i = 0; i < N / word<T>::N; i++)
            w[i] = word<T>::pack(x + i * word<T>::N);
    }
    /* As vector16's: `zero` is 0, which the compiler must not know. */
    __device__ __forceinline__ void stay_packed(unsigned zero)
    {
#pragma unroll
        for (int i = 0; i < N / word<T>::N; i++)
            asm volatile("xor.b32 %0, %0, %1;" : "+r"(w[i]) : "r"(zero));
    }
};

template <typename T>
struct chunk<T, 1> {
    T element;

    __device__ __forceinline__ void unpack(float (&x)[1]) const { x[0] = (float)element; }
    __device__ __forceinline__ void pack(const float (&x)[1]) { element = (T)x[0]; }
};

/* Chunk `at` of a row. */
template <int N, typename T>
__device__ __forceinline__ chunk<T, N> load_chunk(const T *row, int at)
{
    return reinterpret_cast<const chunk<T, N> *>(row)[at];
}

template <int N, typename T>
__device__ __forceinline__ void store_chunk(T *row, int at, const chunk<T, N> &x)
{
    reinterpret_cast<chunk<T, N> *>(row)[at] = x;
}

/* A row of n chunks is cut into equal tiles of at most `most`, so that all blocks have the same work, whatever n is.
 * Block b does tile b % tiles of row b / tiles. */
struct row_tiles {
    int n, tiles, chunks; /* chunks of a row, tiles of a row, chunks of a tile */
};
constexpr int TILE_THREADS = 128;

inline row_tiles tile_rows(int n, int most)
{
    const int tiles = (int)(((int64_t)n + most - 1) / most);
    return {n, tiles, (int)(((int64_t)n + tiles - 1) / tiles)};
}

/* Threads of a block whose threads do up to `each` chunks of a tile of at most each * TILE_THREADS. */
inline unsigned tile_threads(const row_tiles &t, int each)
{
    return (unsigned)((t.chunks + each - 1) / each + 31) / 32 * 32;
}

struct tile_span {
    int row, start, end;
};

__device__ __forceinline__ tile_span this_tile(const row_tiles &t)
{
    const unsigned row = blockIdx.x / (unsigned)t.tiles;
    const int start = (int)(blockIdx.x - row * t.tiles) * t.chunks;
    return {(int)row, start, min(t.n, start + t.chunks)};
}

/* Whole warps that own a row together, in a block of (threads of a group, groups). */
class row_group
{
  public:
    const int index = (int)threadIdx.y, thread = (int)threadIdx.x, threads = (int)blockDim.x;

    /* Every thread of the group gets the sum, in an order that depends only on the size of the group. Two halves of
     * `shared` (a float for each warp of the block) take turns, so that one barrier a sum is enough. All groups of the
     * block call it together; not so with OWN_BARRIER, where each of at most 15 groups has a barrier of its own and the
     * compiler reserves all 16 for the block. */
    template <bool OWN_BARRIER>
    __device__ __forceinline__ float sum(float x, float (*shared)[32])
    {
        x = warp_reduce<add_op>(x);
        if (threads == 32)
            return x;
        float *slots = shared[half] + index * (threads / 32);
        half ^= 1;
        if (thread % 32 == 0)
            slots[thread / 32] = x;
        if constexpr (OWN_BARRIER)
            asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "r"(threads) : "memory");
        else
            __syncthreads();
        return warp_reduce<add_op>(thread % 32 < threads / 32 ? slots[thread % 32] : 0.0f);
    }

  private:
    int half = 0;
};

/* The chunks of a row of n that one thread of a group holds: g.thread, then at distances of g.threads. Beyond the row
 * they are zero. */
constexpr int ROW_CHUNKS = 4;
constexpr int ROW_MAX_WARPS = 16; /* most warps of a block */

template <typename T, int N>
__device__ __forceinline__ void load_row(chunk<T, N> (&x)[ROW_CHUNKS], const T *row, int n, const row_group &g)
{
#pragma unroll
    for (int i = 0; i < ROW_CHUNKS; i++) {
        x[i] = {};
        if (g.thread + i * g.threads < n)
            x[i] = load_chunk<N>(row, g.thread + i * g.threads);
    }
}

template <typename T, int N>
__device__ __forceinline__ void store_row(T *row, int n, const chunk<T, N> (&x)[ROW_CHUNKS], const row_group &g)
{
#pragma unroll
    for (int i = 0; i < ROW_CHUNKS; i++)
        if (g.thread + i * g.threads < n)
            store_chunk<N>(row, g.thread + i * g.threads, x[i]);
}

/* Warps of a group that holds rows of d elements, N in a chunk; 0: such rows are not aligned, or too long. */
inline int row_warps(int d, int n)
{
    const int warps = (d / n + 32 * ROW_CHUNKS - 1) / (32 * ROW_CHUNKS);
    return d % n == 0 && warps <= ROW_MAX_WARPS ? warps : 0;
}

struct named_pointer {
    const char *name;
    const void *pointer;
};

/* SB_UNSUPPORTED unless every pointer that is given is a multiple of 16 bytes. */
inline sb_status check_aligned(const char *op, std::initializer_list<named_pointer> list)
{
    for (const named_pointer &p : list)
        if ((uintptr_t)p.pointer % 16 != 0)
            return sb_error(SB_UNSUPPORTED, "%s: %s must be aligned to 16 bytes on CUDA", op, p.name);
    return SB_OK;
}
