/* SPDX-License-Identifier: MIT */
/* The wide backward's parameters, shared memory, barriers and steps; see wide.cuh. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_LAYOUT_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_WIDE_LAYOUT_CUH

#include "kernels/cuda/hopper/warp.cuh"
#include "kernels/cuda/hopper/tile.cuh"

namespace flash_sm90
{

constexpr int BACKWARD_KEYS = 128, BACKWARD_THREADS = 384;
constexpr int BACKWARD_STAGES = 2, BACKWARD_TURNS = 4; /* of Q, dO and dS; of turns asked for */

struct backward_params {
    CUtensorMap q_map, k_map, v_map, do_map, lse_map, delta_map;
    void *dk, *dv; /* (B, Hkv, Sk, D) */
    int64_t dk_stride_b, dk_stride_h, dk_stride_s, dv_stride_b, dv_stride_h, dv_stride_s;
    float *dq_sum;  /* (sums, B, H, query blocks, 2 groups or blocks of a pair, fragment order) */
    uint32_t *turn; /* (2 for pairs, one a block; sums, B, H, query blocks) how many have added; NULL: any order */
    int sums; /* of dQ, to which the first adder of a query block stores; 0: all add to one that starts as zeros */
    /* An adder is a key tile, or a pair of them. Adder t of a head adds to sum t % early_sums if it is one of the first
     * `early`, else to sum (t - early) % (sums - early_sums) of the rest. */
    int early, early_sums;
    int batch, heads, heads_kv, group, seq_q, seq_k, head_dim;
    int key_tiles, query_blocks, section;
    float scale, scale_log2;
};

/* A block's work: a key tile against the query blocks query_begin and later of every query head of its group, one head
 * after the other. A cluster shares these steps: each block has a range of them, or in turns every split-th of a head.
 * `sum_begin` is the number of query blocks in the sums before its own. `adder`: the tile or pair that it is of its head. It
 * stores its dQ of query blocks before `stores_before`, and adds it to those from there on. `turn`: of a late adder, how many
 * others add to its sum before it. */
struct backward_job {
    int b, h_kv, key_tile, query_begin, first, stride, steps, sum_begin, adder, stores_before, turn;
};

/* One of its steps: the first query, and which query block among those of all sums, or ~ that if the step's dQ is stored
 * there and not added. */
struct alignas(8) backward_step {
    int first_query, place;
};

/* D: columns that products have; tiles in shared memory are padded to DP. */
template <int PLANES, int D, int BM>
struct backward_memory {
    static constexpr int COLUMNS = D, DP = D <= 64 ? 64 : 128;
    using tile_kv = tile<PLANES, BACKWARD_KEYS, DP>;
    using tile_q = tile<PLANES, BM, DP>;
    using tile_ds = tile<PLANES, BM, BACKWARD_KEYS>; /* a panel is one group's 64 keys */
    static constexpr int K = 0;
    static constexpr int V = K + tile_kv::BYTES;
    static constexpr int Q = V + tile_kv::BYTES;
    static constexpr int DO = Q + BACKWARD_STAGES * tile_q::BYTES;
    static constexpr int DS = DO + BACKWARD_STAGES * tile_q::BYTES;
    /* dQ of a group: all queries of a step, and half of d, if both fit; else dQ^T, 64 rows of d, or half of the queries */
    static constexpr bool DQ_BY_D = DP == 128, DQ_ROWS = PLANES == 1 && DQ_BY_D;
    static constexpr int DQ = (DQ_ROWS ? D / 2 : DQ_BY_D ? BM : BM / 2) / 2; /* accumulators of a thread */
    /* K as the second group's dQ needs it: from half of d on, which is a panel of K or a tile of its own */
    static constexpr bool HAS_K2 = DQ_ROWS && D < 128;
    using tile_k2 = tile<1, BACKWARD_KEYS, 64>;
    static constexpr int K2 = HAS_K2 ? DS + BACKWARD_STAGES * tile_ds::BYTES : K + tile_kv::PANEL_BYTES;
    static constexpr int LSE = DS + BACKWARD_STAGES * tile_ds::BYTES + (HAS_K2 ? tile_k2::BYTES : 0);
    static constexpr int DELTA = LSE + BACKWARD_STAGES * BM * 4;
    static constexpr int JOB = DELTA + BACKWARD_STAGES * BM * 4;
    static constexpr int STEP = JOB + (int)(sizeof(backward_job) + 7) / 8 * 8;
    static constexpr int BARRIERS = STEP + BACKWARD_STAGES * (int)sizeof(backward_step);
    static constexpr int BYTES = BARRIERS + 3 * (BACKWARD_STAGES + BACKWARD_TURNS) * 8;
    static_assert(BARRIERS % 8 == 0 && BYTES <= 227 << 10, "alignment, and what a block may have");
    /* merge of a cluster, over all tiles: partial dK and dV with padded rows */
    static constexpr int MERGE_PITCH = DP + 8; /* floats */
    static constexpr int MERGE_DK = 0, MERGE_DV = BACKWARD_KEYS * MERGE_PITCH * 4;
    static_assert(2 * MERGE_DV <= LSE, "the merge fits over the tiles");
};

