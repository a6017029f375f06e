/* SPDX-License-Identifier: MIT */
/* What the wide backward and the pair backward share: parameters, shared memory, barriers, which steps a block takes, and the
 * first warpgroup, which loads them and keeps the order of additions to dQ. See wide.cuh. */
#pragma once

#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/cuda/hopper/store.cuh"
#include "kernels/cuda/hopper/tile.cuh"
#include "kernels/cuda/primitives/documents.cuh"

namespace flash_hopper
{

using namespace hopper;

constexpr int BACKWARD_KEYS = 128, BACKWARD_THREADS = 384;
constexpr int BACKWARD_STAGES = 2, BACKWARD_ADDS = 4; /* stages of Q, dO and dS; additions that are waited for ahead */

struct backward_params {
    CUtensorMap q_map, k_map, v_map, do_map, lse_map, delta_map;
    void *dk, *dv; /* (B, Hkv, Sk, D) */
    int64_t dk_stride_b, dk_stride_h, dk_stride_s, dv_stride_b, dv_stride_h, dv_stride_s;
    float *dq_sum;   /* (sums, B, H, query blocks, 2 groups or blocks of a pair, fragment order) */
    uint32_t *order; /* (2 for pairs, one a block; sums, B, H, query blocks) how many have added; NULL: any order */
    int sums; /* sums of dQ, to which the first adder of a query block stores; 0: all add to one that starts as zeros */
    /* An adder is a key tile, or a pair of them. Adder t of a head adds to sum t % early_sums if it is one of the first
     * `early`, else to sum (t - early) % (sums - early_sums) of the rest. */
    int early, early_sums;
    int batch, heads, heads_kv, group, seq_q, seq_k, head_dim;
    int key_tiles, query_blocks, section;
    float scale, scale_log2;
    /* scaled_parts: what undoes the scales, (B, H, q_groups) and (B, Hkv, k_groups); see fp32_parts.cuh */
    const float *q_inverse, *k_inverse, *v_inverse, *do_inverse;
    int q_groups, k_groups;
    int window_left, window_right; /* keys before and after its own position that a query sees; WINDOW only */
    /* PACKED only (the pair backward): tensors hold all documents, and query blocks and pairs of key tiles are numbered as
     * primitives/documents.cuh has it; query_blocks is how many numbers there are. */
    const int *cu_seqlens_q, *cu_seqlens_k;
    int documents;
    int head_dim_v; /* only in large.cuh; elsewhere it is head_dim */
};

/* Where a block's document begins: rows of the tensors, and the number of its first query block. Zeros without documents. */
struct backward_begins {
    int q, k, block;
};
/* A document: that, and its length. */
struct backward_document {
    backward_begins begin;
    int seq_q, seq_k;
};

/* A block's work: a key tile against the query blocks query_begin and later of every query head of its group, one head
 * after the other. A cluster shares these steps: each block has a range of them, or in order every split-th of a head.
 * `sum_begin` is the number of query blocks in the sums before its own. `adder`: the tile or pair that it is of its head. It
 * stores its dQ of query blocks before `stores_before`, and adds it to those from there on. `position`: of a late adder, how many
 * others add to its sum before it. `query_end`: WINDOW only, where the query blocks end that it takes. */
struct backward_job {
    int b, h_kv, key_tile, query_begin, first, stride, steps, sum_begin, adder, stores_before, position, query_end;
};

/* One of its steps: the first query, and which query block among those of all sums, or ~ that if the step's dQ is stored
 * there and not added. */
struct alignas(8) backward_step {
    int first_query, place;
};

/* What follows the tiles of a block, from AT on: lse2 and delta of each stage's BM queries, the job, its steps, barriers, and the
 * document if PACKED. */
template <int AT, int BM>
struct backward_tail {
    static constexpr int LSE = AT;
    static constexpr int DELTA = LSE + BACKWARD_STAGES * BM * 4;
    static constexpr int JOB = DELTA + BACKWARD_STAGES * BM * 4;
    static constexpr int STEP = JOB + (int)(sizeof(backward_job) + 7) / 8 * 8;
    static constexpr int BARRIERS = STEP + BACKWARD_STAGES * (int)sizeof(backward_step);
    static constexpr int END = BARRIERS + 3 * (BACKWARD_STAGES + BACKWARD_ADDS) * 8;
    static constexpr int DOCUMENT = END, PACKED_END = DOCUMENT + (int)sizeof(backward_document);
    static_assert(BARRIERS % 8 == 0, "alignment");
};

/* D: columns that products have; tiles in shared memory are padded to DP. */
template <int PARTS, int D, int BM>
struct backward_memory {
    static constexpr int COLUMNS = D, DP = D <= 64 ? 64 : 128;
    using tile_kv = tile<PARTS, BACKWARD_KEYS, DP>;
    using tile_q = tile<PARTS, BM, DP>;
    using tile_v = tile_kv;
    using tile_do = tile_q;
    using tile_ds = tile<PARTS, BM, BACKWARD_KEYS>; /* a panel is one group's 64 keys */
    static constexpr int K = 0;
    static constexpr int V = K + tile_kv::BYTES;
    static constexpr int Q = V + tile_kv::BYTES;
    static constexpr int DO = Q + BACKWARD_STAGES * tile_q::BYTES;
    static constexpr int DS = DO + BACKWARD_STAGES * tile_q::BYTES;
    /* dQ of a group: all queries of a step, and half of d, if both fit; else dQ^T, 64 rows of d, or half of the queries */
    static constexpr bool DQ_BY_D = DP == 128, DQ_ROWS = PARTS == 1 && DQ_BY_D;
    static constexpr int DQ = (DQ_ROWS ? D / 2 : DQ_BY_D ? BM : BM / 2) / 2; /* accumulators of a thread */
    /* K as the second group's dQ needs it: from half of d on, which is a panel of K or a tile of its own */
    static constexpr bool HAS_K2 = DQ_ROWS && D < 128;
    using tile_k2 = tile<1, BACKWARD_KEYS, 64>;
    static constexpr int K2 = HAS_K2 ? DS + BACKWARD_STAGES * tile_ds::BYTES : K + tile_kv::PANEL_BYTES;
    using tail = backward_tail<DS + BACKWARD_STAGES * tile_ds::BYTES + (HAS_K2 ? tile_k2::BYTES : 0), BM>;
    static constexpr int LARGEST = tail::END; /* largest of dS: bits of three steps */
    static constexpr int BYTES = LARGEST + (PARTS == 2 ? 16 : 0);
    static_assert(BYTES <= 227 << 10, "what a block may have");
    /* dQ of each group on its way to the sum: see backward_send */
    static constexpr int STAGE_BYTES = DQ * 128 * 4;
    static constexpr int STAGE = (BYTES + 127) / 128 * 128, STAGE_BARRIERS = STAGE + 2 * STAGE_BYTES;
    static constexpr int STAGED_BYTES = STAGE_BARRIERS + 4 * 8;
    /* merge of a cluster, over all tiles: partial dK and dV with padded rows */
    static constexpr int MERGE_PITCH = DP + 8; /* floats */
    static constexpr int MERGE_DK = 0, MERGE_DV = BACKWARD_KEYS * MERGE_PITCH * 4;
    static_assert(2 * MERGE_DV <= tail::LSE, "the merge fits over the tiles");
};

/* Places in shared memory. Steps are counted from 0; the n-th use of a slot is the n-th phase of its barriers. */
template <class MEM>
struct backward_block {
    uint32_t base;
    unsigned char *smem;

