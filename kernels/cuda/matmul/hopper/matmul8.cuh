/* SPDX-License-Identifier: MIT */
/* D = A B^T + C of float8 codes on Hopper, with exact sums: the kernel. Launched by matmul8.cu.
 * Tile: 128 or 256 rows, 128 columns, half the rows to each of two consumer warpgroups: wgmma 64 x 128 x 32. Two blocks with
 * neighbouring columns are a cluster: each loads half of A and sends it to both. A step is 128 of k, one group of a scale: its four
 * wgmmas fill fresh accumulators, which are then added, times their scales, to sums in fp32 (DeepSeek-V3, arXiv 2412.19437,
 * section 3.3.2), 64 additions for 256 clocks of products. Meanwhile the next step's products run, or with 256 rows, where registers
 * are too few for those, the other warpgroup's. Their step is 1024 clocks of tensor core and 32 KB from L2; 128 + 64 sums and 35
 * other registers of 232.
 * Two warps of the first warpgroup read the scales of a step ahead of time; scales that all of k shares wait for the tile's end. */
#pragma once

#include "kernels/cuda/hopper/store.cuh"
#include "kernels/cuda/hopper/wgmma.cuh"
#include "kernels/cuda/primitives/vector.cuh"

namespace matmul8
{

using namespace hopper;

/* What is multiplied by scales: the tile's sums; each step's, whose scales are those of rows, as a square of B has one for all of a
 * tile's columns; each step's, with scales of rows and of columns. */
enum scaling { AT_END, BY_ROW, BY_ELEMENT };

constexpr int COLUMNS = 128, STEP = 128;                   /* columns of a block's tile; step along k */
constexpr int CLUSTER = 2, WARPS = 8;                      /* blocks that share A; consumer warps of a block */
constexpr int THREADS = 32 * WARPS + 128;                  /* the first warpgroup loads */
constexpr int SCALE_WARPS = 2;                             /* of which these read scales */
constexpr int SCALES_BARRIER = 1;                          /* of the first stage: its scales may be written over */
constexpr int SCALES_THREADS = 32 * (WARPS + SCALE_WARPS); /* that meet there */
constexpr int BOX_ROWS = 16, SLOT_ROW = 64;                /* a box that a warp stores, 64-byte swizzle */
constexpr int SLOTS = 3, SLOT_BYTES = BOX_ROWS * SLOT_ROW; /* how many may be under way */
constexpr int LAG = 256;                                   /* clocks: the first products of a warpgroup */
constexpr int SMEM_LIMIT = 227 << 10;                      /* shared memory of a block */
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;

/* A block's tile: a consumer warpgroup has HALVES times 64 rows, one after the other. */
template <bool A_E5M2_, scaling WHEN_, int HALVES_>
struct tile {
    static constexpr bool A_E5M2 = A_E5M2_;
    static constexpr scaling WHEN = WHEN_;
    static constexpr int HALVES = HALVES_, ROWS = 128 * HALVES;
    static constexpr int PARTS = HALVES == 1 && WHEN != BY_ELEMENT ? 2 : 1; /* steps whose products may be under way */
    static constexpr int A_BYTES = ROWS * STEP, B_BYTES = COLUMNS * STEP, STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int STAGES = HALVES == 2 ? 4 : 6;
    static constexpr int SCALES = WHEN == AT_END ? 0 : WHEN == BY_ROW ? ROWS : ROWS + COLUMNS; /* of a stage */
    static constexpr int STAGING = STAGES * STAGE_BYTES, SCALES_AT = STAGING + WARPS * SLOTS * SLOT_BYTES;
    static constexpr int FULL = SCALES_AT + 4 * SCALES * STAGES, EMPTY = FULL + 8 * STAGES, BYTES = EMPTY + 8 * STAGES;
    static_assert(STAGE_BYTES % 1024 == 0 && BYTES <= SMEM_LIMIT, "whole atoms of the swizzle, and they fit");
};

/* The scale of a row and a block of k is data[(row >> shift) * row_stride + block * step]. A row beyond the matrix has that of the
 * last one: its codes are zeros, and its results are not stored. */
struct scale_view {
    const float *data;
    int64_t step;
    int shift, row_stride, rows;

