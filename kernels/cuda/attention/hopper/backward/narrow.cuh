/* SPDX-License-Identifier: MIT */
/* FlashAttention backward for Hopper at head_dim <= 64, 16-bit: the main kernel. Launched by narrow.cu; notation of wide.cuh.
 * Blocks stay on their SM and take jobs: 128 keys of a key/value head against every query of its group, 64 queries a step, from
 * the last query back to the diagonal. Four warpgroups meet only at mbarriers: one loads, two have 64 keys each (S^T, dP^T, P,
 * dS, dV and dK in registers, dS^T to shared memory), one computes dQ^T = K^T dS^T and adds it to an fp32 sum. So exponentials
 * run under the other group's products, and additions delay no other group. V is an operand in registers.
 * Adders of a query block come in any order or, to be deterministic, in the order of the key tiles; then the first stores
 * and the last writes dQ itself, so there are no passes before and after. Jobs are given out in that order, so none waits for one
 * that no block has taken.
 * Packed documents (PACKED): a job belongs to one document, whose lengths and first rows come with it. Rows leave by ordinary
 * stores, since a box at the end of a document holds rows of the next.
 * A step on an SM: products 5 x 64 x 128 x 64 at 4096 FLOP a clock = 1280 clocks; shared memory 160 KB = 1280. */
#pragma once

#include "kernels/cuda/attention/hopper/backward/pointwise.cuh"
#include "kernels/cuda/hopper/store.cuh"
#include "kernels/cuda/primitives/documents.cuh"
#include "kernels/kernels.h"

namespace flash_hopper
{

using namespace hopper;

/* ---- parameters, jobs, shared memory, barriers ---- */

constexpr int NARROW_ROWS = 64, NARROW_KEYS = 128, NARROW_THREADS = 512;
constexpr int NARROW_STAGES = 4; /* stages of Q, dO and dS */

struct narrow_params {
    CUtensorMap q_map, k_map, v_map, do_map, lse_map, delta_map;
    CUtensorMap dk_map, dv_map, dq_map; /* boxes of 16 keys, of 64 queries */
    float *dq_sum;                      /* (B, H, block_stride, 64 x 64 in fragment order) */
    uint32_t *order;                    /* (B, H, block_stride) how many key tiles have added; NULL: any order */
    unsigned *next_job;                 /* jobs given out, without the first of each block when in any order */
    int batch, heads, heads_kv, group, seq_q, seq_k;
    int key_tiles, query_blocks, block_stride, jobs;
    int section, sections; /* heads walked together, and how many times; the last time takes the remainder, too */
    float scale, scale_log2;
    int window_left, window_right; /* keys before and after its own position that a query sees; WINDOW only */
    /* PACKED only. Tensors hold all documents, and tiles of NARROW_KEYS keys and pairs of query blocks are numbered as
     * primitives/documents.cuh has it; key_tiles is how many numbers there are. */
    const int *cu_seqlens_q, *cu_seqlens_k;
    sb_tensor dq, dk, dv;
    int documents, head_dim;
};

/* PACKED: the document of a job: where it begins in the tensors, its lengths, and the number of its first query block. */
struct narrow_document {
    int q_begin, seq_q, k_begin, seq_k, block;
};
/* What a job counts with if PACKED, in the place of narrow_params. */
struct narrow_lengths {
    int seq_q, seq_k, query_blocks, key_tiles, window_left, window_right;
};
/* A document without queries has a block, too, in which all is hidden: its dK and dV are zeros. */
__device__ __forceinline__ narrow_lengths narrow_lengths_of(const narrow_params &p, int seq_q, int seq_k)
{
    return {seq_q,
            seq_k,
            max((seq_q + NARROW_ROWS - 1) / NARROW_ROWS, 1),
            (seq_k + NARROW_KEYS - 1) / NARROW_KEYS,
            p.window_left,
            p.window_right};
}

/* One key tile against the query blocks query_begin and later of every query head of its group. */
struct narrow_job {
    int b, h_kv, key_first, query_begin; /* b < 0: there are no more jobs */
};
/* The last query block of a job; in a window at least the first one, in which all may be hidden. P: narrow_params, or
 * narrow_lengths. */
template <bool WINDOW, class P>
__device__ __forceinline__ int narrow_last(const P &p, int key_first, int query_begin)
{
    if (!WINDOW)
        return p.query_blocks - 1;
    const int last_key = min(key_first + NARROW_KEYS, p.seq_k) - 1;
    return min(max((last_key - p.seq_k + p.seq_q + p.window_left) / NARROW_ROWS, query_begin), p.query_blocks - 1);
}
/* The first key tile of which a query of block i sees a key, if any does. */
template <bool WINDOW, class P>
__device__ __forceinline__ int narrow_first_tile(const P &p, int i)
{
    return WINDOW ? max(i * NARROW_ROWS + p.seq_k - p.seq_q - p.window_left, 0) / NARROW_KEYS : 0;
}
/* What the query group has added, in order. */
struct narrow_report {
    int64_t place; /* the query block that it added to; < 0: no block waits for it */
    int next;      /* the key tile that adds next; < 0: that was all */
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
    static constexpr int DOCUMENTS = BYTES, PACKED_BYTES = DOCUMENTS + 2 * (int)sizeof(narrow_document); /* if PACKED */
};
static_assert(narrow_memory::PACKED_BYTES <= 227 << 10, "what a block may have");

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
    /* Comes and goes with the job. */
    __device__ volatile narrow_document *document_slot(unsigned job) const
    {
        return (volatile narrow_document *)(smem + mem::DOCUMENTS) + job % 2;
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
    __device__ uint32_t may_add(unsigned step) const { return barrier(step, 6); }
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
            mbarrier_init(may_add(step), 1);
            mbarrier_init(added(step), 4);
            mbarrier_init(reported(step), 1);
        }
    }
};