    __device__ volatile backward_job &job() const { return *(volatile backward_job *)(smem + MEM::tail::JOB); }
    /* Comes and goes with Q of the step. */
    __device__ backward_step &step_slot(unsigned step) const
    {
        return ((backward_step *)(smem + MEM::tail::STEP))[slot(step)];
    }
    __device__ uint32_t barrier(int n) const { return base + MEM::tail::BARRIERS + 8 * n; }
    __device__ static unsigned slot(unsigned step) { return step % BACKWARD_STAGES; }
    __device__ static uint32_t parity(unsigned step) { return step / BACKWARD_STAGES % 2; }
    __device__ uint32_t slot_barrier(unsigned step, int kind) const
    {
        return barrier(kind * BACKWARD_STAGES + slot(step));
    }
    __device__ uint32_t q_full(unsigned step) const { return slot_barrier(step, 0); }
    __device__ uint32_t do_full(unsigned step) const { return slot_barrier(step, 1); }
    __device__ uint32_t empty(unsigned step) const { return slot_barrier(step, 2); } /* both Q and dO have been read */
    __device__ uint32_t q_tile(unsigned step) const { return base + MEM::Q + slot(step) * MEM::tile_q::BYTES; }
    __device__ uint32_t do_tile(unsigned step) const { return base + MEM::DO + slot(step) * MEM::tile_do::BYTES; }
    __device__ uint32_t ds_tile(unsigned step) const { return base + MEM::DS + slot(step) * MEM::tile_ds::BYTES; }
    __device__ static int lse(unsigned step) { return MEM::tail::LSE + slot(step) * MEM::tile_q::ROWS * 4; }
    __device__ uint32_t largest(unsigned step) const { return base + MEM::LARGEST + step % 3 * 4; }
    __device__ static int delta(unsigned step) { return MEM::tail::DELTA + slot(step) * MEM::tile_q::ROWS * 4; }
    /* barriers of the order of additions */
    __device__ static uint32_t order_parity(unsigned step) { return step / BACKWARD_ADDS % 2; }
    __device__ uint32_t order_barrier(unsigned step, int kind) const
    {
        return barrier(3 * BACKWARD_STAGES + kind * BACKWARD_ADDS + step % BACKWARD_ADDS);
    }
    __device__ uint32_t may_add(unsigned step) const { return order_barrier(step, 0); }
    __device__ uint32_t added(unsigned step) const { return order_barrier(step, 1); }
    __device__ uint32_t reported(unsigned step) const { return order_barrier(step, 2); }

