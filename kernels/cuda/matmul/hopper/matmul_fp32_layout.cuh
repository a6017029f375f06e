/* SPDX-License-Identifier: MIT */
/* The fp32 matmul for Hopper: tiles, shared memory, and who does what. Only indices, so that the host can follow them too. */
#pragma once

#include <stdint.h>

namespace matmul_fp32
{

constexpr int TILE = 128, STEP = 64, WARPS = 8, THREADS = 32 * WARPS;
constexpr int GROUP = TILE / WARPS;             /* rows of A, or columns of B, that a warp converts */
constexpr int QUADS = GROUP * STEP / (32 * 4);  /* fours of floats a thread has of them */
constexpr int ROW_BYTES = 128;                  /* row of a panel: 64 elements of 16 bits */
constexpr int PANEL_BYTES = 64 * ROW_BYTES;     /* 64 rows */
constexpr int PART_BYTES = 2 * PANEL_BYTES;     /* 128 x 64 or 64 x 128 */
constexpr int OPERAND_BYTES = 2 * PART_BYTES;   /* hi, then lo */
constexpr int BUFFER_BYTES = 2 * OPERAND_BYTES; /* A, then B */
constexpr int SCALE_SLOTS = 4;                  /* steps of which the scales are kept: more than are under way */
constexpr int PITCH = TILE + 8;                 /* floats from row to row of a partial sum */
constexpr int PARTIAL_BYTES = TILE * PITCH * 4;

constexpr int TAIL = 0; /* partial sum of a tile that this block begins, over the buffers once they are done with */
constexpr int HEAD = 2 * BUFFER_BYTES; /* ... of one that an earlier block began */
constexpr int SCALES = HEAD + PARTIAL_BYTES;
constexpr int BARRIERS = SCALES + SCALE_SLOTS * WARPS * 4;
constexpr int SMEM_BYTES = BARRIERS + 32;

constexpr int TOP = 14;           /* exponent of a group's largest magnitude once scaled */
constexpr int MOST_SHIFTED = 126; /* by a scale, so that its inverse is a normal number */
constexpr unsigned INFINITY_BITS = 0x7f800000u;

struct operand {
    const float *x;
    int outer;         /* rows of op(A), columns of op(B) */
    unsigned ld_bytes; /* from one stored row to the next */
};

struct params {
    operand a, b;
    const float *c; /* or NULL */
    float *d;
    int64_t ldc, ldd;
    int m, n, k;
    int steps;          /* steps of a tile */
    int tiles_m, tiles; /* tiles are numbered down the columns of D */
    int width;          /* floats that a store may take at once: 1, 2 or 4 */
};

/* Where the i-th four of a lane begins in its warp's group. ROWS: the operand is stored as (k, outer) and a four runs along
 * the outer index, else along k. A warp loads whole sectors, and each half of it stores to every bank once. */
template <bool ROWS>
__host__ __device__ constexpr int quad_outer(int lane, int i)
{
    return ROWS ? lane % 4 * 4 : lane / 16 + 2 * i;
}
template <bool ROWS>
__host__ __device__ constexpr int quad_k(int lane, int i)
{
    return ROWS ? 2 * (lane / 4 % 4) + lane / 16 + 8 * i : lane % 16 * 4;
}
/* Byte of an element within a part. (k, outer): two panels of 64 k by 64; (outer, k): 128 rows of 64 k. Within eight
 * rows the 16-byte pieces of row r are swapped by r: the 128-byte swizzle. */
template <bool ROWS>
__host__ __device__ constexpr int part_offset(int outer, int k)
{
    return ROWS ? outer / 64 * PANEL_BYTES + k * ROW_BYTES + ((outer % 64 / 8) ^ (k % 8)) * 16 + outer % 8 * 2
                : outer * ROW_BYTES + ((k / 8) ^ (outer % 8)) * 16 + k % 8 * 2;
}
/* part_offset of a lane's i-th four, from that of its first. */
template <bool ROWS>
__host__ __device__ constexpr int next_offset(int first, int i)
{
    return ROWS ? first + i * 8 * ROW_BYTES : (first ^ (i % 4 * 32)) + i * 2 * ROW_BYTES;
}

/* A cluster's tiles, and the steps of this block in their list. */
struct share {
    int first_tile, all; /* all: steps of the cluster */
    int begin, end;
};
__host__ __device__ inline int cut(int all, int rank, int ranks)
{
    return (int)((int64_t)all * rank / ranks);
}
__host__ __device__ inline share share_of(const params &p, int cluster, int clusters, int rank, int ranks)
{
    const int first = (int)((int64_t)p.tiles * cluster / clusters),
              end = (int)((int64_t)p.tiles * (cluster + 1) / clusters);
    const int all = (end - first) * p.steps;
    return {first, all, cut(all, rank, ranks), cut(all, rank + 1, ranks)};
}
/* The blocks that have steps of a tile of the list. Every block has at least one step. */
struct holders {
    int first, count;
};
__host__ __device__ inline holders holders_of(const params &p, int tile, int all, int ranks)
{
    int first = 0, last = 0;
    for (int r = 1; r < ranks; r++) {
        first = cut(all, r, ranks) <= tile * p.steps ? r : first;
        last = cut(all, r, ranks) < (tile + 1) * p.steps ? r : last;
    }
    return {first, last - first + 1};
}

} // namespace matmul_fp32
