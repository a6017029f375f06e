/* SPDX-License-Identifier: MIT */
/* What largest magnitudes and casts to float8 share: eight neighbours of a row of the matrix, read or made of what another op
 * reads, and words that are raised. */
#pragma once

#include <type_traits>

#include "kernels/cuda/primitives/norm_math.cuh"
#include "kernels/cuda/primitives/rope_math.cuh"
#include "kernels/cuda/primitives/row_chunks.cuh"
#include "kernels/cuda/primitives/swiglu_math.cuh"
#include "kernels/cuda/primitives/vector.cuh"
#include "kernels/shared/float8.h"
#include "kernels/shared/internal.h"

constexpr int SQUARE = 8;

/* Eight neighbours of a row, as they lie in memory. */
template <typename T>
struct alignas(16) eight {
    static constexpr int WORDS = SQUARE * (int)sizeof(T) / 4;
    unsigned w[WORDS];

    /* `there` of the elements exist; the others are zero. */
    __device__ __forceinline__ void load(const T *from, int there, bool whole)
    {
        if (whole && there >= SQUARE) {
#pragma unroll
            for (int i = 0; i < WORDS; i += 4)
                *reinterpret_cast<uint4 *>(w + i) = *reinterpret_cast<const uint4 *>(from + i * 4 / (int)sizeof(T));
            return;
        }
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            unsigned word = 0;
#pragma unroll
            for (int j = 0; j < 4 / (int)sizeof(T); j++) {
                const int at = i * (4 / (int)sizeof(T)) + j;
                if (at < there)
                    word |= bits(from + at) << (16 * j);
            }
            w[i] = word;
        }
    }
    static __device__ __forceinline__ unsigned bits(const T *from)
    {
        if constexpr (sizeof(T) == 2)
            return *reinterpret_cast<const unsigned short *>(from);
        else
            return *reinterpret_cast<const unsigned *>(from);
    }
    __device__ __forceinline__ void unpack(float (&x)[SQUARE]) const
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            word<T>::unpack(w[i], x + i * word<T>::N);
    }
    __device__ __forceinline__ void pack(const float (&x)[SQUARE])
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            w[i] = word<T>::pack(x + i * word<T>::N);
    }
    /* As vector16's in vector.cuh: `zero` is 0, which the compiler must not know. */
    __device__ __forceinline__ void stay_packed(unsigned zero)
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            asm volatile("xor.b32 %0, %0, %1;" : "+r"(w[i]) : "r"(zero));
    }
    __device__ __forceinline__ float at(int i) const
    {
        float x[word<T>::N];
        word<T>::unpack(w[i / word<T>::N], x);
        return x[i % word<T>::N];
    }
};

__device__ __forceinline__ unsigned magnitude(float x)
{
    return sb_float8_magnitude(__float_as_uint(x));
}

/* Two neighbours of 16 bits without their signs. As unsigned integers these are in the order of the magnitudes, NaN last, so that
 * maxima can be taken two at a time (__vmaxu2) and be made wide once. */
__device__ __forceinline__ unsigned magnitudes(unsigned pair)
{
    return pair & 0x7fff7fffu;
}

/* The magnitude, as the bits of an fp32, of the lower or the upper of two neighbours. */
template <typename T>
__device__ __forceinline__ unsigned wide_magnitude(unsigned pair, int upper)
{
    float x[word<T>::N];
    word<T>::unpack(pair, x);
    return magnitude(x[upper]);
}

template <typename T>
__device__ __forceinline__ unsigned largest_in(const eight<T> &x)
{
    unsigned largest = 0;
    if constexpr (sizeof(T) == 2) {
#pragma unroll
        for (int j = 0; j < SQUARE / 2; j++)
            largest = __vmaxu2(largest, magnitudes(x.w[j]));
        return wide_magnitude<T>(max(largest & 0xffffu, largest >> 16), 0);
    } else {
#pragma unroll
        for (int j = 0; j < SQUARE; j++)
            largest = max(largest, magnitude(x.at(j)));
        return largest;
    }
}

/* Bytes (row, column) of 4 x 4 become (column, row). */
__device__ __forceinline__ void turn(unsigned &a0, unsigned &a1, unsigned &a2, unsigned &a3)
{
    const unsigned low01 = __byte_perm(a0, a1, 0x5140), low23 = __byte_perm(a2, a3, 0x5140);
    const unsigned high01 = __byte_perm(a0, a1, 0x7362), high23 = __byte_perm(a2, a3, 0x7362);
    a0 = __byte_perm(low01, low23, 0x5410), a1 = __byte_perm(low01, low23, 0x7632);
    a2 = __byte_perm(high01, high23, 0x5410), a3 = __byte_perm(high01, high23, 0x7632);
}

/* Turns 8 x 8 bytes likewise, of which a uint2 is a row. */
__device__ __forceinline__ void turn_square(uint2 (&a)[SQUARE])
{
#pragma unroll
    for (int i = 0; i < SQUARE; i += 4) {
        turn(a[i].x, a[i + 1].x, a[i + 2].x, a[i + 3].x);
        turn(a[i].y, a[i + 1].y, a[i + 2].y, a[i + 3].y);
    }
#pragma unroll
    for (int i = 0; i < SQUARE / 2; i++) {
        const unsigned upper = a[i].y;
        a[i].y = a[i + 4].x, a[i + 4].x = upper;
    }
}

/* The whole warp calls it together. Most warps find that the word is as large already. */
__device__ __forceinline__ void raise(uint32_t *word, unsigned mine)
{
    mine = __reduce_max_sync(0xffffffffu, mine);
    if (threadIdx.x % 32 == 0 && mine > *(volatile const uint32_t *)word)
        atomicMax(word, mine);
}