    /* dQ of a group is in its stage; has left it. The n-th step is the n-th phase of both. */
    __device__ uint32_t stage(int group) const { return base + MEM::STAGE + group * MEM::STAGE_BYTES; }
    __device__ uint32_t stage_full(int group) const { return base + MEM::STAGE_BARRIERS + group * 8; }
    __device__ uint32_t stage_empty(int group) const { return base + MEM::STAGE_BARRIERS + 16 + group * 8; }
    __device__ void init_stage_barriers() const
    {
        for (int group = 0; group < 2; group++) {
            mbarrier_init(stage_full(group), 4);
            mbarrier_init(stage_empty(group), 1);
        }
    }

    /* By one thread; a fence for the barriers and __syncthreads must follow. Eight arrivals: one a consumer warp. `adders`:
     * warps that add a step's dQ. */
    __device__ void init_barriers(int adders) const
    {
        for (int step = 0; step < BACKWARD_STAGES; step++) {
            mbarrier_init(q_full(step), 1);
            mbarrier_init(do_full(step), 1);
            mbarrier_init(empty(step), 8);
        }
        for (int step = 0; step < BACKWARD_ADDS; step++) {
            mbarrier_init(may_add(step), 1);
            mbarrier_init(added(step), adders);
            mbarrier_init(reported(step), 1);
        }
    }
};

/* Key tiles of which some query of a block of BM sees a key; query i sees keys up to i + keys_ahead. */
template <int BM, int KEYS = BACKWARD_KEYS>
__device__ __forceinline__ int tiles_seen(int block, int keys_ahead, int key_tiles)
{
    const int keys = block * BM + BM + keys_ahead;
    return min(max(keys + KEYS - 1, 0) / KEYS, key_tiles);
}

/* TILES: key tiles of a job, one that a cluster shares or one for each block of it; KEYS: of a tile. WINDOW comes with CAUSAL, whose
 * diagonal is then window_right further; a job has at least one query block, in which all may be hidden. */
template <int TILES, int BM, bool CAUSAL, bool WINDOW, int KEYS>
__device__ __forceinline__ void find_job(const backward_params &p, volatile backward_job &job)
{
    const int number = blockIdx.x / cluster_size(), rank = cluster_rank(), split = TILES == 1 ? cluster_size() : 1;
    const int of_head = (p.key_tiles + TILES - 1) / TILES, first_head = number / (p.section * of_head) * p.section;
    const int section_heads = min(p.section, p.batch * p.heads_kv - first_head);
    const int in_section = number - first_head * of_head, nth = in_section / section_heads;
    const int head = first_head + in_section - nth * section_heads;
    const int adder = nth < p.early ? p.early - 1 - nth : nth; /* causal: the first is the longest */
    /* causal: query i sees keys j <= i + Sk - Sq */
    auto begin_of = [&](int adder) {
        return CAUSAL ? min(max(adder * TILES * KEYS - p.seq_k + p.seq_q - (WINDOW ? p.window_right : 0), 0) / BM,
                            p.query_blocks)
                      : 0;
    };
    const int query_begin = begin_of(adder);
    int query_end = p.query_blocks;
    if (WINDOW) {
        const int last_key = min((adder + 1) * TILES * KEYS, p.seq_k) - 1;
        const int seen = max(last_key - p.seq_k + p.seq_q + p.window_left, 0) / BM + 1;
        job.query_end = query_end = min(max(seen, query_begin + 1), p.query_blocks);
    }
    const int blocks = query_end - query_begin, all = blocks * p.group;
    job.b = head / p.heads_kv, job.h_kv = head % p.heads_kv, job.query_begin = query_begin;
    job.adder = adder, job.key_tile = adder * TILES + (TILES == 1 ? 0 : rank);
    int sum = 0, position = 0, stores_before = 0;
    if (p.sums && adder < p.early) { /* the last of a sum that sees a block is its first adder */
        const int behind = adder + p.early_sums;
        sum = adder % p.early_sums;
        stores_before = behind < p.early ? begin_of(behind) : p.query_blocks;
    } else if (p.sums) {
        position = (adder - p.early) / (p.sums - p.early_sums);
        sum = adder - p.early - position * (p.sums - p.early_sums) + p.early_sums;
        stores_before = position == 0 ? p.query_blocks : 0;
    }
    job.sum_begin = sum * p.batch * p.heads * p.query_blocks, job.position = position,
    job.stores_before = stores_before;
    if (TILES > 1)
        job.first = 0, job.stride = 1, job.steps = all;
    else if (p.order)
        job.first = rank, job.stride = split, job.steps = (blocks - rank + split - 1) / split * p.group;
    else
        job.first = all * rank / split, job.stride = 1, job.steps = all * (rank + 1) / split - job.first;
}

/* Finds a job of packed documents, in any order, for a key tile of one or a pair of them; steps is 0 where the number has none. A
 * document without queries has one step, in which all is hidden. */
template <int TILES, int BM, int TILE_KEYS>
__device__ __forceinline__ void find_packed_job(const backward_params &p, volatile backward_job &job,
                                                volatile backward_document &document)
{
    constexpr int KEYS = TILES * TILE_KEYS;
    const int number = blockIdx.x / TILES, rank = TILES == 1 ? 0 : cluster_rank();
    const int of_head = documents::tile_numbers(p.seq_k, p.documents, KEYS);
    const int first_head = number / (p.section * of_head) * p.section;
    const int section_heads = min(p.section, p.heads_kv - first_head);
    const int in_section = number - first_head * of_head, nth = in_section / section_heads;
    const int i = documents::find(p.cu_seqlens_k, p.documents, KEYS, nth);
    const int q = p.cu_seqlens_q[i], k = p.cu_seqlens_k[i];
    const int seq_q = p.cu_seqlens_q[i + 1] - q, seq_k = p.cu_seqlens_k[i + 1] - k;
    document.begin.q = q, document.begin.k = k, document.begin.block = q / BM + i;
    document.seq_q = seq_q, document.seq_k = seq_k;
    const int adder = nth - k / KEYS - i, query_blocks = max((seq_q + BM - 1) / BM, 1);
    const int query_begin = min(max(adder * KEYS - seq_k + seq_q - p.window_right, 0) / BM, query_blocks - 1);
    const int last_key = min((adder + 1) * KEYS, seq_k) - 1;
    const int seen = max(last_key - seq_k + seq_q + p.window_left, 0) / BM + 1;
    job.b = 0, job.h_kv = first_head + in_section - nth * section_heads, job.key_tile = TILES * adder + rank;
    job.query_begin = query_begin, job.query_end = min(max(seen, query_begin + 1), query_blocks);
    job.adder = adder, job.sum_begin = document.begin.block, job.stores_before = 0, job.position = 0;
    job.first = 0, job.stride = 1;
    job.steps = adder * KEYS < seq_k ? (job.query_end - query_begin) * p.group : 0;
}

/* The first query block of which some query sees `key`, when causal. */
template <int BM, bool WINDOW = false>
__device__ __forceinline__ int first_to_see(const backward_params &p, int key)
{
    return max(key - p.seq_k + p.seq_q - (WINDOW ? p.window_right : 0), 0) / BM;
}
/* The last one, in a window; negative: none. */
template <int BM>
__device__ __forceinline__ int last_to_see(const backward_params &p, int key)
{
    const int query = key - p.seq_k + p.seq_q + p.window_left;
    return query < 0 ? -1 : query / BM;
}

/* The first adder of a query block, in a window: the tile, or pair of them, in which that of its first query begins. */
template <int TILES, int BM>
__device__ __forceinline__ int first_adder(const backward_params &p, int block)
{
    return max(block * BM + p.seq_k - p.seq_q - p.window_left, 0) / (TILES * BACKWARD_KEYS);
}

/* Where a job's step is: query head among all, and query block counted in the order of walking: from the diagonal on, but
 * late adders in order from the last query back. TILES: see find_job. */
template <int TILES, int BM, bool WINDOW = false, int KEYS = BACKWARD_KEYS>
struct backward_walk {
    int head, u;
    __device__ __forceinline__ static int end(const backward_params &p, const volatile backward_job &job)
    {
        if (WINDOW)
            return job.query_end;
        return p.query_blocks; /* not in one expression: that would read both as volatile */
    }
    __device__ __forceinline__ void begin(const backward_params &p, const volatile backward_job &job)
    {
        const int of_head = end(p, job) - job.query_begin, g = job.first / max(of_head, 1);
        head = job.b * p.heads + job.h_kv * p.group + g, u = job.query_begin + job.first - g * of_head;
    }
    __device__ __forceinline__ void next(const backward_params &p, const volatile backward_job &job)
    {
        u += job.stride;
        if (u >= end(p, job))
            u = job.query_begin + (p.order ? job.first : 0), head++;
    }
    __device__ __forceinline__ int block(const backward_params &p, const volatile backward_job &job) const
    {
        if (WINDOW)
            return p.order ? job.query_begin + job.query_end - 1 - u : u;
        return p.order && job.adder >= p.early ? job.query_begin + p.query_blocks - 1 - u : u;
    }
    __device__ __forceinline__ int place(const backward_params &p, const volatile backward_job &job) const
    {
        return job.sum_begin + head * p.query_blocks + block(p, job);
    }
    /* How many adders must have added to the sum before this one may: if it is early, those after it that see the block. Less than
     * 0, in a window, for a job whose only step adds nothing. */
    __device__ __forceinline__ int position(const backward_params &p, const volatile backward_job &job) const
    {
        if (WINDOW)
            return job.adder - first_adder<TILES, BM>(p, block(p, job));
        if (job.adder >= p.early)
            return job.position;
        const int seen = (tiles_seen<BM, KEYS>(u, p.seq_k - p.seq_q, p.key_tiles) + TILES - 1) / TILES;
        return (min(seen, p.early) - 1 - job.adder) / p.early_sums;
    }
};

/* ---- the first warpgroup: loads, and the order of additions ---- */

/* One thread, at the start: barriers, and what the block does. TILES: see find_job; in a pair only one group adds a step. DO_AHEAD:
 * see backward_load. */
template <int TILES, class MEM, bool CAUSAL, bool WINDOW = false, bool DO_AHEAD = false>
__device__ __forceinline__ void backward_begin(const backward_params &p, backward_block<MEM> block,
                                               volatile backward_document *document = nullptr)
{
    tma_prefetch(&p.k_map);
    tma_prefetch(&p.q_map);
    tma_prefetch(&p.v_map);
    tma_prefetch(&p.do_map);
    block.init_barriers(TILES == 1 || DO_AHEAD ? 8 : 4);
    mbarrier_init_fence();
    if (document)
        find_packed_job<TILES, MEM::tile_q::ROWS, MEM::tile_kv::ROWS>(p, block.job(), *document);
    else
        find_job<TILES, MEM::tile_q::ROWS, CAUSAL, WINDOW, MEM::tile_kv::ROWS>(p, block.job());
}

/* What else the first step needs: K from half of d on, for the second group's dQ. */
template <class MEM>
struct backward_second_k {
    static constexpr int BYTES = MEM::HAS_K2 ? MEM::tile_k2::BYTES : 0;
    __device__ __forceinline__ void operator()(const backward_params &p, backward_block<MEM> block, uint32_t bar) const
    {
        const volatile backward_job &job = block.job();
        if (MEM::HAS_K2)
            tma_load_4d(block.base + MEM::K2, &p.k_map, bar, MEM::COLUMNS / 2, job.key_tile * BACKWARD_KEYS, job.h_kv,
                        job.b);
    }
};

/* One thread: Q, dO, lse2 and delta of each step; K comes with the first Q, V and what `more` loads with the first dO. Q, K, V
 * and dO are older than the kernel ahead, which waited for them before this one could start. DO_AHEAD: the slot of dO is given
 * back, by the barrier of additions, as soon as dV has been computed; in pairs and in any order only. */
template <int TILES, bool WINDOW = false, bool DO_AHEAD = false, class MEM, class MORE>
__device__ __forceinline__ void backward_load(const backward_params &p, backward_block<MEM> block, MORE more,
                                              backward_begins begin = {})
{
    using tile_kv = typename MEM::tile_kv;
    using tile_q = typename MEM::tile_q;
    using tile_v = typename MEM::tile_v;
    using tile_do = typename MEM::tile_do;
    constexpr int BM = tile_q::ROWS, NUMBERS = BM * 4;
    const volatile backward_job &job = block.job();
    const int steps = job.steps;
    backward_walk<TILES, BM, WINDOW> walk;
    walk.begin(p, job);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const int at = walk.block(p, job), row = at * BM, h = walk.head - job.b * p.heads, place = walk.place(p, job);
        if constexpr (DO_AHEAD) {
            if (step >= BACKWARD_STAGES) {
                const unsigned before = step - BACKWARD_STAGES; /* the slots' last step */
                mbarrier_wait(block.added(before), block.order_parity(before));
                mbarrier_expect(block.do_full(step), tile_do::BYTES + NUMBERS);
                load_tile<tile_do>(block.do_tile(step), &p.do_map, block.do_full(step), begin.q + row, h, job.b,
                                   p.batch);
                tma_load_2d(block.base + block.delta(step), &p.delta_map, block.do_full(step), begin.block * BM + row,
                            walk.head);
                mbarrier_wait(block.empty(step), block.parity(step) ^ 1);
                mbarrier_expect(block.q_full(step), tile_q::BYTES + NUMBERS);
                load_tile<tile_q>(block.q_tile(step), &p.q_map, block.q_full(step), begin.q + row, h, job.b, p.batch);
                tma_load_2d(block.base + block.lse(step), &p.lse_map, block.q_full(step), begin.block * BM + row,
                            walk.head);
                walk.next(p, job);
                continue;
            }
        }
        mbarrier_wait(block.empty(step), block.parity(step) ^ 1);
        if (TILES == 1) /* pairs count for themselves */
            block.step_slot(step) = {row, at < job.stores_before ? ~place : place};
        mbarrier_expect(block.q_full(step), tile_q::BYTES + NUMBERS + (step == 0 ? tile_kv::BYTES : 0));
        if (step == 0)
            load_tile<tile_kv>(block.base + MEM::K, &p.k_map, block.q_full(0), begin.k + job.key_tile * tile_kv::ROWS,
                               job.h_kv, job.b, p.batch);
        load_tile<tile_q>(block.q_tile(step), &p.q_map, block.q_full(step), begin.q + row, h, job.b, p.batch);
        wait_for_previous_kernel(); /* lse2, delta */
        tma_load_2d(block.base + block.lse(step), &p.lse_map, block.q_full(step), begin.block * BM + row, walk.head);
        mbarrier_expect(block.do_full(step), tile_do::BYTES + NUMBERS + (step == 0 ? tile_v::BYTES + MORE::BYTES : 0));
        if (step == 0)
            load_tile<tile_v>(block.base + MEM::V, &p.v_map, block.do_full(0), begin.k + job.key_tile * tile_v::ROWS,
                              job.h_kv, job.b, p.batch);
        load_tile<tile_do>(block.do_tile(step), &p.do_map, block.do_full(step), begin.q + row, h, job.b, p.batch);
        tma_load_2d(block.base + block.delta(step), &p.delta_map, block.do_full(step), begin.block * BM + row,
                    walk.head);
        if (step == 0)
            more(p, block, block.do_full(0));
        walk.next(p, job);
    }
}

