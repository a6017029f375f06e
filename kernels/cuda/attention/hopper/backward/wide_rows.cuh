/* SPDX-License-Identifier: MIT */
/* The way out of the wide backward: dK and dV of a block to the tensors, summed over the blocks of a cluster. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_ROWS_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_ROWS_CUH

#include "kernels/cuda/attention/hopper/backward/wide_keys.cuh"
#include "kernels/cuda/attention/hopper/rows.cuh"

namespace flash_sm90
{

enum { ROWS_BARRIER = 2 /* and 3 */ };

/* This block's share of the rows of dK or dV from the partial sums of all SPLIT blocks, all loads before the first
 * use. Returns a number that depends on each of them. */
template <class MEM, class OUT, int DP, int SPLIT>
__device__ __forceinline__ float merge_key_rows(uint32_t part_addr, int rank, OUT *head, int64_t stride_s,
                                                int key_first, int seq_k, int head_dim, float scale)
{
    constexpr int SHARE = BACKWARD_KEYS / SPLIT, UNITS = SHARE * (DP / 4) / 256; /* units of 4 columns a thread */
    static_assert(UNITS * 256 == SHARE * (DP / 4), "whole units");
    const int thread = threadIdx.x - 128;
    float4 part[UNITS][SPLIT];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = u * 256 + thread, row = rank * SHARE + unit / (DP / 4), d = unit % (DP / 4) * 4;
#pragma unroll
        for (int n = 0; n < SPLIT; n++)
            part[u][n] = cluster_load4(cluster_map(part_addr + (row * MEM::MERGE_PITCH + d) * 4, n));
    }
    float read = 0;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = u * 256 + thread, d = unit % (DP / 4) * 4;
        const int64_t i = key_first + rank * SHARE + unit / (DP / 4);
        float4 x = part[u][0];
#pragma unroll
        for (int n = 1; n < SPLIT; n++)
            x.x += part[u][n].x, x.y += part[u][n].y, x.z += part[u][n].z, x.w += part[u][n].w;
        read += (x.x + x.y) + (x.z + x.w);
        if (i >= seq_k || d >= head_dim)
            continue;
        store_pair(head + i * stride_s + d, x.x * scale, x.y * scale);
        store_pair(head + i * stride_s + d + 2, x.z * scale, x.w * scale);
    }
    return read;
}

/* Accumulators of a warp, 16 keys, to rows of a 16-bit tensor: by way of the warp's rows of V, so that whole lines leave.
 * Fragments alone would write 16 bytes of each of eight rows at a time. */
template <class KEYS, class T>
__device__ __forceinline__ void store_warp_rows(const backward_params &p, const KEYS &keys,
                                                const float (&x)[KEYS::mem::COLUMNS / 2], float scale, T *head,
                                                int64_t stride_s)
{
    using mem = typename KEYS::mem;
    const int lane = lane_asked(), corner = mem::V + (keys.wg * 64 + keys.warp * 16) * ROW_BYTES;
    store_warp_rows16<T, mem::COLUMNS, mem::tile_kv::PANEL_BYTES>(keys.block.base + corner, x, scale, scale, lane);
    __syncwarp();
    const int first = keys.block.job().key_tile * BACKWARD_KEYS + keys.wg * 64 + keys.warp * 16;
#pragma unroll
    for (int panel = 0; panel < mem::DP / 64; panel++)
#pragma unroll
        for (int r = 0; r < 16; r += 4) {
            const int row = r + lane / 8, d = panel * 64 + lane % 8 * 8;
            if (first + row < p.seq_k && d < p.head_dim)
                *(uint4 *)(head + (int64_t)(first + row) * stride_s + d) =
                    *(const uint4 *)(keys.block.smem + corner + panel * mem::tile_kv::PANEL_BYTES + row * ROW_BYTES +
                                     (lane % 8 ^ row % 8) * 16);
        }
    __syncwarp();
}