    __device__ __forceinline__ int row_at(int row) const { return (min(row, rows - 1) >> shift) * row_stride; }
    __device__ __forceinline__ float at(int row) const { return data[row_at(row)]; } /* the only block's */
};

/* Maps are of words of 16 bits: two codes, or an element of D or half of one. */
struct params {
    CUtensorMap a, b, d; /* boxes of half a tile's rows, of its columns, 128 of k each; of 16 rows and 64 bytes */
    scale_view scale_a, scale_b;
    const void *c; /* or NULL */
    int64_t ldc;
    int m, n;
    sb_dtype out;                /* of C and D */
    int steps;                   /* along k */
    int tiles_m, tiles_n, tiles; /* tiles of a cluster, 256 columns */
    int group;                   /* how many of tiles_m are walked together, so that their A stays in L2 */
};

struct place {
    int row, column; /* the first of a block's tile */
};

/* Down the rows of a group first, then to the next columns, as in matmul16. */
template <class S>
__device__ __forceinline__ place locate(const params &p, int number, int rank)
{
    const int whole = p.group * p.tiles_n, first = number / whole * p.group, rest = number % whole;
    const int rows = min(p.group, p.tiles_m - first);
    return {(first + rest % rows) * S::ROWS, (rest / rows * CLUSTER + rank) * COLUMNS};
}

/* One thread: its share of A for both blocks, B for its own. */
template <class S>
__device__ __forceinline__ void produce(const params &p, uint32_t base, int rank, int first, int clusters)
{
    ring<S::STAGES> stage;
    for (int number = first; number < p.tiles; number += clusters) {
        const place at = locate<S>(p, number, rank);
        for (int i = 0; i < p.steps; i++, stage.next()) {
            const uint32_t a = base + stage.slot * S::STAGE_BYTES, bar = base + S::FULL + 8 * stage.slot;
            mbarrier_wait(base + S::EMPTY + 8 * stage.slot, stage.parity ^ 1);
            mbarrier_expect(bar, S::STAGE_BYTES);
            tma_load_2d_to_both(a + rank * (S::A_BYTES / 2), &p.a, bar, i * (STEP / 2), at.row + rank * (S::ROWS / 2));
            tma_load_2d(a + S::A_BYTES, &p.b, bar, i * (STEP / 2), at.column);
        }
    }
}

/* A warp: its share of the scales of every step. They are read while the stage is still in use. Each thread arrives for what it has
 * written or read itself: one for its whole warp would be as good, but racecheck does not follow that. */
template <class S>
__device__ __forceinline__ void produce_scales(const params &p, unsigned char *smem, uint32_t base, int rank, int first,
                                               int clusters, int thread)
{
    constexpr int EACH = S::SCALES / (32 * SCALE_WARPS);
    ring<S::STAGES> stage;
    for (int number = first; number < p.tiles; number += clusters) {
        const place tile = locate<S>(p, number, rank);
        float now[EACH], next[EACH];
        int at[EACH], of_tile = p.scale_b.row_at(tile.column);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int row = thread + i * 32 * SCALE_WARPS;
            at[i] = i * 32 * SCALE_WARPS < S::ROWS ? p.scale_a.row_at(tile.row + row)
                                                   : p.scale_b.row_at(tile.column + row - S::ROWS);
        }
        auto read = [&](float(&x)[EACH], int step) {
            const float *a = p.scale_a.data + step * p.scale_a.step, *b = p.scale_b.data + step * p.scale_b.step;
            const float all = S::WHEN == BY_ROW ? b[of_tile] : 1;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                x[i] = i * 32 * SCALE_WARPS < S::ROWS ? a[at[i]] * all : b[at[i]];
        };
        read(now, 0);
        for (int i = 0; i < p.steps; i++, stage.next()) {
            if (i + 1 < p.steps)
                read(next, i + 1);
            named_sync(SCALES_BARRIER + stage.slot, SCALES_THREADS);
            float *out = (float *)(smem + S::SCALES_AT) + stage.slot * S::SCALES + thread;
#pragma unroll
            for (int j = 0; j < EACH; j++)
                out[j * 32 * SCALE_WARPS] = now[j], now[j] = next[j];
            mbarrier_arrive(base + S::FULL + 8 * stage.slot);
        }
    }
    for (int slot = 0; slot < S::STAGES; slot++) /* no arrival is left */
        named_sync(SCALES_BARRIER + slot, SCALES_THREADS);
}

