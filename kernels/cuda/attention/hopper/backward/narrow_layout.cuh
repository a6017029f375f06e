/* SPDX-License-Identifier: MIT */
/* The narrow backward's parameters, shared memory and jobs; see narrow.cuh. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_NARROW_LAYOUT_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_NARROW_LAYOUT_CUH

#include "kernels/cuda/hopper/warp.cuh"
#include "kernels/cuda/hopper/tile.cuh"
#include "kernels/cuda/hopper/store.cuh"

namespace flash_sm90
{

constexpr int NARROW_ROWS = 64, NARROW_KEYS = 128, NARROW_THREADS = 512;
constexpr int NARROW_STAGES = 4; /* of Q, dO and dS */

struct narrow_params {
    CUtensorMap q_map, k_map, v_map, do_map, lse_map, delta_map;
    CUtensorMap dk_map, dv_map, dq_map; /* boxes of 16 keys, of 64 queries */
    float *dq_sum;                      /* (B, H, block_stride, 64 x 64 in fragment order) */
    uint32_t *turn;                     /* (B, H, block_stride) how many key tiles have added; NULL: any order */
    unsigned *next_job;                 /* jobs given out, without the first of each block when in any order */
    int batch, heads, heads_kv, group, seq_q, seq_k;
    int key_tiles, query_blocks, block_stride, jobs;
    int section, sections; /* heads walked together, and how many times; the last time takes the remainder, too */
    float scale, scale_log2;
};

/* One key tile against the query blocks query_begin and later of every query head of its group. */
struct narrow_job {
    int b, h_kv, key_first, query_begin; /* b < 0: there are no more jobs */
};
/* What the query group has added, in turns. */
struct narrow_report {
    int64_t place; /* whose turn it was; < 0: nobody waits for it */
    int next;      /* whose turn it is now; < 0: that was all */
};

struct narrow_memory {
    using tile_kv = tile<1, NARROW_KEYS, 64>;
    using tile_q = tile<1, NARROW_ROWS, 64>;
    using tile_ds = tile<1, NARROW_ROWS, NARROW_KEYS>; /* a panel is one group's 64 keys */
    static constexpr int K = 0;
    static constexpr int V = K + 2 * tile_kv::BYTES;
    static constexpr int Q = V + 2 * tile_kv::BYTES;
    static constexpr int DO = Q + NARROW_STAGES * tile_q::BYTES;
    static constexpr int DS = DO + NARROW_STAGES * tile_q::BYTES;
    static constexpr int OUT = DS + NARROW_STAGES * tile_ds::BYTES; /* dK and dV: 16 keys a warp */
    static constexpr int LSE = OUT + 2 * tile_kv::BYTES;
    static constexpr int DELTA = LSE + NARROW_STAGES * NARROW_ROWS * 4;
    static constexpr int JOBS = DELTA + NARROW_STAGES * NARROW_ROWS * 4;
    static constexpr int REPORTS = JOBS + 2 * (int)sizeof(narrow_job);
    static constexpr int KV_BARRIERS = REPORTS + NARROW_STAGES * (int)sizeof(narrow_report);
    static constexpr int STEP_BARRIERS = KV_BARRIERS + 2 * 2 * 8;
    static constexpr int BYTES = STEP_BARRIERS + 9 * NARROW_STAGES * 8;
};
static_assert(narrow_memory::BYTES <= 227 << 10, "what a block may have");

/* Where a block's jobs and steps have their slots and barriers. Both are counted over the life of the block: the n-th use
 * of a slot is the n-th phase of its barriers. */
struct narrow_block {
    using mem = narrow_memory;
    uint32_t base;
    unsigned char *smem;

    __device__ static uint32_t job_parity(unsigned job) { return job / 2 % 2; }
    __device__ uint32_t kv_full(unsigned job) const { return base + mem::KV_BARRIERS + job % 2 * 8; }
    __device__ uint32_t kv_empty(unsigned job) const { return kv_full(job) + 16; }
    __device__ uint32_t k_tile(unsigned job) const { return base + mem::K + job % 2 * mem::tile_kv::BYTES; }
    __device__ uint32_t v_tile(unsigned job) const { return k_tile(job) + mem::V - mem::K; }
    __device__ volatile narrow_job *job_slot(unsigned job) const
    {
        return (volatile narrow_job *)(smem + mem::JOBS) + job % 2;
    }

    __device__ static unsigned slot(unsigned step) { return step % NARROW_STAGES; }
    __device__ static uint32_t step_parity(unsigned step) { return step / NARROW_STAGES % 2; }
    __device__ uint32_t barrier(unsigned step, int kind) const
    {
        return base + mem::STEP_BARRIERS + (kind * NARROW_STAGES + slot(step)) * 8;
    }
    __device__ uint32_t q_full(unsigned step) const { return barrier(step, 0); }
    __device__ uint32_t q_empty(unsigned step) const { return barrier(step, 1); }
    __device__ uint32_t do_full(unsigned step) const { return barrier(step, 2); }
    __device__ uint32_t do_empty(unsigned step) const { return barrier(step, 3); }
    __device__ uint32_t ds_full(unsigned step) const { return barrier(step, 4); }
    __device__ uint32_t ds_empty(unsigned step) const { return barrier(step, 5); }
    __device__ uint32_t turn_here(unsigned step) const { return barrier(step, 6); }
    __device__ uint32_t added(unsigned step) const { return barrier(step, 7); }
    __device__ uint32_t reported(unsigned step) const { return barrier(step, 8); }
    __device__ uint32_t q_tile(unsigned step) const { return base + mem::Q + slot(step) * mem::tile_q::BYTES; }
    __device__ uint32_t do_tile(unsigned step) const { return base + mem::DO + slot(step) * mem::tile_q::BYTES; }
    __device__ uint32_t ds_tile(unsigned step) const { return base + mem::DS + slot(step) * mem::tile_ds::BYTES; }
    __device__ int lse(unsigned step) const { return mem::LSE + slot(step) * NARROW_ROWS * 4; }
    __device__ int delta(unsigned step) const { return mem::DELTA + slot(step) * NARROW_ROWS * 4; }
    __device__ volatile narrow_report *report(unsigned step) const
    {
        return (volatile narrow_report *)(smem + mem::REPORTS) + slot(step);
    }

    /* By one thread; a fence for the barriers and __syncthreads must follow. */
    __device__ void init_barriers() const
    {
        for (int job = 0; job < 2; job++) {
            mbarrier_init(kv_full(job), 1);
            mbarrier_init(kv_empty(job), 12); /* one arrival a warp of the three groups that compute */
        }
        for (int step = 0; step < NARROW_STAGES; step++) {
            mbarrier_init(q_full(step), 1);
            mbarrier_init(do_full(step), 1);
            mbarrier_init(q_empty(step), 8);
            mbarrier_init(do_empty(step), 8);
            mbarrier_init(ds_full(step), 8);
            mbarrier_init(ds_empty(step), 4);
            mbarrier_init(turn_here(step), 1);
            mbarrier_init(added(step), 4);
            mbarrier_init(reported(step), 1);
        }
    }
};

} // namespace flash_sm90
#endif
