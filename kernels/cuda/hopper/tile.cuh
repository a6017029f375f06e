/* SPDX-License-Identifier: MIT */
/* What the Hopper forward and backward kernels share: tiles in shared memory, products of tiles, rounding to operands,
 * masks, and the fp32 mode.
 *
 * fp32 in two parts (PARTS = 2): x = hi + lo, and a product is hi hi + hi lo + lo hi in fp32 accumulators. With bf16 the dropped
 * lo lo is 2^-18 of a product, and the rounding of lo the same: relative L2 error near 8e-6, against 3e-3 for plain bf16. With
 * fp16, of numbers that were scaled into its range, both are 2^-22 or less, and the error is that of fp32. (Ootomo and Yokota,
 * arXiv 2203.03341.) */
#pragma once

#include "kernels/cuda/hopper/ptx.cuh"
#include "kernels/cuda/hopper/wgmma.cuh"

namespace hopper
{

constexpr float LOG2E = 1.4426950408889634f;
constexpr int MAX_SPLIT = 8;   /* blocks that may share a tile: the portable limit of a cluster */
constexpr int ROW_BYTES = 128; /* one row of a panel: 64 elements of 16 bits */

/* A number as a type. */
template <int N>
struct constant {
    static constexpr int value = N;
};

/* A tile of ROWS rows and COLS columns, PARTS parts: [part][panel][row][columns of a panel], 64 of them with 128-byte
 * swizzle, or 32 with 64-byte swizzle. */
template <int PARTS_, int ROWS_, int COLS_, int PANEL_ = 64>
struct tile {
    static constexpr int PARTS = PARTS_, ROWS = ROWS_, COLS = COLS_, PANEL = PANEL_, PANEL_ROW = PANEL * 2;
    static constexpr int PANEL_BYTES = ROWS * PANEL_ROW;
    static constexpr int PART_BYTES = COLS / PANEL * PANEL_BYTES;
    static constexpr int BYTES = PARTS * PART_BYTES;
    static_assert(COLS % PANEL == 0 && PANEL_BYTES % 1024 == 0, "swizzle atoms are 8 rows of a panel");