/* ---- from sums to D ---- */

/* Two neighbours of a row in memory, `WORDS` of 32 bits. */
template <class T>
struct pair {
    static constexpr int WORDS = 1;
    using type = uint32_t;
    static __device__ __forceinline__ float2 unpack(type x)
    {
        float y[2];
        word<T>::unpack(x, y);
        return {y[0], y[1]};
    }
    static __device__ __forceinline__ type pack(float2 x) { return hopper::pack(T(), x.x, x.y); }
};
template <>
struct pair<float> {
    static constexpr int WORDS = 2;
    using type = float2;
    static __device__ __forceinline__ float2 unpack(type x) { return x; }
    static __device__ __forceinline__ type pack(float2 x) { return x; }
};

/* Scales that all of k shares. */
template <class S>
__device__ __forceinline__ void scale_sums(const params &p, float (&sum)[S::HALVES][64], int row, int column)
{
    float rows[S::HALVES][2];
#pragma unroll
    for (int i = 0; i < 2 * S::HALVES; i++)
        rows[i / 2][i % 2] = p.scale_a.at(row + i / 2 * 64 + i % 2 * 8);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const float scale = p.scale_b.at(column + i / 2 * 8 + i % 2);
#pragma unroll
        for (int j = 0; j < 2 * S::HALVES; j++)
            sum[j / 2][i / 2 * 4 + j % 2 * 2 + i % 2] *= rows[j / 2][j % 2] * scale;
    }
}

/* A warp's 16 rows from `row` on, in boxes of 64 bytes a row that leave through its slots; hopper/wgmma.cuh says which sums a
 * thread has. What is read of C is read for four boxes at a time. TMA clips what is outside of D. */
template <class T>
__device__ __forceinline__ void store_rows(const params &p, unsigned char *slots, const float (&sum)[64], int row,
                                           int column, int lane, int &slot)
{
    using pair_type = typename pair<T>::type;
    constexpr int WORDS = pair<T>::WORDS, GROUPS = 4 / WORDS, BOXES = 4; /* groups of 8 columns each, of a box */
    const int chunk = WORDS == 1 ? lane / 8 : lane / 8 ^ lane % 4 / 2;
    const int lane_at = lane / 4 * SLOT_ROW + chunk * 16 + (WORDS == 1 ? lane % 4 * 4 : lane % 2 * 8);
    const T *above = (const T *)p.c + (row + lane / 4) * p.ldc + column + lane % 4 * 2, *below = above + 8 * p.ldc;
    const bool adds[2] = {p.c && row + lane / 4 < p.m, p.c && row + lane / 4 + 8 < p.m};
#pragma unroll
    for (int first = 0; first < 16; first += BOXES * GROUPS) {
        pair_type c[BOXES * GROUPS][2];
#pragma unroll
        for (int i = 0; i < BOXES * GROUPS; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                c[i][half] = pair_type();
                if (adds[half] && column + (first + i) * 8 < p.n)
                    c[i][half] = *(const pair_type *)((half ? below : above) + (first + i) * 8);
            }
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            unsigned char *out = slots + slot * SLOT_BYTES;
            if (lane == 0)
                tma_store_wait_read<SLOTS - 1>();
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 2 * GROUPS; i++) {
                const int j = box * GROUPS + i / 2, half = i % 2, of_sum = 4 * (first + j) + 2 * half;
                const float2 add = pair<T>::unpack(c[j][half]);
                *(pair_type *)(out + (lane_at ^ i / 2 * 16 * WORDS) + half * 8 * SLOT_ROW) =
                    pair<T>::pack({sum[of_sum] + add.x, sum[of_sum + 1] + add.y});
            }
            fence_async_proxy();
            __syncwarp();
            if (lane == 0) {
                tma_store_2d(&p.d, smem_u32(out), (column + (first + box * GROUPS) * 8) * WORDS, row);
                tma_store_commit();
            }
            slot = slot + 1 == SLOTS ? 0 : slot + 1;
        }
    }
}