/* The lengths that job n counts with, for whole warps. */
template <bool PACKED>
__device__ __forceinline__ decltype(auto) narrow_job_lengths(const narrow_params &p, narrow_block block, unsigned n)
{
    if constexpr (PACKED) {
        volatile narrow_document *const document = block.document_slot(n);
        return narrow_lengths_of(p, read_uniform(document->seq_q), read_uniform(document->seq_k));
    } else {
        return (p);
    }
}

/* Like narrow_job_lengths, for a single thread. */
template <bool PACKED>
__device__ __forceinline__ decltype(auto) narrow_thread_lengths(const narrow_params &p, narrow_block block, unsigned n)
{
    if constexpr (PACKED)
        return narrow_lengths_of(p, block.document_slot(n)->seq_q, block.document_slot(n)->seq_k);
    else
        return (p);
}

/* PACKED: this lane's part of COUNT rows of a swizzled panel, to the rows of a tensor that are before `left`. */
template <class T, int COUNT, int LANES>
__device__ __forceinline__ void narrow_store_rows(const unsigned char *panel, T *to, int64_t stride_s, int left,
                                                  int head_dim, int lane)
{
    const int d = lane % 8 * 8;
#pragma unroll
    for (int r = 0; r < COUNT; r += LANES / 8) {
        const int row = r + lane / 8;
        if (row < left && d < head_dim)
            *(uint4 *)(to + row * stride_s + d) = *(const uint4 *)(panel + row * ROW_BYTES + (lane % 8 ^ row % 8) * 16);
    }
}

/* ---- keys ---- */

/* A key group: 64 keys, their dK and dV. Between dS(j) and dS(j+1), with the products that are under way while it waits or
 * computes:
 *   issue dV(j), S(j+1) | store dS(j) | issue dK(j), dP(j+1) | wait dV(j), S(j+1), then dK(j), dP(j+1) | P(j+1)
 * Registers of a thread, of 208: S^T 32, dP^T 32, dK 32, dV 32, P and dS as operands 16 each, V 16. */
template <class T, bool CAUSAL, bool WINDOW, bool PACKED>
struct narrow_keys {
    using mem = narrow_memory;
    const narrow_params &p;
    const narrow_block block;
    const int group; /* 0: keys 0 to 63 of the tile, 1: 64 to 127 */
    float s[32], dp[32], dk[32], dv[32];
    query_numbers<32> lse2, delta;
    uint32_t v[4][4], prob[1][16], ds[1][16];
    unsigned n, step;    /* this job and this step, counted over the life of the block */
    int i, begin, left;  /* query block of the step; first that this group does not pass; steps left of the job */
    int mask_below;      /* queries before this one do not see every key of the group */
    int last, mask_from; /* if WINDOW: the job's last query block; queries from this one on do not see every key, too */
    bool passes;         /* the step at block begin - 1 of each head is passed */

    __device__ __forceinline__ narrow_keys(const narrow_params &params, narrow_block shared, int number)
        : p(params), block(shared), group(number), n(0), step(0)
    {
    }

    __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
    __device__ __forceinline__ static int warp() { return threadIdx.x % 128 / 32; }
    __device__ __forceinline__ static void arrive(uint32_t barrier) { mbarrier_arrive_by_warp(barrier); }
    /* First query of each pair that this thread holds. */
    __device__ __forceinline__ static int column() { return 2 * (lane() % 4); }
    /* This lane's place for ldmatrix and stmatrix in 16 rows of a panel from `corner` on: a row's 16-byte chunk `chunk`
     * in the low half of the warp, the one after it in the other. */
    __device__ __forceinline__ static uint32_t place(uint32_t corner, int lane, int chunk)
    {
        return corner + lane % 16 * ROW_BYTES + ((chunk + lane / 16) ^ lane % 8) * 16;
    }