/* Accumulators of a thread to rows of an fp32 tensor. */
template <class KEYS>
__device__ __forceinline__ void store_warp_rows(const backward_params &p, const KEYS &keys,
                                                const float (&x)[KEYS::mem::COLUMNS / 2], float scale, float *head,
                                                int64_t stride_s)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int64_t row = keys.key() + 8 * r;
        if (row >= p.seq_k)
            continue;
#pragma unroll
        for (int j = 0; j < KEYS::mem::COLUMNS / 8; j++)
            if (8 * j < p.head_dim)
                store_pair(head + row * stride_s + 8 * j + keys.column(), x[4 * j + 2 * r] * scale,
                           x[4 * j + 2 * r + 1] * scale);
    }
}

/* dK and dV of a group that nobody shares with it. */
template <class OUT, class KEYS>
__device__ __forceinline__ void store_own_rows(const backward_params &p, const KEYS &keys)
{
    const volatile backward_job &job = keys.job();
    named_sync(ROWS_BARRIER + keys.wg, 128); /* V is the group's own, and it has no products under way */
    store_warp_rows(p, keys, keys.dv, 1, (OUT *)p.dv + job.b * p.dv_stride_b + job.h_kv * p.dv_stride_h, p.dv_stride_s);
    store_warp_rows(p, keys, keys.dk, p.scale, (OUT *)p.dk + job.b * p.dk_stride_b + job.h_kv * p.dk_stride_h,
                    p.dk_stride_s);
}

template <class OUT, class KEYS>
__device__ __forceinline__ void store_key_rows(const backward_params &p, const KEYS &keys, uint32_t base,
                                               unsigned char *smem)
{
    using mem = typename KEYS::mem;
    const int split = cluster_size(), rank = cluster_rank();
    if (split == 1) {
        store_own_rows<OUT>(p, keys);
        return;
    }
    const volatile backward_job &job = keys.job();
    const int key_first = job.key_tile * BACKWARD_KEYS;
    OUT *const dk_head = (OUT *)p.dk + job.b * p.dk_stride_b + job.h_kv * p.dk_stride_h;
    OUT *const dv_head = (OUT *)p.dv + job.b * p.dv_stride_b + job.h_kv * p.dv_stride_h;

    /* merge: every block leaves its partial sums, then finishes its share of the rows */
    named_sync(DS_BARRIER, 256); /* the other group may still read the tiles */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float *const part_dk = (float *)(smem + mem::MERGE_DK) + (keys.key() - key_first + 8 * r) * mem::MERGE_PITCH +
                               keys.column(),
                     *const part_dv = part_dk + mem::MERGE_DV / 4;
#pragma unroll
        for (int j = 0; j < KEYS::mem::COLUMNS / 8; j++) {
            store_pair(part_dk + 8 * j, keys.dk[4 * j + 2 * r], keys.dk[4 * j + 2 * r + 1]);
            store_pair(part_dv + 8 * j, keys.dv[4 * j + 2 * r], keys.dv[4 * j + 2 * r + 1]);
        }
    }
    cluster_sync_shared();
    auto merge = [&](auto blocks) {
        constexpr int SPLIT = decltype(blocks)::value;
        return merge_key_rows<mem, OUT, mem::DP, SPLIT>(base + mem::MERGE_DK, rank, dk_head, p.dk_stride_s, key_first,
                                                        p.seq_k, p.head_dim, p.scale) +
               merge_key_rows<mem, OUT, mem::DP, SPLIT>(base + mem::MERGE_DV, rank, dv_head, p.dv_stride_s, key_first,
                                                        p.seq_k, p.head_dim, 1);
    };
    float read = 0;
    if (split == 2)
        read = merge(constant<2>());
    if (split == 4)
        read = merge(constant<4>());
    if (split == 8)
        read = merge(constant<8>());
    constexpr int AFTER = 2 * mem::MERGE_DV; /* no one reads here */
    static_assert(AFTER + BACKWARD_THREADS * 4 <= mem::LSE, "a word for each thread behind the merge");
    cluster_leave(base + AFTER + threadIdx.x * 4, read);
}

} // namespace flash_sm90
#endif
