/* SPDX-License-Identifier: MIT */
/* FlashAttention forward for Hopper: the way out of a tile. A block that had all keys of its rows writes them; the blocks
 * of a cluster, each of which had a range of the keys, leave partial O, max and sum in shared memory, and each finishes
 * its share of the rows through distributed shared memory. The order of the merge is fixed. */
#pragma once

#include "kernels/cuda/attention/hopper/forward/layout.cuh"
#include "kernels/cuda/hopper/store.cuh"

namespace flash_hopper
{

/* Named barriers. A turn is 256 threads: the waiting group's and the arriving group's; group g waits on TURN + g. */
enum { CONSUMER_BARRIER = 1, TURN_BARRIER = 2 };

/* Running max (unscaled) and sum of the two rows a thread holds. */
struct row_state {
    float max[2], sum[2];
};

/* Where the rows of a tile go. */
struct merge_target {
    void *o;
    int64_t stride_s;
    float *lse;
    int row_first, seq_q, head_dim_v;
    float scale, scale_log2;
};

/* This block's share of a tile's rows from the partial results of all SPLIT blocks. Every load is issued before the
 * first is used: distributed shared memory answers in about a microsecond, however many ask. Returns a number that depends on
 * each of them. */
template <class MEM, class OUT, int D, int GROUPS, int SPLIT>
__device__ __forceinline__ float merge_rows(uint32_t base, int rank, const merge_target &t)
{
    constexpr int SHARE = MEM::ROWS / SPLIT, UNITS = SHARE * (D / 4) / (128 * GROUPS); /* units of 4 columns a thread */
    static_assert(UNITS * 128 * GROUPS == SHARE * (D / 4), "whole units");
    const int thread = threadIdx.x - 128;
    float top[UNITS][SPLIT], sum[UNITS][SPLIT];
    float4 part[UNITS][SPLIT];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = u * 128 * GROUPS + thread, row = rank * SHARE + unit / (D / 4), d = unit % (D / 4) * 4;
#pragma unroll
        for (int n = 0; n < SPLIT; n++) {
            top[u][n] = cluster_load(cluster_map(base + MEM::MERGE_MAX + row * 4, n));
            sum[u][n] = cluster_load(cluster_map(base + MEM::MERGE_SUM + row * 4, n));
            part[u][n] = cluster_load4(cluster_map(base + MEM::K + (row * MEM::MERGE_PITCH + d) * 4, n));
        }
    }
    float read = 0;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = u * 128 * GROUPS + thread, d = unit % (D / 4) * 4;
        const int64_t i = t.row_first + rank * SHARE + unit / (D / 4);
        float most = top[u][0], total = 0;
#pragma unroll
        for (int n = 1; n < SPLIT; n++)
            most = fmaxf(most, top[u][n]);
        const float shift = most == -INFINITY ? 0.f : most;
        float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int n = 0; n < SPLIT; n++) {
            const float w = exp2_approx((top[u][n] - shift) * t.scale_log2);
            total += w * sum[u][n];
            o.x += w * part[u][n].x, o.y += w * part[u][n].y, o.z += w * part[u][n].z, o.w += w * part[u][n].w;
        }
        read += total + (o.x + o.y) + (o.z + o.w);
        if (i >= t.seq_q || d >= t.head_dim_v)
            continue;
        const float inverse = total > 0 ? 1 / total : 0;
        OUT *const to = (OUT *)t.o + i * t.stride_s + d;
        store_pair(to, o.x * inverse, o.y * inverse);
        store_pair(to + 2, o.z * inverse, o.w * inverse);
        if (d == 0)
            t.lse[i] = total > 0 ? most * t.scale + logf(total) : -INFINITY;
    }
    return read;
}

/* What the two rows of a thread, row and row + 8, are multiplied by in the end; writes their lse. */
__device__ __forceinline__ void finish_rows(const merge_target &t, const row_state &rows, int row, float (&inverse)[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        inverse[r] = rows.sum[r] > 0 ? 1 / rows.sum[r] : 0;
        if (row + 8 * r < t.seq_q && threadIdx.x % 4 == 0)
            t.lse[row + 8 * r] = rows.sum[r] > 0 ? rows.max[r] * t.scale + logf(rows.sum[r]) : -INFINITY;
    }
}

template <class OUT, int D>
__device__ __forceinline__ void store_rows(const merge_target &t, const float (&o)[D / 2], const float (&inverse)[2],
                                           int row)
{
    const int column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = row + 8 * r;
        if (i >= t.seq_q)
            continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            if (8 * j < t.head_dim_v)
                store_pair((OUT *)t.o + i * t.stride_s + 8 * j + column, o[4 * j + 2 * r] * inverse[r],
                           o[4 * j + 2 * r + 1] * inverse[r]);
    }
}

/* A warp's 16 rows of O by way of its rows of a tile of Q, which is no longer read: whole lines leave, while the next tile is
 * computed. Stored from fragments, each lane would write 4 bytes. first: the warp's first row; rows: address of its first row in
 * shared memory. The stores are this warp's next group. */
template <class T, class TILE, int D>
__device__ __forceinline__ void store_tile_rows(uint32_t rows, const CUtensorMap *map, const float (&o)[D / 2],
                                                const float (&inverse)[2], int first, int h, int b)
{
    store_warp_rows16<T, D, TILE::PANEL_BYTES>(rows, o, inverse[0], inverse[1], threadIdx.x % 32);
    fence_async_proxy();
    __syncwarp();
#pragma unroll
    for (int panel = 0; panel < (D + 63) / 64; panel++)
        tma_store_4d_by_warp(rows + panel * TILE::PANEL_BYTES, map, panel * 64, first, h, b);
    tma_store_commit();
}

/* The rows of a tile by all blocks of a cluster. */
template <class MEM, class OUT, int D, int GROUPS>
__device__ __forceinline__ void merge_cluster(unsigned char *smem, int split, int rank, const merge_target &t,
                                              const float (&o)[D / 2], const row_state &rows, int row_local)
{
    const int lane = threadIdx.x % 32, column = 2 * (lane % 4);
    named_sync(CONSUMER_BARRIER, 128 * GROUPS); /* another group may still read K and V */
    float *const part_o = (float *)(smem + MEM::K), *const part_max = (float *)(smem + MEM::MERGE_MAX),
                 *const part_sum = (float *)(smem + MEM::MERGE_SUM);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = row_local + 8 * r;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            store_pair(part_o + i * MEM::MERGE_PITCH + 8 * j + column, o[4 * j + 2 * r], o[4 * j + 2 * r + 1]);
        if (lane % 4 == 0)
            part_max[i] = rows.max[r], part_sum[i] = rows.sum[r];
    }
    cluster_sync_shared();
    const uint32_t base = smem_u32(smem);
    float read = 0;
    if (split == 2)
        read = merge_rows<MEM, OUT, D, GROUPS, 2>(base, rank, t);
    if (split == 4)
        read = merge_rows<MEM, OUT, D, GROUPS, 4>(base, rank, t);
    if (split == 8)
        read = merge_rows<MEM, OUT, D, GROUPS, 8>(base, rank, t);
    cluster_leave(base + MEM::Q + threadIdx.x * 4, read); /* no one needs Q any more */
}

} // namespace flash_hopper