    __device__ __forceinline__ void start_scores()
    {
        mbarrier_wait(block.q_full(step), block.step_parity(step));
        wgmma_fence();
        mma_abt<T, mem::tile_kv, mem::tile_q, 64>(s, block.k_tile(n) + group * 64 * ROW_BYTES, block.q_tile(step));
        wgmma_commit();
    }
    /* After wait_for_do and a fence; to be committed. */
    __device__ __forceinline__ void mma_dp()
    {
        const uint64_t b = wgmma_descriptor(block.do_tile(step), 16);
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma<T, 64, 0>(dp, v[k], b + (k * 32 >> 4), k != 0);
    }
    __device__ __forceinline__ void wait_for_do()
    {
        mbarrier_wait(block.do_full(step), block.step_parity(step));
    }

    /* Reads the job, loads V and starts the products of its first step. */
    __device__ __forceinline__ void begin_job()
    {
        volatile narrow_job *const job = block.job_slot(n);
        const auto &of = narrow_job_lengths<PACKED>(p, block, n);
        const int first_key = read_uniform(job->key_first) + group * 64,
                  offset = of.seq_k - of.seq_q + (WINDOW ? p.window_right : 0);
        begin = read_uniform(job->query_begin);
        if constexpr (WINDOW) {
            last = narrow_last<true>(of, first_key - group * 64, begin);
            mask_from = first_key - of.seq_k + of.seq_q + p.window_left + 1;
        }
        passes = CAUSAL && group == 1 && (WINDOW ? begin < last : begin + 1 < p.query_blocks) &&
                 first_key > begin * NARROW_ROWS + NARROW_ROWS - 1 + offset;
        begin += passes;
        i = WINDOW ? last : p.query_blocks - 1;
        left = (WINDOW ? last + 1 - begin : p.query_blocks - begin) * p.group;
        mask_below = first_key + 64 > of.seq_k ? INT_MAX : CAUSAL ? first_key + 63 - offset : INT_MIN;
        const int l = lane_asked();
#pragma unroll
        for (int k = 0; k < 4; k++)
            load_matrix4(place(block.v_tile(n) + (group * 64 + warp() * 16) * ROW_BYTES, l, 2 * k), v[k]);
        start_scores();
        wait_for_do();
        wgmma_fence();
        mma_dp();
        wgmma_commit();
    }

    /* s: scores, of which a query must not see some. */
    __device__ __forceinline__ void mask()
    {
        const bool left_edge = WINDOW && i * NARROW_ROWS + NARROW_ROWS > mask_from;
        if (i * NARROW_ROWS >= mask_below && !left_edge)
            return;
        const int first_key = read_uniform(block.job_slot(n)->key_first);
        const auto &of = narrow_job_lengths<PACKED>(p, block, n);
        int limit[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int key = first_key + group * 64 + warp() * 16 + lane() / 4 + 8 * r;
            limit[r] = key >= of.seq_k ? NARROW_ROWS
                       : CAUSAL ? key - of.seq_k + of.seq_q - (WINDOW ? p.window_right : 0) - i * NARROW_ROWS - column()
                                : 0;
        }
        mask_queries(s, limit, hidden_score(p.scale_log2));
        if constexpr (WINDOW) {
#pragma unroll
            for (int r = 0; r < 2; r++)
                limit[r] = mask_from + warp() * 16 + lane() / 4 + 8 * r - i * NARROW_ROWS - column();
            if (left_edge)
                mask_queries_from(s, limit, hidden_score(p.scale_log2));
        }
    }
    __device__ __forceinline__ void start_dv(int accumulate)
    {
        pin(prob[0]);
        wgmma_fence();
        mma_rs<T, mem::tile_q, 64>(dv, prob, block.do_tile(step), accumulate);
        wgmma_commit();
    }

    /* P and dS of the step, as operands. */
    __device__ __forceinline__ void probabilities_and_gradient()
    {
        scores_to_exponents(s, lse2, p.scale_log2);
        delta.load((const float *)(block.smem + block.delta(step)) + 2 * column());
        wgmma_wait<0>(); /* dP; dK of the step before */
        pin(dp);
        exponentials(s);
        to_operand<T, 1, 16>(prob, s);
        to_score_gradient(dp, s, delta);
        to_operand<T, 1, 16>(ds, dp);
    }
    /* ... to dS[query][key] by transposing stores. */
    __device__ __forceinline__ void store_ds(unsigned step, bool zero)
    {
        mbarrier_wait(block.ds_empty(step), block.step_parity(step) ^ 1);
        const uint32_t to = block.ds_tile(step) + group * mem::tile_ds::PANEL_BYTES + transposed_place(warp(), lane());
#pragma unroll
        for (int k = 0; k < 4; k++)
            store_matrix4_transposed(to + k * 16 * ROW_BYTES, zero ? 0 : ds[0][4 * k], zero ? 0 : ds[0][4 * k + 1],
                                     zero ? 0 : ds[0][4 * k + 2], zero ? 0 : ds[0][4 * k + 3]);
        fence_async_proxy();
        arrive(block.ds_full(step));
    }
    /* After a fence; to be committed. */
    __device__ __forceinline__ void mma_dk(unsigned step, int accumulate)
    {
        mma_rs<T, mem::tile_q, 64>(dk, ds, block.q_tile(step), accumulate);
    }