/* Where things lie. Steps are counted from 0; the n-th use of a slot is the n-th phase of its barriers. */
template <class MEM>
struct backward_block {
    uint32_t base;
    unsigned char *smem;

    __device__ volatile backward_job &job() const { return *(volatile backward_job *)(smem + MEM::JOB); }
    /* Comes and goes with Q of the step. */
    __device__ backward_step &step_slot(unsigned step) const
    {
        return ((backward_step *)(smem + MEM::STEP))[slot(step)];
    }
    __device__ uint32_t barrier(int n) const { return base + MEM::BARRIERS + 8 * n; }
    __device__ static unsigned slot(unsigned step) { return step % BACKWARD_STAGES; }
    __device__ static uint32_t parity(unsigned step) { return step / BACKWARD_STAGES % 2; }
    __device__ uint32_t slot_barrier(unsigned step, int kind) const
    {
        return barrier(kind * BACKWARD_STAGES + slot(step));
    }
    __device__ uint32_t q_full(unsigned step) const { return slot_barrier(step, 0); }
    __device__ uint32_t do_full(unsigned step) const { return slot_barrier(step, 1); }
    __device__ uint32_t empty(unsigned step) const { return slot_barrier(step, 2); } /* of both */
    __device__ uint32_t q_tile(unsigned step) const { return base + MEM::Q + slot(step) * MEM::tile_q::BYTES; }
    __device__ uint32_t do_tile(unsigned step) const { return base + MEM::DO + slot(step) * MEM::tile_q::BYTES; }
    __device__ uint32_t ds_tile(unsigned step) const { return base + MEM::DS + slot(step) * MEM::tile_ds::BYTES; }
    __device__ static int lse(unsigned step) { return MEM::LSE + slot(step) * MEM::tile_q::ROWS * 4; }
    __device__ static int delta(unsigned step) { return MEM::DELTA + slot(step) * MEM::tile_q::ROWS * 4; }
    /* of turns */
    __device__ static uint32_t turn_parity(unsigned step) { return step / BACKWARD_TURNS % 2; }
    __device__ uint32_t turn_barrier(unsigned step, int kind) const
    {
        return barrier(3 * BACKWARD_STAGES + kind * BACKWARD_TURNS + step % BACKWARD_TURNS);
    }
    __device__ uint32_t turn_here(unsigned step) const { return turn_barrier(step, 0); }
    __device__ uint32_t added(unsigned step) const { return turn_barrier(step, 1); }
    __device__ uint32_t reported(unsigned step) const { return turn_barrier(step, 2); }

    /* By one thread; a fence for the barriers and __syncthreads must follow. Eight arrivals: one a consumer warp. `adders`:
     * warps that add a step's dQ. */
    __device__ void init_barriers(int adders) const
    {
        for (int step = 0; step < BACKWARD_STAGES; step++) {
            mbarrier_init(q_full(step), 1);
            mbarrier_init(do_full(step), 1);
            mbarrier_init(empty(step), 8);
        }
        for (int step = 0; step < BACKWARD_TURNS; step++) {
            mbarrier_init(turn_here(step), 1);
            mbarrier_init(added(step), adders);
            mbarrier_init(reported(step), 1);
        }
    }
};