/* The document that the first thread has left there. */
__device__ __forceinline__ backward_document backward_document_of(const unsigned char *smem)
{
    const volatile backward_document &of = *(const volatile backward_document *)smem;
    return {{uniform(of.begin.q), uniform(of.begin.k), uniform(of.begin.block)}, uniform(of.seq_q), uniform(of.seq_k)};
}

/* What a block works on: the whole problem, or a document, whose tensor maps are not used. */
template <class T, bool PACKED>
__device__ __forceinline__ decltype(auto) backward_problem(const backward_params &whole,
                                                           const backward_document &document)
{
    if constexpr (PACKED) {
        backward_params one = whole;
        one.seq_q = document.seq_q, one.seq_k = document.seq_k;
        one.dk = (T *)whole.dk + document.begin.k * whole.dk_stride_s;
        one.dv = (T *)whole.dv + document.begin.k * whole.dv_stride_s;
        return one;
    } else {
        return (whole);
    }
}

/* ---- a consumer warpgroup's additions ---- */

/* Until this step's dQ may be added, if there is an order. */
template <class MEM>
__device__ __forceinline__ void backward_may_add(const backward_params &p, backward_block<MEM> block, int step)
{
    if (p.order)
        mbarrier_wait(block.may_add(step), block.order_parity(step));
}
/* This warp has added it. */
template <class MEM>
__device__ __forceinline__ void backward_has_added(const backward_params &p, backward_block<MEM> block, int step)
{
    if (p.order)
        mbarrier_arrive_by_warp(block.added(step));
}
/* Where a thread's part of a group's dQ is in the sum at `place`, from its fragment `first` on. */
template <class MEM>
__device__ __forceinline__ float *backward_sum_at(const backward_params &p, int place, int group, int first, int warp)
{
    return p.dq_sum + ((int64_t)place * 2 + group) * (MEM::DQ * 128) + first * 512 + (warp * 32 + lane_asked()) * 4;
}
template <int N>
__device__ __forceinline__ void backward_add_to(float *sum, const float (&dq)[N])
{
#pragma unroll
    for (int j = 0; j < N / 4; j++)
        add_global4(sum + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
}
/* Added, or stored if place is ~place. */
template <class MEM, int N>
__device__ __forceinline__ void backward_add(const backward_params &p, const float (&dq)[N], int place, int group,
                                             int first, int warp)
{
    float *const sum = backward_sum_at<MEM>(p, place < 0 ? ~place : place, group, first, warp);
    if (place < 0) { /* the first to come */
#pragma unroll
        for (int j = 0; j < N / 4; j++)
            *(float4 *)(sum + j * 512) = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    } else {
        backward_add_to(sum, dq);
    }
}

/* ---- the first warpgroup again ---- */

/* Adds `bytes` of shared memory, floats, to as many in global memory, in this thread's next bulk group; order of adders free.
 * Both addresses are multiples of 16. */
__device__ __forceinline__ void add_global_bulk(float *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}
/* One thread: adds each step's dQ of a group to the sum, from its stage. So no thread that computes is held up until its own
 * additions are on the way, not even by the fence before dS is read. (As in FlashAttention-4.) */
template <class MEM>
__device__ __forceinline__ void backward_send(const backward_params &p, backward_block<MEM> block, int group)
{
    const volatile backward_job &job = block.job();
    const int steps = job.steps;
    backward_walk<1, MEM::tile_q::ROWS> walk;
    walk.begin(p, job);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        float *const sum = p.dq_sum + ((int64_t)walk.place(p, job) * 2 + group) * (MEM::DQ * 128);
        mbarrier_wait(block.stage_full(group), step % 2);
        add_global_bulk(sum, block.stage(group), MEM::STAGE_BYTES);
        tma_store_commit();
        tma_store_wait_read(); /* after the last one, too: shared memory must outlive it */
        mbarrier_arrive(block.stage_empty(group));
        walk.next(p, job);
    }
}