    /* To the next step, past one in which this group has no key. */
    __device__ __forceinline__ void advance()
    {
        step++;
        if (--i >= begin)
            return;
        if (CAUSAL && passes) {
            mbarrier_wait(block.q_full(step), block.step_parity(step));
            mbarrier_wait(block.do_full(step), block.step_parity(step));
            store_ds(step, true);
            arrive(block.q_empty(step));
            arrive(block.do_empty(step));
            step++;
        }
        i = WINDOW ? last : p.query_blocks - 1; /* the last query block of the group's next head */
    }

    /* This warp's 16 keys of dK or dV, by way of its own corner of shared memory. */
    __device__ __forceinline__ void store_rows(const float (&x)[32], float scale, uint32_t corner,
                                               const CUtensorMap *map, int key, int h_kv, int b)
    {
        store_warp_rows16<T, 64, mem::tile_kv::PANEL_BYTES>(corner, x, scale, scale, lane_asked());
        fence_async_proxy();
        __syncwarp();
        tma_store_4d_by_warp(corner, map, 0, key, h_kv, b);
    }
    /* Stores the rows of a document, of which `left` keys remain from this warp's first on. */
    __device__ __forceinline__ void store_document_rows(const float (&x)[32], float scale, int corner,
                                                        const sb_tensor &t, int row, int h_kv, int left)
    {
        const int l = lane_asked();
        store_warp_rows16<T, 64, mem::tile_kv::PANEL_BYTES>(block.base + corner, x, scale, scale, l);
        __syncwarp();
        narrow_store_rows<T, 16, 32>(block.smem + corner, (T *)t.data + h_kv * t.stride_h + row * t.stride_s,
                                     t.stride_s, left, p.head_dim, l);
        __syncwarp(); /* the next job's rows come here */
    }
    __device__ __forceinline__ void end_document_job(unsigned n)
    {
        volatile narrow_job *const job = block.job_slot(n);
        volatile narrow_document *const document = block.document_slot(n);
        const int first = group * 64 + uniform(warp()) * 16, key = read_uniform(job->key_first) + first;
        const int h_kv = read_uniform(job->h_kv), row = read_uniform(document->k_begin) + key;
        const int left = read_uniform(document->seq_k) - key, corner = mem::OUT + first * ROW_BYTES;
        arrive(block.kv_empty(n));
        store_document_rows(dv, 1, corner + mem::tile_kv::BYTES, p.dv, row, h_kv, left);
        store_document_rows(dk, p.scale, corner, p.dk, row, h_kv, left);
    }
    __device__ __forceinline__ void end_job(unsigned n)
    {
        if constexpr (PACKED) {
            end_document_job(n);
            return;
        }
        volatile narrow_job *const job = block.job_slot(n);
        const int w = uniform(warp()), key = read_uniform(job->key_first) + group * 64 + w * 16;
        const int h_kv = read_uniform(job->h_kv), b = read_uniform(job->b);
        const uint32_t corner = block.base + mem::OUT + (group * 64 + w * 16) * ROW_BYTES;
        tma_store_wait_read(); /* stores of the job before */
        arrive(block.kv_empty(n));
        store_rows(dv, 1, corner + mem::tile_kv::BYTES, &p.dv_map, key, h_kv, b);
        store_rows(dk, p.scale, corner, &p.dk_map, key, h_kv, b);
        tma_store_commit();
    }

    __device__ __forceinline__ void run()
    {
        mbarrier_wait(block.kv_full(0), 0);
        if (read_uniform(block.job_slot(0)->b) < 0)
            return; /* others were faster */
        begin_job();
        for (;;) {
            int accumulate = 0; /* a job's first products are not added to anything */
            unsigned before = step;
            for (;;) {
                lse2.load((const float *)(block.smem + block.lse(step)) + 2 * column());
                wgmma_wait<1>(); /* S; dV of the step before */
                pin(s);
                if (accumulate)
                    arrive(block.do_empty(before));
                mask();
                probabilities_and_gradient();
                start_dv(accumulate);
                if (accumulate)
                    arrive(block.q_empty(before));
                if (--left == 0)
                    break;
                before = step;
                advance();
                start_scores();
                store_ds(before, false);
                wait_for_do();
                pin(ds[0]);
                wgmma_fence();
                mma_dk(before, accumulate);
                mma_dp();
                wgmma_commit();
                accumulate = 1;
            }
            const unsigned now = step;
            store_ds(now, false);
            pin(ds[0]);
            wgmma_fence();
            mma_dk(now, accumulate);
            wgmma_commit();
            advance();
            wgmma_wait<0>();
            pin(dk);
            pin(dv);
            arrive(block.do_empty(now));
            arrive(block.q_empty(now));
            n++;
            mbarrier_wait(block.kv_full(n), block.job_parity(n));
            if (read_uniform(block.job_slot(n)->b) < 0)
                break;
            begin_job();
            end_job(n - 1);
        }
        end_job(n - 1);
        tma_store_wait();
    }
};

