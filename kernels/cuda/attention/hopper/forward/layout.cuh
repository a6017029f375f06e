/* SPDX-License-Identifier: MIT */
/* FlashAttention forward for Hopper: parameters, shared memory, barriers and jobs of the kernel, and the list of its
 * instances that the host chooses from. */
#pragma once

#include "kernels/cuda/attention/hopper/documents.h"
#include "kernels/cuda/hopper/tile.cuh"

namespace flash_hopper
{

using namespace hopper;

struct forward_params {
    CUtensorMap q_map, k_map, v_map;
    CUtensorMap o_map;                          /* boxes of 16 rows; 16-bit only */
    void *o;                                    /* (B, H, Sq, Dv) */
    int64_t o_stride_b, o_stride_h, o_stride_s; /* elements */
    float *lse;                                 /* (B, H, Sq) */
    int batch, heads, group, seq_q, seq_k, head_dim_v;
    int tiles;          /* row tiles of one head */
    unsigned *next_job; /* two zeros: jobs given out beyond the first of each block; blocks done */
    int section;        /* heads walked together, so that their K and V stay in L2 */
    float scale, scale_log2;
    /* scaled_parts: what undoes the scales, (B, H, q_groups) and (B, Hkv, kv_groups); see fp32_parts.cuh */
    const float *q_inverse, *k_inverse, *v_inverse;
    int q_groups, kv_groups;
    int window_left, window_right; /* keys before and after its own position that a query sees; WINDOW only */
    /* PACKED only: tensors and lse hold all documents, seq_q and seq_k are of all */
    const document_tiles *list; /* row tiles of all documents; `tiles` is what it has room for */
};

/* One row tile of one head, and the key blocks this block walks for it; bh < 0: there are no more. */
struct forward_job {
    int bh, b, h, h_kv, row_first, block_begin, block_end;
};

/* A job of packed documents: one row tile of one head, and its document; rows and key blocks are counted in it. */
struct packed_job : forward_job {
    int seq_q, seq_k, q_begin, k_begin;
};
template <bool PACKED>
struct job_type {
    using type = forward_job;
};
template <>
struct job_type<true> {
    using type = packed_job;
};

/* D: columns of Q and K that are computed, DV: of V; a tile keeps whole panels. GROUPS: consumer warpgroups, each 64 query rows of the
 * block. */
template <int PARTS, int D, int DV, int BN, int GROUPS, bool CLUSTERS, class JOB = forward_job>
struct forward_memory {
    static constexpr int ROWS = 64 * GROUPS;
    /* three groups at D 80 and 96: panels of 32 columns leave room for a third stage */
    static constexpr int PANEL = GROUPS == 3 && D > 64 ? 32 : 64;
    static constexpr int STAGES =
        GROUPS == 1 || PANEL == 32 ? 3 : 2; /* stages of K and V; one group hides less of a load */
    using tile_q = tile<PARTS, ROWS, (D + 63) / 64 * 64>;
    using tile_kv = tile<PARTS, BN, (D + PANEL - 1) / PANEL * PANEL, PANEL>;
    using tile_v = tile<PARTS, BN, (DV + PANEL - 1) / PANEL * PANEL, PANEL>;
    /* two query tiles where they fit, so that the next tile's is there when this one's ends */
    static constexpr int Q_STAGES = 2 * tile_q::BYTES + STAGES * (tile_kv::BYTES + tile_v::BYTES) <= 216 << 10 ? 2 : 1;
    static constexpr int Q = 0;
    static constexpr int K = Q + Q_STAGES * tile_q::BYTES;
    static constexpr int V = K + STAGES * tile_kv::BYTES;
    static constexpr int BARRIERS = V + STAGES * tile_v::BYTES;
    static constexpr int JOBS = BARRIERS + 176;                /* this one and the next */
    static constexpr int NUMBER = JOBS + 2 * (int)sizeof(JOB); /* PAIRED: of the next job, for the second block */
    static constexpr int BYTES = NUMBER + 4;
    /* merge of a cluster, over K and V: partial O with padded rows, then max and sum */
    static constexpr int MERGE_PITCH = DV + 8; /* floats */
    static constexpr int MERGE_MAX = K + ROWS * MERGE_PITCH * 4;
    static constexpr int MERGE_SUM = MERGE_MAX + ROWS * 4;
    static_assert(!CLUSTERS || MERGE_SUM + ROWS * 4 <= BARRIERS, "the merge fits over K and V");
    static_assert(BYTES <= 227 << 10, "shared memory of a block");
};

struct forward_barriers {
    uint32_t base;
    __device__ uint32_t q_full(int s) const { return base + 8 * s; }
    __device__ uint32_t q_empty(int s) const { return base + 16 + 8 * s; }
    __device__ uint32_t job_full(int s) const { return base + 32 + 8 * s; }
    __device__ uint32_t job_empty(int s) const { return base + 48 + 8 * s; }
    __device__ uint32_t k_full(int s) const { return base + 64 + 8 * s; }
    __device__ uint32_t k_empty(int s) const { return base + 88 + 8 * s; }
    __device__ uint32_t v_full(int s) const { return base + 112 + 8 * s; }
    __device__ uint32_t v_empty(int s) const { return base + 136 + 8 * s; }
    __device__ uint32_t number_full() const { return base + 160; }
    __device__ uint32_t number_empty() const { return base + 168; }
};

/* The first row of a group within its job. The two blocks of a pair have a job of twice as many rows; when causal, one has the earlier
 * 64 for its first group and the later for its second, so that both see as much of the diagonal. */
template <int GROUPS, bool PAIRED, bool CAUSAL>
__device__ __forceinline__ int forward_group_row(int group, int rank)
{
    if (!PAIRED)
        return 64 * group;
    return 64 * (CAUSAL ? 2 * group + (group % 2 ? 1 - rank : rank) : GROUPS * rank + group);
}

/* End of the key blocks that the ROWS rows from row on see. WINDOW comes with CAUSAL: the diagonal is then that far to the right. p:
 * forward_params, or what else has the lengths and sides. */
template <int ROWS, int BN, bool CAUSAL, bool WINDOW, class LENGTHS>
__device__ __forceinline__ int forward_blocks(const LENGTHS &p, int row)
{
    const int keys =
        CAUSAL ? min(p.seq_k, max(0, row + ROWS + p.seq_k - p.seq_q + (WINDOW ? p.window_right : 0))) : p.seq_k;
    return (keys + BN - 1) / BN;
}

/* The first of these blocks, in which the window of the first row begins; at most `end`. */
template <int BN, class LENGTHS>
__device__ __forceinline__ int forward_first_block(const LENGTHS &p, int row, int end)
{
    return min(max(0, row + p.seq_k - p.seq_q - p.window_left) / BN, end);
}

/* Jobs are numbered longest first within a section of heads. */
template <int ROWS, int BN, bool CAUSAL, bool WINDOW>
__device__ __forceinline__ forward_job forward_decode(const forward_params &p, int number, int split, int rank)
{
    forward_job job = {};
    job.bh = -1;
    if (number >= p.batch * p.heads * p.tiles)
        return job;
    const int first_head = number / (p.section * p.tiles) * p.section;
    const int section_heads = min(p.section, p.batch * p.heads - first_head);
    const int in_section = number - first_head * p.tiles;
    const int tile_index = in_section / section_heads;
    job.bh = first_head + in_section - tile_index * section_heads;
    job.b = job.bh / p.heads, job.h = job.bh - job.b * p.heads, job.h_kv = job.h / p.group;
    job.row_first = (CAUSAL ? p.tiles - 1 - tile_index : tile_index) * ROWS;
    const int blocks = forward_blocks<ROWS, BN, CAUSAL, WINDOW>(p, job.row_first);
    if (WINDOW) { /* no cluster shares it */
        job.block_begin = forward_first_block<BN>(p, job.row_first, blocks), job.block_end = blocks;
        return job;
    }
    job.block_begin = blocks * rank / split, job.block_end = blocks * (rank + 1) / split;
    return job;
}

/* The lengths of a job's document, and the sides of the window. */
struct document_lengths {
    int seq_q, seq_k, window_left, window_right;
};

/* A packed job. The list has the longest tiles of all documents first; heads are walked in sections as above. tiles: of the list. */
template <int ROWS, int BN>
__device__ __forceinline__ packed_job packed_decode(const forward_params &p, int number, int tiles)
{
    packed_job job = {};
    job.bh = -1;
    if (number >= p.heads * tiles)
        return job;
    const int first_head = number / (p.section * tiles) * p.section;
    const int section_heads = min(p.section, p.heads - first_head);
    const int in_section = number - first_head * tiles;
    const int tile_index = in_section / section_heads;
    job.bh = job.h = first_head + in_section - tile_index * section_heads;
    job.h_kv = job.h / p.group;
    const document_tile tile = p.list->items[tile_index];
    job.q_begin = tile.q_begin, job.seq_q = tile.seq_q, job.k_begin = tile.k_begin, job.seq_k = tile.seq_k;
    job.row_first = tile.first;
    const document_lengths of = {job.seq_q, job.seq_k, p.window_left, p.window_right};
    job.block_end = forward_blocks<ROWS, BN, true, true>(of, job.row_first);
    job.block_begin = forward_first_block<BN>(of, job.row_first, job.block_end);
    return job;
}

/* An instance of the kernel as the host sees it. */
struct forward_instance {
    int columns, columns_v, groups, keys; /* D, DV, GROUPS and BN */
    int panel;                            /* columns in a panel of K and V */
    int bytes;                            /* shared memory */
    bool clusters;                        /* several blocks may share a tile */
    bool paired;                          /* two tiles share K and V */
    void (*full)(forward_params), (*causal)(forward_params);
    int job_rows() const { return 64 * groups * (paired ? 2 : 1); } /* query rows of a job, which a pair has together */
};

/* The instances of a dtype: forward/<dtype>.cu. */
struct forward_list {
    const forward_instance *items;
    int n;
};
extern const forward_list forward_bf16_small, forward_bf16_large, forward_fp16_small, forward_fp16_large, forward_fp32,
    forward_bf16x3;
extern const forward_list forward_bf16_paired, forward_fp16_paired;
extern const forward_list forward_bf16_window, forward_fp16_window;
extern const forward_list forward_bf16_packed, forward_fp16_packed;

} // namespace flash_hopper