    /* panels_apart: see wgmma_descriptor */
    __device__ static uint64_t descriptor(uint32_t addr, uint32_t panels_apart)
    {
        return PANEL == 64 ? wgmma_descriptor(addr, panels_apart) : wgmma_descriptor_64(addr, panels_apart);
    }
    /* The bytes from a descriptor to its k-th step of 16 columns. */
    __device__ static constexpr int step(int k) { return k / (PANEL / 16) * PANEL_BYTES + k % (PANEL / 16) * 32; }
};

/* Whether numbers were scaled by powers of two before they became parts: fp16 has the bits of fp32, but not its range. */
template <class T, int PARTS>
constexpr bool scaled_parts = PARTS == 2 && !is_bf16<T>::value;

/* Which parts product number i multiplies: hi hi, hi lo, lo hi; of fp16 lo hi, hi lo, hi hi: what is cut off when an accumulator
 * is added to is a part of what it holds by then. */
template <class T, int PARTS>
struct products {
    static constexpr int COUNT = PARTS == 1 ? 1 : 3;
    __device__ static constexpr int a(int product) { return PARTS == 2 && product == (is_bf16<T>::value ? 2 : 0); }
    __device__ static constexpr int b(int product) { return product == 1; }
};

/* D = A B^T over the first COLS columns of both tiles: A 64 rows from a_addr on, B N rows from b_addr on, both K-major. */
template <class T, class TA, class TB, int N, int COLS = TA::COLS>
__device__ __forceinline__ void mma_abt(float (&d)[N / 2], uint32_t a_addr, uint32_t b_addr)
{
    static_assert(COLS % 16 == 0 && COLS <= TA::COLS && COLS <= TB::COLS, "whole steps of 16 columns");
    const uint64_t a0 = TA::descriptor(a_addr, 16), b0 = TB::descriptor(b_addr, 16);
#pragma unroll
    for (int p = 0; p < products<T, TA::PARTS>::COUNT; p++)
#pragma unroll
        for (int k = 0; k < COLS / 16; k++) {
            const int a = products<T, TA::PARTS>::a(p) * TA::PART_BYTES + TA::step(k);
            const int b = products<T, TA::PARTS>::b(p) * TB::PART_BYTES + TB::step(k);
            wgmma<T, N, 0, 0>(d, a0 + (a >> 4), b0 + (b >> 4), p + k != 0);
        }
}

/* D (+)= A B with A (64 x ROWS of B) in registers and B's rows the k index: B is MN-major, N columns from b_addr on.
 * accumulate 0: D is written, not added to. */
template <class T, class TB, int N>
__device__ __forceinline__ void mma_rs(float (&d)[N / 2], const uint32_t (&a)[TB::PARTS][TB::ROWS / 4], uint32_t b_addr,
                                       int accumulate)
{
    const uint64_t b0 = TB::descriptor(b_addr, TB::PANEL_BYTES);
#pragma unroll
    for (int p = 0; p < products<T, TB::PARTS>::COUNT; p++)
#pragma unroll
        for (int k = 0; k < TB::ROWS / 16; k++)
            wgmma<T, N, 1>(d, &a[products<T, TB::PARTS>::a(p)][4 * k],
                           b0 + ((products<T, TB::PARTS>::b(p) * TB::PART_BYTES + k * 16 * TB::PANEL_ROW) >> 4),
                           accumulate | (p + k));
}

/* A sum over thousands of MMAs, as accurate as fp32 addition. The tensor cores cut off, rather than round, what does not
 * fit when they add to an accumulator: over a long sequence that bias reaches 1e-4 of the sum, which bf16 never notices
 * and fp32 must not have. So the products of one step go to fresh accumulators, 64 columns at a time, and are added to
 * the sum by ordinary, rounded additions. (The same remedy as DeepSeek-V3's for fp8, arXiv 2412.19437, section 3.3.2.)
 * inverse: what undoes the scales of scaled_parts. */
template <class T, class TB>
__device__ __forceinline__ void mma_rs_rounded(float (&sum)[TB::COLS / 2], const uint32_t (&a)[TB::PARTS][TB::ROWS / 4],
                                               uint32_t b_addr, float inverse = 1)
{
#pragma unroll
    for (int c = 0; c < TB::COLS / 64; c++) {
        float part[32];
        wgmma_fence();
        mma_rs<T, TB, 64>(part, a, b_addr + c * TB::PANEL_BYTES, 0);
        wgmma_commit();
        wgmma_wait<0>();
        pin(part);
#pragma unroll
        for (int i = 0; i < 32; i++)
            sum[32 * c + i] = fmaf(part[i], inverse, sum[32 * c + i]);
    }
}

/* Two floats to a pair of operands (first in the low half). */
__device__ __forceinline__ uint32_t pack(__nv_bfloat16, float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
__device__ __forceinline__ uint32_t pack(__half, float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

/* Accumulators of 64 x 2M to the A operand of a next product, in PARTS parts; with scaled_parts `scale` times as large. */
template <class T, int PARTS, int M>
__device__ __forceinline__ void to_operand(uint32_t (&a)[PARTS][M], const float (&x)[2 * M], float scale = 1)
{
#pragma unroll
    for (int i = 0; i < M; i++) {
        if constexpr (scaled_parts<T, PARTS>) {
            a[0][i] = pack(T(), x[2 * i] * scale, x[2 * i + 1] * scale);
            const float2 hi = __half22float2(*(const __half2 *)&a[0][i]);
            a[1][i] = pack(T(), fmaf(x[2 * i], scale, -hi.x), fmaf(x[2 * i + 1], scale, -hi.y));
            continue;
        }
        a[0][i] = pack(T(), x[2 * i], x[2 * i + 1]);
        if constexpr (PARTS == 2) {
            const float hi0 = __uint_as_float(a[0][i] << 16), hi1 = __uint_as_float(a[0][i] & 0xffff0000u);
            a[1][i] = pack(T(), x[2 * i] - hi0, x[2 * i + 1] - hi1);
        }
    }
}

/* Where the backward keeps a number of query row i among the numbers of its head: what a thread's fragments need of 16 rows,
 * two pairs, is in 16 adjacent bytes. */
__device__ __forceinline__ constexpr int fragment_order(int i)
{
    return (i & ~15) | (i >> 1 & 3) << 2 | (i >> 3 & 1) << 1 | (i & 1);
}

/* Type of a tensor in memory: fp32 mode reads and writes floats, the others their own 16-bit type. */
template <class T, int PARTS>
struct memory_type {
    using type = T;
};
template <class T>
struct memory_type<T, 2> {
    using type = float;
};

__device__ __forceinline__ void store_pair(float *p, float a, float b)
{
    *(float2 *)p = make_float2(a, b);
}
__device__ __forceinline__ void store_pair(__nv_bfloat16 *p, float a, float b)
{
    *(uint32_t *)p = pack(__nv_bfloat16(), a, b);
}
__device__ __forceinline__ void store_pair(__half *p, float a, float b)
{
    *(uint32_t *)p = pack(__half(), a, b);
}

/* Max and sum over the four lanes that share a row. */
__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* One tile by TMA: every part and panel a box; parts are folded into the batch coordinate. */
template <class TILE>
__device__ __forceinline__ void load_tile(uint32_t dst, const CUtensorMap *map, uint32_t bar, int row, int h, int b,
                                          int batch)
{
#pragma unroll
    for (int p = 0; p < TILE::PARTS; p++)
#pragma unroll
        for (int c = 0; c < TILE::COLS / TILE::PANEL; c++)
            tma_load_4d(dst + p * TILE::PART_BYTES + c * TILE::PANEL_BYTES, map, bar, c * TILE::PANEL, row, h,
                        b + p * batch);
}

/* A tile into both blocks of a pair, each of which loads half of its rows; the map's boxes have as many. */
template <class TILE>
__device__ __forceinline__ void load_tile_both(uint32_t dst, const CUtensorMap *map, uint32_t bar, int row, int h,
                                               int b, int rank)
{
    constexpr int HALF = TILE::ROWS / 2;
    static_assert(TILE::PARTS == 1 && HALF % 8 == 0, "whole atoms of the swizzle");
#pragma unroll
    for (int c = 0; c < TILE::COLS / TILE::PANEL; c++)
        tma_load_4d_both(dst + c * TILE::PANEL_BYTES + rank * HALF * TILE::PANEL_ROW, map, bar, c * TILE::PANEL,
                         row + rank * HALF, h, b);
}

/* A ring of shared-memory stages: slot and the parity its barriers are waited on with. */
template <int STAGES>
struct ring {
    int slot = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void next()
    {
        if (++slot == STAGES)
            slot = 0, parity ^= 1;
    }
};

} // namespace hopper