/* ---- queries: dQ^T = K^T dS^T of both key groups' keys, added up over the key tiles ---- */

/* dQ^T: 64 rows of d times 64 queries, A = K^T read transposed, B = dS of both groups. */
template <class T>
__device__ __forceinline__ void narrow_mma_dq(float (&dq)[32], uint32_t k_tile, uint32_t ds_tile)
{
    const uint64_t a = wgmma_descriptor(k_tile, 16), b = wgmma_descriptor(ds_tile, 16);
#pragma unroll
    for (int k = 0; k < NARROW_KEYS / 16; k++)
        wgmma<T, 64, 1, 0>(dq, a + (k * 16 * ROW_BYTES >> 4),
                           b + ((k / 4 * narrow_memory::tile_ds::PANEL_BYTES + k % 4 * 32) >> 4), k != 0);
}

enum { QUERY_BARRIER = 1 };

/* The query group has added a step: notes it for the thread that passes that on. */
__device__ __forceinline__ void narrow_tell(narrow_block block, unsigned step, int64_t place, int next)
{
    if (uniform(threadIdx.x % 128 / 32) == 0) {
        mbarrier_wait(block.reported(step), block.step_parity(step) ^ 1);
        if (threadIdx.x % 32 == 0)
            block.report(step)->place = place, block.report(step)->next = next;
    }
    __syncwarp(); /* this warp has added; the lane that wrote arrives */
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(block.added(step));
}

/* dQ of a query block whose other key tiles have been added before: with their sum, if there are others, to the tensor,
 * by way of the slot of dS, which is free for it. `query`: row of the tensor; `end`: where the document's rows end, if PACKED. */
template <class T, bool PACKED>
__device__ __forceinline__ void narrow_finish_dq(const narrow_params &p, narrow_block block, float (&dq)[32],
                                                 const float *others, uint32_t slot, int query, int h, int b, int end)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    if (others) {
#pragma unroll
        for (int half = 0; half < 32; half += 16) {
            float4 x[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[j] = __ldcg((const float4 *)(others + (half / 4 + j) * 512));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float *const to = dq + half + 4 * j;
                to[0] += x[j].x, to[1] += x[j].y, to[2] += x[j].z, to[3] += x[j].w;
            }
        }
    }
    /* rows of the fragments are columns of the tensor */
    const uint32_t place = slot + transposed_place(warp, lane);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t x[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = pack(T(), dq[8 * k + 2 * e] * p.scale, dq[8 * k + 2 * e + 1] * p.scale);
        store_matrix4_transposed(place + k * 16 * ROW_BYTES, x[0], x[1], x[2], x[3]);
    }
    if constexpr (PACKED) {
        named_sync(QUERY_BARRIER, 128);
        narrow_store_rows<T, NARROW_ROWS, 128>(block.smem + (slot - block.base),
                                               (T *)p.dq.data + h * p.dq.stride_h + query * p.dq.stride_s,
                                               p.dq.stride_s, end - query, p.head_dim, threadIdx.x % 128);
        __syncwarp();
        return;
    }
    fence_async_proxy();
    named_sync(QUERY_BARRIER, 128);
    if (uniform(warp) == 0) {
        tma_store_4d_by_warp(slot, &p.dq_map, 0, query, h, b);
        tma_store_commit();
        tma_store_wait_read();
    }
    __syncwarp();
}