/* Key tiles of which some query of a block of BM sees a key; query i sees keys up to i + keys_ahead. */
template <int BM>
__device__ __forceinline__ int tiles_seen(int block, int keys_ahead, int key_tiles)
{
    const int keys = block * BM + BM + keys_ahead;
    return min(max(keys + BACKWARD_KEYS - 1, 0) / BACKWARD_KEYS, key_tiles);
}

/* TILES: key tiles of a job, one that a cluster shares or one for each block of it. */
template <int TILES, int BM, bool CAUSAL>
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
        return CAUSAL ? min(max(adder * TILES * BACKWARD_KEYS - p.seq_k + p.seq_q, 0) / BM, p.query_blocks) : 0;
    };
    const int query_begin = begin_of(adder), blocks = p.query_blocks - query_begin, all = blocks * p.group;
    job.b = head / p.heads_kv, job.h_kv = head % p.heads_kv, job.query_begin = query_begin;
    job.adder = adder, job.key_tile = adder * TILES + (TILES == 1 ? 0 : rank);
    int sum = 0, turn = 0, stores_before = 0;
    if (p.sums && adder < p.early) { /* the last of a sum that sees a block is its first adder */
        const int behind = adder + p.early_sums;
        sum = adder % p.early_sums;
        stores_before = behind < p.early ? begin_of(behind) : p.query_blocks;
    } else if (p.sums) {
        turn = (adder - p.early) / (p.sums - p.early_sums);
        sum = adder - p.early - turn * (p.sums - p.early_sums) + p.early_sums;
        stores_before = turn == 0 ? p.query_blocks : 0;
    }
    job.sum_begin = sum * p.batch * p.heads * p.query_blocks, job.turn = turn, job.stores_before = stores_before;
    if (TILES > 1)
        job.first = 0, job.stride = 1, job.steps = all;
    else if (p.turn)
        job.first = rank, job.stride = split, job.steps = (blocks - rank + split - 1) / split * p.group;
    else
        job.first = all * rank / split, job.stride = 1, job.steps = all * (rank + 1) / split - job.first;
}

/* Where a job's step is: query head among all, and query block counted in the order of walking: from the diagonal on, but
 * late adders in turns from the last query back. TILES: see find_job. */
template <int TILES, int BM>
struct backward_walk {
    int head, u;
    __device__ __forceinline__ void begin(const backward_params &p, const volatile backward_job &job)
    {
        const int of_head = p.query_blocks - job.query_begin, g = job.first / max(of_head, 1);
        head = job.b * p.heads + job.h_kv * p.group + g, u = job.query_begin + job.first - g * of_head;
    }
    __device__ __forceinline__ void next(const backward_params &p, const volatile backward_job &job)
    {
        u += job.stride;
        if (u >= p.query_blocks)
            u = job.query_begin + (p.turn ? job.first : 0), head++;
    }
    __device__ __forceinline__ int block(const backward_params &p, const volatile backward_job &job) const
    {
        return p.turn && job.adder >= p.early ? job.query_begin + p.query_blocks - 1 - u : u;
    }
    __device__ __forceinline__ int place(const backward_params &p, const volatile backward_job &job) const
    {
        return job.sum_begin + head * p.query_blocks + block(p, job);
    }
    /* How many have added to the sum there when its turn comes: of early adders those behind it that see the block. */
    __device__ __forceinline__ int turn(const backward_params &p, const volatile backward_job &job) const
    {
        if (job.adder >= p.early)
            return job.turn;
        const int seen = (tiles_seen<BM>(u, p.seq_k - p.seq_q, p.key_tiles) + TILES - 1) / TILES;
        return (min(seen, p.early) - 1 - job.adder) / p.early_sums;
    }
};

} // namespace flash_sm90
#endif