template <class S>
__device__ __forceinline__ void store_tile(const params &p, unsigned char *slots, float (&sum)[S::HALVES][64],
                                           place tile, int warp_row, int lane, int &slot)
{
    const int row = tile.row + warp_row;
    auto half = [&](auto t, auto h) {
        store_rows<decltype(t)>(p, slots, sum[decltype(h)::value], row + decltype(h)::value * 64, tile.column, lane,
                                slot);
    };
    auto all = [&](auto t) {
        half(t, constant<0>());
        if constexpr (S::HALVES == 2)
            half(t, constant<1>());
    };
    if (S::WHEN == AT_END)
        scale_sums<S>(p, sum, row + lane / 4, tile.column + lane % 4 * 2);
    if (p.out == SB_BF16)
        all(__nv_bfloat16());
    else if (p.out == SB_FP16)
        all(__half());
    else
        all(float());
}

template <class S>
__device__ __forceinline__ void consume(const params &p, unsigned char *smem, uint32_t base, int rank, int first,
                                        int clusters)
{
    const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    const int group_row = warp / 4 * 64 * S::HALVES, warp_row = group_row + warp % 4 * 16;
    const uint32_t full = base + S::FULL, release_at = cluster_map(base + S::EMPTY, lane & 1);
    const uint64_t a0 = wgmma_descriptor(base + group_row * STEP, 16), b0 = wgmma_descriptor(base + S::A_BYTES, 16);
    const float *const scales = (const float *)(smem + S::SCALES_AT);
    unsigned char *const slots = smem + S::STAGING + warp * SLOTS * SLOT_BYTES;
    ring<S::STAGES> stage;
    float part[S::PARTS][64], sum[S::HALVES][64];
    int slot = 0;

    /* Starts the products of the step in the stage that is due, for half h of the rows. */
    auto start = [&](float(&x)[64], int h) {
        const uint64_t at = stage.slot * (S::STAGE_BYTES >> 4);
        if (h == 0)
            mbarrier_wait(full + 8 * stage.slot, stage.parity);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEP / 32; k++)
            wgmma_codes<S::A_E5M2>(x, a0 + at + ((h * 64 * STEP + k * 32) >> 4), b0 + at + (k * 32 >> 4), k != 0);
        wgmma_commit();
    };
    auto release = [&](int which) {
        if (S::SCALES > 0)
            named_arrive(SCALES_BARRIER + which, SCALES_THREADS);
        if (lane < CLUSTER) /* one block each */
            mbarrier_arrive_cluster(release_at + 8 * which);
    };
    /* Waits for the products of a stage, all but the newest or all, and adds them to the sums. */
    auto finish = [&](auto pending, float(&x)[64], int which, int h) {
        const float *of_rows = scales + which * S::SCALES + warp_row + h * 64 + lane / 4;
        const float *of_columns = scales + which * S::SCALES + S::ROWS + lane % 4 * 2;
        const float above = S::WHEN == AT_END ? 1 : of_rows[0], below = S::WHEN == AT_END ? 1 : of_rows[8];
        wgmma_wait<decltype(pending)::value>();
        pin(x);
        const bool last = h == S::HALVES - 1;
        if (S::WHEN != BY_ELEMENT && last)
            release(which);
#pragma unroll
        for (int i = 0; i < 64; i++) {
            const float row = i % 4 < 2 ? above : below;
            if (S::WHEN == AT_END)
                sum[h][i] += x[i];
            else
                sum[h][i] = fmaf(x[i], S::WHEN == BY_ROW ? row : row * of_columns[i / 4 * 8 + i % 2], sum[h][i]);
        }
        if (S::WHEN == BY_ELEMENT && last)
            release(which);
    };
    /* The products in x are under way; those of the next step are started before they are added. */
    auto turn = [&](float(&x)[64], float(&next)[64]) {
        const int which = stage.slot;
        stage.next();
        start(next, 0);
        finish(constant<1>(), x, which, 0);
    };

    for (int s = 0; S::SCALES > 0 && s < S::STAGES; s++) /* no stage has scales yet */
        named_arrive(SCALES_BARRIER + s, SCALES_THREADS);
    if (S::PARTS == 1 && warp >= 4) { /* if both warpgroups began together, both would often add at the same time */
        mbarrier_wait(full, 0);
        for (const unsigned begin = clock(); (unsigned)clock() - begin < LAG;)
            ;
    }
    start(part[0], 0);
    int number = first;
    for (;; number += clusters) {
#pragma unroll
        for (int i = 0; i < S::HALVES * 64; i++)
            sum[i / 64][i % 64] = 0;
        int left = p.steps;
        if constexpr (S::PARTS == 2) {
#pragma unroll 1
            for (; left > 2; left -= 2) {
                turn(part[0], part[1]);
                turn(part[1], part[0]);
            }
            if (left == 2) {
                turn(part[0], part[1]);
                finish(constant<0>(), part[1], stage.slot, 0);
            } else {
                finish(constant<0>(), part[0], stage.slot, 0);
            }
            stage.next();
        } else {
#pragma unroll 1
            for (;; start(part[0], 0)) {
#pragma unroll
                for (int h = 0; h < S::HALVES; h++) {
                    finish(constant<0>(), part[0], stage.slot, h);
                    if (h + 1 < S::HALVES)
                        start(part[0], h + 1);
                }
                stage.next();
                if (--left == 0)
                    break;
            }
        }
        if (number + clusters >= p.tiles)
            break;
        /* The next tile's first products run while this one is stored, where there are registers for both. */
        if (S::HALVES == 1)
            start(part[0], 0);
        store_tile<S>(p, slots, sum, locate<S>(p, number, rank), warp_row, lane, slot);
        if (S::HALVES == 2)
            start(part[0], 0);
    }
    store_tile<S>(p, slots, sum, locate<S>(p, number, rank), warp_row, lane, slot);
    if (lane == 0)
        tma_store_wait();
}