/* Adds the part of dQ that one step of job n makes. `place` is its query block's number among all. */
template <class T, bool CAUSAL, bool WINDOW, bool PACKED>
__device__ __forceinline__ void narrow_add(const narrow_params &p, narrow_block block, unsigned n, unsigned step,
                                           float (&dq)[32], int64_t place, int key_tile, int i, int h, int b)
{
    const auto &of = narrow_job_lengths<PACKED>(p, block, n);
    const int thread = threadIdx.x % 128,
              last_query = i * NARROW_ROWS + NARROW_ROWS - 1 + of.seq_k - of.seq_q + (WINDOW ? p.window_right : 0);
    const int last_tile = CAUSAL ? min(last_query / NARROW_KEYS, of.key_tiles - 1) : of.key_tiles - 1;
    const int first_tile = narrow_first_tile<WINDOW>(of, i);
    const bool last = p.order && key_tile == last_tile;
    const bool unseen = WINDOW && p.order && key_tile < first_tile; /* a tile that takes a step for nothing */
    float *const sum = p.dq_sum + place * (NARROW_ROWS * 64) + thread * 4;
    if (p.order)
        mbarrier_wait(block.may_add(step), block.step_parity(step));
    if (last) {
        named_sync(QUERY_BARRIER, 128); /* the products of every warp have read dS */
        const int q_begin = PACKED ? read_uniform(block.document_slot(n)->q_begin) : 0;
        narrow_finish_dq<T, PACKED>(p, block, dq, key_tile > first_tile ? sum : nullptr, block.ds_tile(step),
                                    q_begin + i * NARROW_ROWS, h, b, q_begin + of.seq_q);
    }
    if (thread % 32 == 0)
        mbarrier_arrive(block.ds_empty(step));
    if (!p.order || (key_tile > first_tile && !last)) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            add_global4(sum + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    } else if (!last && !unseen) { /* the first */
#pragma unroll
        for (int j = 0; j < 8; j++)
            *(float4 *)(sum + j * 512) = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    }
    if (p.order)
        narrow_tell(block, step, last || unseen ? -1 : place, key_tile + 1);
}

template <class T, bool CAUSAL, bool WINDOW, bool PACKED>
__device__ __forceinline__ void narrow_queries(const narrow_params &p, narrow_block block)
{
    const int thread = threadIdx.x % 128;
    unsigned step = 0;
    for (unsigned n = 0;; n++) {
        mbarrier_wait(block.kv_full(n), block.job_parity(n));
        volatile narrow_job *const job = block.job_slot(n);
        if (read_uniform(job->b) < 0)
            break;
        const int begin = read_uniform(job->query_begin);
        const int b = PACKED ? 0 : read_uniform(job->b), key_tile = read_uniform(job->key_first) / NARROW_KEYS;
        const int last =
            WINDOW ? narrow_last<true>(narrow_job_lengths<PACKED>(p, block, n), key_tile * NARROW_KEYS, begin) : 0;
        int h = read_uniform(job->h_kv) * p.group, i = WINDOW ? last : p.query_blocks - 1;
        for (int left = (WINDOW ? last + 1 - begin : p.query_blocks - begin) * p.group; left > 0; left--, step++) {
            float dq[32];
            mbarrier_wait(block.ds_full(step), block.step_parity(step));
            wgmma_fence();
            narrow_mma_dq<T>(dq, block.k_tile(n), block.ds_tile(step));
            wgmma_commit();
            const int64_t place = ((int64_t)b * p.heads + h) * p.block_stride + i +
                                  (PACKED ? read_uniform(block.document_slot(n)->block) : 0);
            wgmma_wait<0>();
            pin(dq);
            narrow_add<T, CAUSAL, WINDOW, PACKED>(p, block, n, step, dq, place, key_tile, i, h, b);
            if (--i < begin)
                i = WINDOW ? last : p.query_blocks - 1, h++;
        }
        __syncwarp();
        if (thread % 32 == 0)
            mbarrier_arrive(block.kv_empty(n));
    }
    if (p.order) {
        narrow_tell(block, step, -1, -1);
        narrow_tell(block, step + 1, -1, -1);
    }
    tma_store_wait();
}

/* ---- the order of additions: waiting and passing on take as long as a step, so each has a thread of its own ---- */

/* Tells the query group when each of its steps may add. What it needs of the job it reads before it allows the first step: the
 * loader may not write there before all are done. */
template <bool WINDOW, bool PACKED>
__device__ __forceinline__ void narrow_await(const narrow_params &p, narrow_block block)
{
    unsigned step = 0;
    for (unsigned n = 0;; n++) {
        mbarrier_wait(block.kv_full(n), block.job_parity(n));
        volatile narrow_job *const job = block.job_slot(n);
        if (job->b < 0)
            return;
        const int begin = job->query_begin, key_tile = job->key_first / NARROW_KEYS, h = job->h_kv * p.group;
        const auto &of = narrow_thread_lengths<PACKED>(p, block, n);
        const uint32_t *const first =
            p.order + ((int64_t)job->b * p.heads + h) * p.block_stride + (PACKED ? block.document_slot(n)->block : 0);
        for (int g = 0; g < p.group; g++)
#pragma unroll 1
            for (int i = narrow_last<WINDOW>(of, key_tile * NARROW_KEYS, begin); i >= begin; i--, step++) {
                mbarrier_wait(block.ds_empty(step), block.step_parity(step) ^ 1); /* the slot's last step has added */
                while ((!WINDOW || key_tile > narrow_first_tile<WINDOW>(of, i)) &&
                       load_acquire(first + (int64_t)g * p.block_stride + i) != key_tile)
                    __nanosleep(20);
                mbarrier_arrive(block.may_add(step));
            }
    }
}