/* ---- the order of additions: waiting and passing on take as long as a step, so each has a thread of its own. `order`: of the
 * first query block of the first sum ---- */

/* Tells the key groups when each of their steps may add, at most BACKWARD_ADDS steps ahead of what has been passed on. */
template <int TILES, bool WINDOW = false, class MEM>
__device__ __forceinline__ void backward_await(const backward_params &p, backward_block<MEM> block,
                                               const uint32_t *order)
{
    const volatile backward_job &job = block.job();
    const int steps = job.steps;
    backward_walk<TILES, MEM::tile_q::ROWS, WINDOW, MEM::tile_kv::ROWS> walk;
    walk.begin(p, job);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const uint32_t *const now = order + walk.place(p, job), mine = walk.position(p, job);
        mbarrier_wait(block.reported(step), block.order_parity(step) ^ 1);
        while ((!WINDOW || (int)mine > 0) && load_acquire(now) != mine)
            __nanosleep(20);
        mbarrier_arrive(block.may_add(step));
        walk.next(p, job);
    }
}

/* Passes on that a step has added, once that is visible to the next adder: one of REPORTERS threads, of every
 * REPORTERS-th step from `first` on. */
template <int TILES, int REPORTERS, bool WINDOW = false, class MEM>
__device__ __forceinline__ void backward_pass_on(const backward_params &p, backward_block<MEM> block, uint32_t *order,
                                                 int first)
{
    const volatile backward_job &job = block.job();
    const int steps = job.steps;
    backward_walk<TILES, MEM::tile_q::ROWS, WINDOW, MEM::tile_kv::ROWS> walk;
    walk.begin(p, job);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        if (step % REPORTERS == first) {
            mbarrier_wait(block.added(step), block.order_parity(step));
            if (!WINDOW || walk.position(p, job) >= 0)
                store_release(order + walk.place(p, job), walk.position(p, job) + 1);
            mbarrier_arrive(block.reported(step));
        }
        walk.next(p, job);
    }
}

} // namespace flash_hopper

/* The main kernel of pair.cuh, with the wide kernel's parameters. */
sb_status flash_backward_pair_launch(const flash_hopper::backward_params &p, const sb_attention *a,
                                     cudaStream_t stream);
