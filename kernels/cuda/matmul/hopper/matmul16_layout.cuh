/* SPDX-License-Identifier: MIT */
/* The 16-bit matmul for Hopper: tiles, the layout of shared memory, the order of tiles, parameters. */
#pragma once

#include "kernels/cuda/hopper/tile.cuh"
#include "kernels/cuda/hopper/ptx.cuh"

namespace matmul16
{

using namespace hopper;

/* What becomes of the sums: D = A B + C; h = silu(gate) up, B being gate's rows and up's; gradients of gate and up. */
enum kind { PLAIN, SWIGLU_FORWARD, SWIGLU_BACKWARD };

constexpr int ROWS = 128, STEP = 64;          /* rows of a block's tile; step along k */
constexpr int CLUSTER = 2, WARPS = 8;         /* blocks that share B; consumer warps of a block */
constexpr int THREADS = 32 * WARPS + 128;     /* the first warpgroup loads */
constexpr int ROW_BYTES = 128, BOX_ROWS = 16; /* a row of a panel; rows of a warp, which it stores by itself */
constexpr int SMEM_LIMIT = 227 << 10;         /* shared memory of a block */
constexpr int WIDEST_THAT_ADDS = 200;         /* columns of a plain tile that adds C: its sums wait in fp32 */
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

/* A block's tile: 128 rows, N columns of B. B_ROWS: B is stored as rows of k, else as rows of columns ("transposed"). */
template <kind KIND_, int N_, bool B_ROWS_>
struct tile {
    static constexpr kind KIND = KIND_;
    static constexpr int N = N_;
    static constexpr bool B_ROWS = B_ROWS_;
    static constexpr int WIDTH = KIND == SWIGLU_FORWARD ? N / 2 : N; /* columns of the result */

    /* The result leaves in chunks of columns, [16 rows][CHUNK] for each warp and array ("slot"). Rows of 32 columns
     * have the 64-byte swizzle, rows of 40 none: either way a warp's accesses touch each bank once. */
    static constexpr int CHUNK = WIDTH % 32 == 0 ? 32 : 40, CHUNKS = WIDTH / CHUNK, GROUPS = CHUNK / 8;
    static constexpr int CHUNK_ROW = 2 * CHUNK, SLOT_BYTES = BOX_ROWS * CHUNK_ROW;
    /* forward: gate, up, h; backward: gate and up twice, or once and h; plain: twice */
    static constexpr int SLOTS = KIND == SWIGLU_FORWARD ? 3 : KIND == SWIGLU_BACKWARD ? 4 : 2;
    static constexpr int LOADED = KIND == SWIGLU_BACKWARD ? 2 : 1; /* slots that one chunk's loads fill */
    /* Sums are kept in fp32 until C is added; wider tiles add nothing. */
    static constexpr bool WIDE = KIND == PLAIN && N <= WIDEST_THAT_ADDS;
    static constexpr int WAITING = WIDE ? N / 2 : N / 4; /* registers of a result that waits to be stored */

    /* A B that is stored as rows of k comes in panels of columns, the last of which may be used in part: narrow panels with
     * the 64-byte swizzle where wide ones would load many columns that are not used. */
    static constexpr int PANEL_COLUMNS = N % 64 == 0 ? 64 : 32, PANELS = (N + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    static constexpr int PANEL_ROW = 2 * PANEL_COLUMNS, PANEL_BYTES = STEP * PANEL_ROW;
    static constexpr int A_BYTES = ROWS * ROW_BYTES, B_BYTES = B_ROWS ? PANELS * PANEL_BYTES : N * ROW_BYTES;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    /* B's rows that the first block of a cluster loads, the second has the rest: whole groups of 8. */
    static constexpr int B_FIRST = KIND == SWIGLU_FORWARD ? N / 2 : (N / 2 + 7) / 8 * 8;
    static constexpr int WARP_BYTES = SLOTS * SLOT_BYTES, STAGING_BYTES = WARPS * WARP_BYTES, BARRIER_BYTES = 512;
    static constexpr int FIT = (SMEM_LIMIT - STAGING_BYTES - BARRIER_BYTES) / STAGE_BYTES, STAGES = FIT < 8 ? FIT : 8;
    static constexpr int STAGING = STAGES * STAGE_BYTES;
    static constexpr int FULL = STAGING + STAGING_BYTES, EMPTY = FULL + 8 * STAGES, ARRIVED = EMPTY + 8 * STAGES;
    static constexpr int BYTES = FULL + BARRIER_BYTES;

    static_assert(WIDTH % CHUNK == 0 && N % 8 == 0, "whole chunks and groups");
    static_assert(STAGE_BYTES % 1024 == 0 && B_FIRST * ROW_BYTES % 1024 == 0, "swizzle atoms are 1024 bytes");
    static_assert(CHUNK == 40 || SLOT_BYTES % 512 == 0, "swizzle atoms of 64-byte rows are 512 bytes");
    static_assert(SLOT_BYTES % 128 == 0 && ARRIVED + 16 * WARPS <= BYTES && BYTES <= SMEM_LIMIT, "fits");

    /* Where the pair of a lane is in a slot (hopper/wgmma.cuh says which pairs it has): at(place_of(lane), j, half) is row
     * lane / 4 + 8 half, columns 8 j + 2 (lane % 4) and the next. */
    static __device__ __forceinline__ int place_of(int lane)
    {
        return lane / 4 * CHUNK_ROW + (CHUNK == 32 ? lane / 8 * 16 : 0) + lane % 4 * 4;
    }
    static __device__ __forceinline__ int at(int place, int j, int half)
    {
        return (CHUNK == 32 ? place ^ j * 16 : place + j * 16) + half * 8 * CHUNK_ROW;
    }
};

struct params {
    CUtensorMap a;      /* boxes of 128 rows, 64 of k */
    CUtensorMap b[2];   /* for each block of a cluster: its rows of a stage; B_ROWS: 32 of k, a panel's columns */
    CUtensorMap out[2]; /* gate and up, read too by backward; PLAIN: D and C */
    CUtensorMap h;
    int steps;                   /* along k */
    int tiles_m, tiles_n, tiles; /* tiles of a cluster, 256 rows */
    int group;                   /* how many of tiles_m are walked together, so that their A stays in L2 */
    /* forward stores gate and up; backward makes h again; WIDE adds C */
    bool option;
    /* The kernel ahead in the stream writes nothing that this one touches: it need not have ended. */
    bool beside;
};

/* First row of a cluster's tile, and its first column of the result. */
struct place {
    int row, column;
};

/* Down the rows of a group first, then to the next columns: what runs at once shares A of the whole group, B of a few
 * columns. */
template <class S>
__device__ __forceinline__ place locate(const params &p, int number)
{
    const int whole = p.group * p.tiles_n, first = number / whole * p.group, rest = number % whole;
    const int rows = min(p.group, p.tiles_m - first);
    return {(first + rest % rows) * (CLUSTER * ROWS), rest / rows * S::WIDTH};
}

} // namespace matmul16