/* Passes every second step on, once what was added is visible to the next adder. */
__device__ __forceinline__ void narrow_pass_on(const narrow_params &p, narrow_block block, unsigned step)
{
    for (;; step += 2) {
        mbarrier_wait(block.added(step), block.step_parity(step));
        volatile narrow_report *const report = block.report(step);
        const int next = report->next;
        const int64_t place = report->place;
        if (next < 0)
            return;
        if (place >= 0)
            store_release(p.order + place, next);
        mbarrier_arrive(block.reported(step));
    }
}

/* ---- loads and the kernel ---- */

/* Jobs are numbered longest first within a section of heads. */
template <bool CAUSAL, bool WINDOW>
__device__ __forceinline__ narrow_job narrow_decode(const narrow_params &p, int number)
{
    if (number >= p.jobs)
        return {-1, 0, 0, 0};
    const int section = min(number / (p.section * p.key_tiles), p.sections - 1), first_head = section * p.section;
    const int section_heads = section == p.sections - 1 ? p.batch * p.heads_kv - first_head : p.section;
    const int in_section = number - first_head * p.key_tiles, key_tile = in_section / section_heads;
    const int head = first_head + in_section - key_tile * section_heads, b = head / p.heads_kv;
    const int key_first = key_tile * NARROW_KEYS;
    /* causal: query i sees keys j <= i + Sk - Sq */
    return {b, head - b * p.heads_kv, key_first,
            CAUSAL ? max(key_first + p.seq_q - p.seq_k - (WINDOW ? p.window_right : 0), 0) / NARROW_ROWS : 0};
}

/* Decodes a job of packed documents: tiles of a document are numbered in order, so none waits for a later one. h_kv < 0: the number has
 * no tile. */
__device__ __forceinline__ narrow_job narrow_decode_packed(const narrow_params &p, int number, narrow_document &of)
{
    if (number >= p.jobs)
        return {-1, 0, 0, 0};
    const int section = min(number / (p.section * p.key_tiles), p.sections - 1), first_head = section * p.section;
    const int section_heads = section == p.sections - 1 ? p.heads_kv - first_head : p.section;
    const int in_section = number - first_head * p.key_tiles, nth = in_section / section_heads;
    const int i = documents::find(p.cu_seqlens_k, p.documents, NARROW_KEYS, nth);
    const int q = p.cu_seqlens_q[i], k = p.cu_seqlens_k[i];
    of = {q, p.cu_seqlens_q[i + 1] - q, k, p.cu_seqlens_k[i + 1] - k, (q / (2 * NARROW_ROWS) + i) * 2};
    const int key_first = (nth - k / NARROW_KEYS - i) * NARROW_KEYS;
    return {0, key_first < of.seq_k ? first_head + in_section - nth * section_heads : -1, key_first,
            max(key_first + of.seq_q - of.seq_k - p.window_right, 0) / NARROW_ROWS};
}

