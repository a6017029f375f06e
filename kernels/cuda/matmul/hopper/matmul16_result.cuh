/* SPDX-License-Identifier: MIT */
/* The 16-bit matmul for Hopper: from sums in registers to the result, one chunk of columns at a time, while the
 * products of the next tile run. A warp does its 16 rows by itself: it computes on a chunk in its own slots, and one
 * lane stores them by TMA, which clips what is outside the matrices. Where a chunk reads memory too (gate and up in
 * backward, C), it comes into the same slots ahead of time, and the result goes out from where the operand came in. */
#pragma once

#include "kernels/cuda/matmul/hopper/matmul16_layout.cuh"
#include "kernels/cuda/primitives/swiglu_math.cuh"
#include "kernels/cuda/hopper/store.cuh"
#include "kernels/cuda/primitives/vector.cuh"

namespace matmul16
{

/* What waits to be stored of a tile: accumulators (hopper/wgmma.cuh says which) rounded to pairs, or as they are. */
template <class T, class S>
__device__ __forceinline__ void keep_sums(uint32_t (&waiting)[S::WAITING], const float (&d)[S::N / 2])
{
#pragma unroll
    for (int i = 0; i < S::WAITING; i++)
        if constexpr (S::WIDE) /* a copy that the compiler does not see through: d is the next tile's from here on */
            asm volatile("mov.b32 %0, %1;" : "=r"(waiting[i]) : "f"(d[i]));
        else
            waiting[i] = pack(T(), d[2 * i], d[2 * i + 1]);
}

/* ---- one pair of a chunk: i counts pairs of the waiting sums, 2 for each 8 columns; `at` is its place in a slot */

__device__ __forceinline__ uint32_t &word_at(unsigned char *slots, int at)
{
    return *(uint32_t *)(slots + at);
}

template <class T, class S>
__device__ __forceinline__ void forward_pair(const uint32_t (&waiting)[S::WAITING], int i, unsigned char *slots, int at,
                                             bool keep)
{
    const uint32_t gate = waiting[i], up = waiting[i + S::WIDTH / 4];
    float x[2], y[2];
    word<T>::unpack(gate, x);
    word<T>::unpack(up, y);
    if (keep) {
        word_at(slots, at) = gate;
        word_at(slots, at + S::SLOT_BYTES) = up;
    }
    word_at(slots, at + 2 * S::SLOT_BYTES) =
        pack(T(), swiglu_math::product<T>(x[0], y[0]), swiglu_math::product<T>(x[1], y[1]));
}

/* `at` in the slots that gate and up were loaded to; h goes to the third. */
template <class T, class S>
__device__ __forceinline__ void backward_pair(const uint32_t (&waiting)[S::WAITING], int i, unsigned char *slots,
                                              int at, bool again)
{
    float gate[2], up[2], dh[2];
    word<T>::unpack(word_at(slots, at), gate);
    word<T>::unpack(word_at(slots, at + S::SLOT_BYTES), up);
    word<T>::unpack(waiting[i], dh);
    const swiglu_math::gradient first = swiglu_math::gradients<T>(gate[0], up[0], dh[0]),
                                second = swiglu_math::gradients<T>(gate[1], up[1], dh[1]);
    word_at(slots, at) = pack(T(), first.gate, second.gate);
    word_at(slots, at + S::SLOT_BYTES) = pack(T(), first.up, second.up);
    if (again)
        word_at(slots, at + 2 * S::SLOT_BYTES) = pack(T(), first.h, second.h);
}

template <class T, class S>
__device__ __forceinline__ void plain_pair(const uint32_t (&waiting)[S::WAITING], int i, unsigned char *slots, int at,
                                           bool add)
{
    float sum[2], c[2] = {0, 0};
    if constexpr (S::WIDE)
        sum[0] = __uint_as_float(waiting[2 * i]), sum[1] = __uint_as_float(waiting[2 * i + 1]);
    else
        word<T>::unpack(waiting[i], sum);
    if (S::WIDE && add)
        word<T>::unpack(word_at(slots, at), c);
    word_at(slots, at) = pack(T(), sum[0] + c[0], sum[1] + c[1]);
}

/* Chunk c, a constant once loops are unrolled; `slots` are its slots. */
template <class T, class S>
__device__ __forceinline__ void compute_chunk(const uint32_t (&waiting)[S::WAITING], int c, unsigned char *slots,
                                              int lane_place, bool option)
{
#pragma unroll
    for (int j = 0; j < S::GROUPS; j++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = 2 * (c * S::GROUPS + j) + half, at = S::at(lane_place, j, half);
            if constexpr (S::KIND == SWIGLU_FORWARD)
                forward_pair<T, S>(waiting, i, slots, at, option);
            else if constexpr (S::KIND == SWIGLU_BACKWARD)
                backward_pair<T, S>(waiting, i, slots, at, option);
            else
                plain_pair<T, S>(waiting, i, slots, at, option);
        }
}

/* By one lane: a chunk's slots to memory. */
template <class S>
__device__ __forceinline__ void store_chunk(const params &p, uint32_t slots, int row, int column)
{
    if (S::KIND != SWIGLU_FORWARD || p.option)
        tma_store_2d(&p.out[0], slots, column, row);
    if (S::KIND == SWIGLU_BACKWARD || (S::KIND == SWIGLU_FORWARD && p.option))
        tma_store_2d(&p.out[1], slots + S::SLOT_BYTES, column, row);
    if (S::KIND == SWIGLU_FORWARD || (S::KIND == SWIGLU_BACKWARD && p.option))
        tma_store_2d(&p.h, slots + 2 * S::SLOT_BYTES, column, row);
    tma_store_commit();
}

/* By one lane: what a chunk reads, into its slots. */
template <class S>
__device__ __forceinline__ void load_chunk(const params &p, uint32_t slots, uint32_t bar, int row, int column)
{
    mbarrier_expect(bar, S::LOADED * S::SLOT_BYTES);
    if constexpr (S::KIND == SWIGLU_BACKWARD) {
        tma_load_2d(slots, &p.out[0], bar, column, row);
        tma_load_2d(slots + S::SLOT_BYTES, &p.out[1], bar, column, row);
    } else {
        tma_load_2d(slots, &p.out[1], bar, column, row);
    }
}

} // namespace matmul16