template <class S>
__global__ void __launch_bounds__(THREADS, 1) matmul8_kernel(const __grid_constant__ params p)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const uint32_t base = smem_u32(smem);
    const int rank = cluster_rank(), first = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER,
              warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        tma_prefetch(&p.a);
        tma_prefetch(&p.b);
        for (int s = 0; s < S::STAGES; s++) {
            mbarrier_init(base + S::FULL + 8 * s, 1 + (S::SCALES > 0 ? 32 * SCALE_WARPS : 0));
            mbarrier_init(base + S::EMPTY + 8 * s, CLUSTER * WARPS);
        }
        mbarrier_init_fence();
    }
    __syncwarp();
    cluster_sync();
    wait_for_previous_kernel();
    let_next_kernel_start(); /* what starts during this kernel finds everything before it complete */

    if (threadIdx.x < 128) {
        registers_lower<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            produce<S>(p, base, rank, first, clusters);
        if constexpr (S::SCALES > 0)
            if (warp >= 1 && warp <= SCALE_WARPS)
                produce_scales<S>(p, smem, base, rank, first, clusters, threadIdx.x - 32);
        __syncwarp();
    } else {
        registers_raise<CONSUMER_REGISTERS>();
        consume<S>(p, smem, base, rank, first, clusters);
        __syncwarp();
    }
    cluster_sync(); /* the other block may still release stages here, or send to them */
}

} // namespace matmul8