template <bool CAUSAL, bool WINDOW, bool PACKED>
__device__ __forceinline__ void narrow_load(const narrow_params &p, narrow_block block)
{
    using mem = narrow_memory;
    /* In order, no job may wait for one that no block has taken, so the counter gives out all of them. Otherwise the first
     * job's loads may run under the end of the kernel ahead, which zeroes the counter. */
    if (p.order)
        wait_for_previous_kernel();
    const int given = p.order ? 0 : gridDim.x;
    int number = p.order ? (int)atomicAdd(p.next_job, 1) : blockIdx.x;
    unsigned step = 0;
    for (unsigned n = 0;; n++) {
        narrow_document of = {};
        narrow_job job;
        if constexpr (PACKED) {
            while ((job = narrow_decode_packed(p, number, of)).h_kv < 0) {
                wait_for_previous_kernel(); /* it zeroes the counter */
                number = given + (int)atomicAdd(p.next_job, 1);
            }
        } else {
            job = narrow_decode<CAUSAL, WINDOW>(p, number);
        }
        mbarrier_wait(block.kv_empty(n), block.job_parity(n) ^ 1);
        volatile narrow_job *const slot = block.job_slot(n);
        slot->b = job.b, slot->h_kv = job.h_kv, slot->key_first = job.key_first, slot->query_begin = job.query_begin;
        if (job.b < 0) {
            mbarrier_arrive(block.kv_full(n));
            return;
        }
        if constexpr (PACKED) {
            volatile narrow_document *const to = block.document_slot(n);
            to->q_begin = of.q_begin, to->seq_q = of.seq_q, to->k_begin = of.k_begin, to->seq_k = of.seq_k;
            to->block = of.block;
        }
        const int key = of.k_begin + job.key_first;
        /* Q, K, V and dO are older than the kernel ahead, which waited for them before this one could start */
        mbarrier_expect(block.kv_full(n), 2 * mem::tile_kv::BYTES);
        load_tile<mem::tile_kv>(block.k_tile(n), &p.k_map, block.kv_full(n), key, job.h_kv, job.b, p.batch);
        load_tile<mem::tile_kv>(block.v_tile(n), &p.v_map, block.kv_full(n), key, job.h_kv, job.b, p.batch);
        /* h_kv of a document is read again at each step: the loader has no registers for it */
        for (int h = job.h_kv * p.group; h < ((PACKED ? (int)slot->h_kv : job.h_kv) + 1) * p.group; h++)
#pragma unroll 1 /* four steps in a row would need more registers than the loader has */
            for (int i = narrow_last<WINDOW>(narrow_thread_lengths<PACKED>(p, block, n),
                                             PACKED ? (int)slot->key_first : job.key_first,
                                             PACKED ? (int)slot->query_begin : job.query_begin);
                 i >= (PACKED ? (int)slot->query_begin : job.query_begin); i--, step++) {
                const int row = (PACKED ? block.document_slot(n)->q_begin : 0) + i * NARROW_ROWS,
                          number_row = ((PACKED ? block.document_slot(n)->block : 0) + i) * NARROW_ROWS;
                const uint32_t parity = block.step_parity(step) ^ 1;
                mbarrier_wait(block.q_empty(step), parity);
                mbarrier_expect(block.q_full(step), mem::tile_q::BYTES + NARROW_ROWS * 4);
                load_tile<mem::tile_q>(block.q_tile(step), &p.q_map, block.q_full(step), row, h, PACKED ? 0 : job.b,
                                       p.batch);
                wait_for_previous_kernel(); /* lse2, delta, zeroed sums and counters */
                tma_load_2d(block.base + block.lse(step), &p.lse_map, block.q_full(step), number_row,
                            (PACKED ? 0 : job.b * p.heads) + h);
                mbarrier_wait(block.do_empty(step), parity);
                mbarrier_expect(block.do_full(step), mem::tile_q::BYTES + NARROW_ROWS * 4);
                load_tile<mem::tile_q>(block.do_tile(step), &p.do_map, block.do_full(step), row, h, PACKED ? 0 : job.b,
                                       p.batch);
                tma_load_2d(block.base + block.delta(step), &p.delta_map, block.do_full(step), number_row,
                            (PACKED ? 0 : job.b * p.heads) + h);
            }
        number = given +
                 (int)atomicAdd(p.next_job, 1); /* as late as possible: the block that is done first takes the next */
    }
}

/* WINDOW: a query also sees no key that is more than window_left before its own; comes with CAUSAL. PACKED: each job belongs to a
 * document; comes with WINDOW. Rows of the next document in a box of queries have lse2 = inf, so that P and dS are 0 as past the
 * end; its keys are masked. */
template <class T, bool CAUSAL, bool WINDOW = false, bool PACKED = false>
__global__ void __launch_bounds__(NARROW_THREADS, 1) flash_backward_narrow(const __grid_constant__ narrow_params p)
{
    static_assert((!WINDOW || CAUSAL) && (!PACKED || WINDOW), "what windows and documents go with");
    extern __shared__ __align__(1024) unsigned char smem[];
    const narrow_block block = {smem_u32(smem), smem};
    const int warpgroup = uniform(threadIdx.x / 128);

    if (threadIdx.x == 0) {
        tma_prefetch(&p.k_map);
        tma_prefetch(&p.v_map);
        tma_prefetch(&p.q_map);
        tma_prefetch(&p.do_map);
        tma_prefetch(&p.lse_map);
        tma_prefetch(&p.delta_map);
        tma_prefetch(&p.dk_map);
        tma_prefetch(&p.dv_map);
        tma_prefetch(&p.dq_map);
        block.init_barriers();
        mbarrier_init_fence();
    }
    __syncthreads();
    let_next_kernel_start();

    if (warpgroup == 0) {
        registers_lower<24>();
        if (threadIdx.x == 0) {
            narrow_load<CAUSAL, WINDOW, PACKED>(p, block);
        } else if (p.order && threadIdx.x % 32 == 0) {
            wait_for_previous_kernel(); /* counts start at zero */
            if (threadIdx.x == 32)
                narrow_await<WINDOW, PACKED>(p, block);
            else
                narrow_pass_on(p, block, threadIdx.x / 32 - 2);
        }
    } else if (warpgroup == 3) {
        registers_lower<72>();
        wait_for_previous_kernel(); /* zeroed sums */
        narrow_queries<T, CAUSAL, WINDOW, PACKED>(p, block);
    } else {
        registers_raise<208>();
        wait_for_previous_kernel();
        narrow_keys<T, CAUSAL, WINDOW, PACKED>(p, block, warpgroup - 1).run();
    }
}

} // namespace flash_hopper