/* Where a row's elements find what they share with others: their row of statistics and column of gains; or those of the table of
 * angles, where their heads turn. */
template <sb_float8_source SOURCE>
struct shared_place {
    int row, column;
    bool turns = false;

    __device__ __forceinline__ shared_place(const sb_float8_from &from, int first_row, int first_column)
        : row(first_row), column(first_column)
    {
        if constexpr (SOURCE == SB_FROM_ROPE_GRADIENT)
            row %= from.seq, column %= from.head_dim, turns = first_column < from.turned;
    }
    __device__ __forceinline__ void next_row(const sb_float8_from &from)
    {
        row++;
        if (SOURCE == SB_FROM_ROPE_GRADIENT && row == from.seq)
            row = 0;
    }
};

/* What eight elements of the matrix are made of: x, or gate, with up `f` elements behind it; and dh, for the gradients of both; or x,
 * the rstd of its row and the gains of its columns; or, where heads turn back, x and the angles of its position. */
template <sb_float8_source SOURCE, typename T>
struct eight_inputs {
    static constexpr bool SWIGLU = SOURCE == SB_FROM_SWIGLU || SOURCE == SB_FROM_SWIGLU_GRADIENT;
    eight<T> x, up, dh, gain;
    float rstd;
    eight<float> angles;

    /* `there` of them exist, the others are zero. */
    __device__ __forceinline__ void load(const T *from, const T *from_dh, int f, int there, bool whole)
    {
        x.load(from, there, whole);
        if constexpr (SWIGLU)
            up.load(from + f, there, whole);
        if constexpr (SOURCE == SB_FROM_SWIGLU_GRADIENT)
            dh.load(from_dh, there, whole);
    }
    __device__ __forceinline__ void load_shared(const sb_float8_from &from, const shared_place<SOURCE> &at, int there,
                                                bool whole)
    {
        if constexpr (SOURCE == SB_FROM_RMSNORM) {
            rstd = from.rstd[at.row];
            gain.load((const T *)from.gain + at.column, there, whole);
        }
        if (SOURCE == SB_FROM_ROPE_GRADIENT && at.turns)
            angles.load(from.table + (int64_t)at.row * from.head_dim + at.column, SQUARE, true);
    }
    /* The elements: x, h, a norm's, those turned back, or the gradients of gate, and then those of up. */
    __device__ __forceinline__ void make(const shared_place<SOURCE> &at, eight<T> &out, eight<T> &d_up) const
    {
        out = x;
        if constexpr (SOURCE == SB_FROM_RMSNORM) {
            float y[SQUARE], g[SQUARE];
            x.unpack(y);
            gain.unpack(g);
#pragma unroll
            for (int j = 0; j < SQUARE; j++)
                y[j] = norm_math::output(y[j], rstd, g[j]);
            out.pack(y);
        }
        if constexpr (SOURCE == SB_FROM_ROPE_GRADIENT) {
            float y[SQUARE], angle[SQUARE];
            x.unpack(y);
            angles.unpack(angle);
#pragma unroll
            for (int j = 0; j < SQUARE; j += 2) {
                const rope_math::pair p = rope_math::turned(y[j], y[j + 1], angle[j], -angle[j + 1]);
                y[j] = p.first, y[j + 1] = p.second;
            }
            if (at.turns)
                out.pack(y);
        }
        if constexpr (SWIGLU) {
            float gate[SQUARE], u[SQUARE], gradient[SQUARE];
            x.unpack(gate);
            up.unpack(u);
            if constexpr (SOURCE == SB_FROM_SWIGLU_GRADIENT)
                dh.unpack(gradient);
#pragma unroll
            for (int j = 0; j < SQUARE; j++)
                if constexpr (SOURCE == SB_FROM_SWIGLU) {
                    gate[j] = swiglu_math::product<T>(gate[j], u[j]);
                } else {
                    const swiglu_math::gradient g = swiglu_math::gradients<T>(gate[j], u[j], gradient[j]);
                    gate[j] = g.gate, u[j] = g.up;
                }
            out.pack(gate);
            if constexpr (SOURCE == SB_FROM_SWIGLU_GRADIENT)
                d_up.pack(u);
        }
    }
};

template <sb_float8_source SOURCE>
using float8_source = std::integral_constant<sb_float8_source, SOURCE>;

/* f(T(), source) with the element type and the source as a constant. */
template <typename F>
sb_status with_source(const char *op, sb_dtype dtype, const sb_float8_from &from, F f)
{
    SB_TRY(check_aligned(op, {{"gain", from.gain}, {"table", from.table}}));
    return with_element_type(dtype, [&](auto element) {
        if (from.source == SB_FROM_X)
            return f(element, float8_source<SB_FROM_X>());
        if constexpr (sizeof element == 2) {
            if (from.source == SB_FROM_SWIGLU)
                return f(element, float8_source<SB_FROM_SWIGLU>());
            if (from.source == SB_FROM_SWIGLU_GRADIENT)
                return f(element, float8_source<SB_FROM_SWIGLU_GRADIENT>());
        }
        if constexpr (std::is_same_v<decltype(element), __nv_bfloat16>)
            return from.source == SB_FROM_RMSNORM ? f(element, float8_source<SB_FROM_RMSNORM>())
                                                  : f(element, float8_source<SB_FROM_ROPE_GRADIENT>());
        else
            return sb_error(SB_UNSUPPORTED,
                            "%s: what SwiGLU makes is of 16 bits on CUDA, and what RMSNorm and RoPE make bf16", op);
    });
}
