/* SPDX-License-Identifier: MIT */
/* The fp32 matmul for Hopper: from sums in registers to D, at once or through partial sums of a cluster's blocks. */
#pragma once

#include "kernels/cuda/matmul/hopper/matmul_fp32_layout.cuh"
#include "kernels/cuda/hopper/ptx.cuh"

namespace matmul_fp32
{

using namespace hopper;

/* A thread's share of a whole tile, from its first row and column on (hopper/wgmma.cuh says which they are). C is read before
 * anything is written, or at the tile's edge before each few are: C may be D, so that a load waits for stores ahead. */
__device__ __forceinline__ void store_tile(float (&sum)[TILE / 2], const params &p, int row, int column)
{
    if (p.width >= 2 && column - column % TILE + TILE <= p.n) {
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (p.c && row + 8 * h < p.m) {
                const float *const c = p.c + (row + 8 * h) * p.ldc + column;
#pragma unroll
                for (int j = 0; j < TILE / 8; j++) {
                    const float2 x = *(const float2 *)(c + 8 * j);
                    sum[4 * j + 2 * h] += x.x, sum[4 * j + 2 * h + 1] += x.y;
                }
            }
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (row + 8 * h < p.m) {
                float *const d = p.d + (row + 8 * h) * p.ldd + column;
#pragma unroll
                for (int j = 0; j < TILE / 8; j++)
                    *(float2 *)(d + 8 * j) = make_float2(sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]);
            }
        return;
    }
#pragma unroll
    for (int j = 0; j < TILE / 8; j++) {
        float c[4] = {0, 0, 0, 0};
        if (p.c) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (row + i / 2 * 8 < p.m && column + 8 * j + i % 2 < p.n)
                    c[i] = p.c[(row + i / 2 * 8) * p.ldc + column + 8 * j + i % 2];
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (row + i / 2 * 8 < p.m && column + 8 * j + i % 2 < p.n)
                p.d[(row + i / 2 * 8) * p.ldd + column + 8 * j + i % 2] = sum[4 * j + i] + c[i];
    }
}

/* Leaves the sums in shared memory, for the other blocks. */
__device__ __forceinline__ void leave_partial(const float (&sum)[TILE / 2], unsigned char *partial, int warp, int lane)
{
    float *const to = (float *)partial + (warp * GROUP + lane / 4) * PITCH + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILE / 4; i++)
        *(float2 *)(to + i % 2 * 8 * PITCH + i / 2 * 8) = make_float2(sum[2 * i], sum[2 * i + 1]);
}

/* Fours of a tile's floats, numbered along its rows, that holder `index` of `count` adds up. */
constexpr int UNITS = TILE * TILE / 4;

__device__ __forceinline__ float4 read_four(const float *x, int width, int there)
{
    if (width == 4 && there >= 4)
        return *(const float4 *)x;
    return make_float4(x[0], there > 1 ? x[1] : 0, there > 2 ? x[2] : 0, there > 3 ? x[3] : 0);
}
__device__ __forceinline__ void write_four(float *x, int width, int there, float4 v)
{
    if (width == 4 && there >= 4) {
        *(float4 *)x = v;
        return;
    }
    x[0] = v.x;
    if (there > 1)
        x[1] = v.y;
    if (there > 2)
        x[2] = v.z;
    if (there > 3)
        x[3] = v.w;
}

/* This block's share of a tile from the parts of its COUNT holders. Every load is issued before the first is used:
 * distributed shared memory answers in about a microsecond, however many ask. */
template <int COUNT>
__device__ __forceinline__ void merge_tile(const params &p, uint32_t base, int first_rank, int index, int row,
                                           int column)
{
    constexpr int ROUNDS = ((UNITS + COUNT - 1) / COUNT + THREADS - 1) / THREADS;
    const int begin = UNITS * index / COUNT, end = UNITS * (index + 1) / COUNT;
    float4 partial[ROUNDS][COUNT];
#pragma unroll
    for (int t = 0; t < ROUNDS; t++) {
        const int unit = min(begin + t * THREADS + (int)threadIdx.x, end - 1);
        const int at = (unit / (TILE / 4) * PITCH + unit % (TILE / 4) * 4) * 4;
#pragma unroll
        for (int n = 0; n < COUNT; n++)
            partial[t][n] = cluster_load4(cluster_map(base + (n == 0 ? TAIL : HEAD) + at, first_rank + n));
    }
#pragma unroll
    for (int t = 0; t < ROUNDS; t++) {
        const int unit = begin + t * THREADS + (int)threadIdx.x;
        const int r = row + unit / (TILE / 4), j = column + unit % (TILE / 4) * 4;
        float4 &x = partial[t][0];
#pragma unroll
        for (int n = 1; n < COUNT; n++)
            x.x += partial[t][n].x, x.y += partial[t][n].y, x.z += partial[t][n].z, x.w += partial[t][n].w;
        if (p.c && unit < end && r < p.m && j < p.n) {
            const float4 c = read_four(p.c + r * p.ldc + j, p.width, p.n - j);
            x.x += c.x, x.y += c.y, x.z += c.z, x.w += c.w;
        }
    }
#pragma unroll
    for (int t = 0; t < ROUNDS; t++) {
        const int unit = begin + t * THREADS + (int)threadIdx.x;
        const int r = row + unit / (TILE / 4), j = column + unit % (TILE / 4) * 4;
        if (unit < end && r < p.m && j < p.n)
            write_four(p.d + r * p.ldd + j, p.width, p.n - j, partial[t][0]);
    }
}

__device__ __forceinline__ void merge(const params &p, const share &own, int tile, uint32_t base, int rank, int ranks)
{
    const holders h = holders_of(p, tile, own.all, ranks);
    const int number = own.first_tile + tile, index = rank - h.first;
    const int row = number % p.tiles_m * TILE, column = number / p.tiles_m * TILE;
    switch (h.count) {
    case 2: return merge_tile<2>(p, base, h.first, index, row, column);
    case 3: return merge_tile<3>(p, base, h.first, index, row, column);
    case 4: return merge_tile<4>(p, base, h.first, index, row, column);
    case 5: return merge_tile<5>(p, base, h.first, index, row, column);
    case 6: return merge_tile<6>(p, base, h.first, index, row, column);
    case 7: return merge_tile<7>(p, base, h.first, index, row, column);
    case 8: return merge_tile<8>(p, base, h.first, index, row, column);
    }
}

} // namespace matmul_fp32
