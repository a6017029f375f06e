/* SPDX-License-Identifier: MIT */
/* FlashAttention forward for Hopper: the kernel (schedule: FlashAttention-3, arXiv 2407.08608, section 3). Launched by host.cu.
 * A tile is 64 query rows for each of one, two or (D <= 96) three consumer warpgroups. A producer warp loads Q, K and V by TMA
 * through mbarrier rings; a consumer issues the scores of block j, then P V of block j+1 (keys are walked from the diagonal to
 * 0), does the softmax of j while P V runs, and rescales O if a maximum has moved. The groups take turns at issuing, so that
 * one's softmax runs under the others' products.
 * Many tiles: blocks stay and take one after the other, or pairs of blocks two; O leaves by TMA under the next one. Few tiles: a cluster
 * shares one, each block a range of its keys, and they merge through distributed shared memory (merge.cuh), in a fixed order.
 * Numbers that steer a loop are told to be the same in every lane (uniform): otherwise ptxas moves every descriptor to uniform
 * registers before each product. Shared memory is in layout.cuh; registers of a thread at D 128: 192 of 232. */
#pragma once

#include <float.h>

#include "kernels/cuda/attention/hopper/fp32_parts.cuh"
#include "kernels/cuda/attention/hopper/forward/layout.cuh"
#include "kernels/cuda/attention/hopper/forward/merge.cuh"
#include "kernels/cuda/hopper/store.cuh"

namespace flash_hopper
{

/* ---- the producer: jobs and loads ---- */

/* One thread: the barriers of the block. */
template <class MEM, int GROUPS, bool PAIRED>
__device__ __forceinline__ void forward_init(const forward_params &p, const forward_barriers &bar)
{
    tma_prefetch(&p.q_map);
    tma_prefetch(&p.k_map);
    tma_prefetch(&p.v_map);
    for (int s = 0; s < 2; s++) {
        mbarrier_init(bar.q_full(s), 1);
        mbarrier_init(bar.job_full(s), 1);
        mbarrier_init(bar.q_empty(s), 4 * GROUPS); /* one arrival a consumer warp */
        mbarrier_init(bar.job_empty(s), 4 * GROUPS);
    }
    for (int s = 0; s < MEM::STAGES; s++) {
        mbarrier_init(bar.k_full(s), 1);
        mbarrier_init(bar.v_full(s), 1);
        mbarrier_init(bar.k_empty(s), (PAIRED ? 8 : 4) * GROUPS);
        mbarrier_init(bar.v_empty(s), (PAIRED ? 8 : 4) * GROUPS);
    }
    if (PAIRED) {
        mbarrier_init(bar.number_full(), 1);
        mbarrier_init(bar.number_empty(), 1);
    }
    mbarrier_init_fence();
}

template <class JOB>
constexpr bool is_packed = false;
template <>
constexpr bool is_packed<packed_job> = true;

__device__ __forceinline__ document_lengths lengths_of(const forward_params &p, const packed_job &job)
{
    return {job.seq_q, job.seq_k, p.window_left, p.window_right};
}

/* The number of a pair's next job: the first block asks for it and tells the second. */
template <class MEM>
struct paired_numbers {
    uint32_t parity = 0;
    __device__ __forceinline__ int next(const forward_params &p, const forward_barriers &bar, uint32_t base, int rank)
    {
        int number;
        if (rank == 0) {
            number = gridDim.x / 2 + (int)atomicAdd(p.next_job, 1);
            mbarrier_wait(bar.number_empty(), parity ^ 1);
            store_remote(cluster_map(base + MEM::NUMBER, 1), number, cluster_map(bar.number_full(), 1));
        } else {
            mbarrier_expect(bar.number_full(), 4);
            mbarrier_wait(bar.number_full(), parity);
            asm volatile("ld.shared::cta.u32 %0, [%1];" : "=r"(number) : "r"(base + MEM::NUMBER) : "memory");
            if (number >= 0) /* always; but so the arrival cannot overtake what was read */
                mbarrier_arrive_remote(cluster_map(bar.number_empty(), 0));
        }
        parity ^= 1;
        return number;
    }
};

/* One thread: gives out the block's jobs and loads their tiles. V runs one block behind K, as the consumers do. */
template <class MEM, int BN, bool CAUSAL, bool WINDOW, bool PAIRED, class JOB>
__device__ __forceinline__ void forward_produce(const forward_params &p, const forward_barriers &bar, uint32_t base,
                                                volatile JOB *slots, int split, int rank)
{
    constexpr bool PACKED = is_packed<JOB>;
    constexpr int GROUPS = MEM::ROWS / 64;
    using tile_q = typename MEM::tile_q;
    using tile_kv = typename MEM::tile_kv;
    using tile_v = typename MEM::tile_v;
    ring<MEM::Q_STAGES> q;
    ring<MEM::STAGES> k, v;
    ring<2> jobs;
    paired_numbers<MEM> numbers;
    int tiles = 0;
    if constexpr (PACKED) {
        wait_for_previous_kernel(); /* it made the list */
        tiles = p.list->count;
    }
    for (int number = blockIdx.x / (PAIRED ? 2 : split);; jobs.next()) {
        const JOB job = [&] {
            if constexpr (PACKED)
                return packed_decode<MEM::ROWS, BN>(p, number, tiles);
            else if constexpr (PAIRED)
                return forward_decode<2 * MEM::ROWS, BN, CAUSAL, WINDOW>(p, number, 1, 0);
            else
                return forward_decode<MEM::ROWS, BN, CAUSAL, WINDOW>(p, number, split, rank);
        }();
        int q_begin = 0, k_begin = 0; /* rows of the tensors before the job's document */
        mbarrier_wait(bar.job_empty(jobs.slot), jobs.parity ^ 1);
        volatile JOB &slot = slots[jobs.slot];
        if constexpr (PACKED) {
            q_begin = job.q_begin, k_begin = job.k_begin;
            slot.seq_q = job.seq_q, slot.seq_k = job.seq_k, slot.q_begin = job.q_begin;
        }
        slot.bh = job.bh, slot.b = job.b, slot.h = job.h, slot.row_first = job.row_first;
        slot.block_begin = job.block_begin, slot.block_end = job.block_end;
        mbarrier_arrive(bar.job_full(jobs.slot));
        if (job.bh < 0)
            break;
        wait_for_previous_kernel(); /* only now: what came before ran under its end */
        if (job.block_begin < job.block_end) {
            mbarrier_wait(bar.q_empty(q.slot), q.parity ^ 1);
            mbarrier_expect(bar.q_full(q.slot), tile_q::BYTES);
            const uint32_t to = base + MEM::Q + q.slot * tile_q::BYTES;
            if constexpr (PAIRED) {
#pragma unroll
                for (int group = 0; group < GROUPS; group++)
                    load_tile<tile_q>(to + group * 64 * ROW_BYTES, &p.q_map, bar.q_full(q.slot),
                                      job.row_first + forward_group_row<GROUPS, true, CAUSAL>(group, rank), job.h,
                                      job.b, p.batch);
            } else {
                load_tile<tile_q>(to, &p.q_map, bar.q_full(q.slot), q_begin + job.row_first, job.h, job.b, p.batch);
            }
            q.next();
        }
        for (int j = job.block_end - 1; j >= job.block_begin - 1; j--) {
            if (j >= job.block_begin) {
                mbarrier_wait(bar.k_empty(k.slot), k.parity ^ 1);
                mbarrier_expect(bar.k_full(k.slot), tile_kv::BYTES);
                const uint32_t to = base + MEM::K + k.slot * tile_kv::BYTES;
                if constexpr (PAIRED)
                    load_tile_both<tile_kv>(to, &p.k_map, bar.k_full(k.slot), j * BN, job.h_kv, job.b, rank);
                else
                    load_tile<tile_kv>(to, &p.k_map, bar.k_full(k.slot), k_begin + j * BN, job.h_kv, job.b, p.batch);
                k.next();
            }
            if (j < job.block_end - 1) {
                mbarrier_wait(bar.v_empty(v.slot), v.parity ^ 1);
                mbarrier_expect(bar.v_full(v.slot), tile_v::BYTES);
                const uint32_t to = base + MEM::V + v.slot * tile_v::BYTES;
                if constexpr (PAIRED)
                    load_tile_both<tile_v>(to, &p.v_map, bar.v_full(v.slot), (j + 1) * BN, job.h_kv, job.b, rank);
                else
                    load_tile<tile_v>(to, &p.v_map, bar.v_full(v.slot), k_begin + (j + 1) * BN, job.h_kv, job.b,
                                      p.batch);
                v.next();
            }
        }
        /* as late as possible: jobs are given out longest first. A cluster that shares a tile has one job. */
        if constexpr (PAIRED)
            number = numbers.next(p, bar, base, rank);
        else
            number = split > 1 ? INT_MAX : gridDim.x + (int)atomicAdd(p.next_job, 1);
    }
    if (split == 1 && atomicAdd(p.next_job + 1, 1) == gridDim.x - 1) { /* the last one leaves them zero */
        p.next_job[0] = 0;
        p.next_job[1] = 0;
    }
}

/* Q of a warp's 16 rows as operands: 16 columns a step. rows: address of the warpgroup's 64 rows. */
template <class TILE, int STEPS>
__device__ __forceinline__ void load_queries(uint32_t (&a)[STEPS][4], uint32_t rows)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        load_matrix4(rows + k / 4 * TILE::PANEL_BYTES + row * ROW_BYTES + ((k % 4 * 2 + lane / 16) ^ row % 8) * 16,
                     a[k]);
}

/* ---- softmax of one block of scores in registers ---- */

/* Lazy maximum: the running maximum that probabilities are relative to need not be the true one, only the same for O and the
 * sum. It moves only when a row's true one exceeds it by more than 8 in log2 units, so O is rarely rescaled, and probabilities
 * stay below 2^8, which bf16 and fp16 can hold. (As in FlashAttention-4.) */
constexpr float LAZY_LIMIT = 8; /* log2 units */

/* Scores of one key block to probabilities in place; factor is what older sums and O must be multiplied by. False: the
 * factors of the whole warp are 1. */
template <bool LAZY, int BN>
__device__ __forceinline__ bool softmax_block(float (&s)[BN / 2], row_state &rows, float (&factor)[2], float c)
{
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = fmaxf(s[2 * r], s[2 * r + 1]), top2 = fmaxf(s[4 + 2 * r], s[4 + 2 * r + 1]);
#pragma unroll
        for (int j = 2; j < BN / 8; j += 2) {
            top = fmaxf(top, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
            top2 = fmaxf(top2, fmaxf(s[4 * j + 4 + 2 * r], s[4 * j + 4 + 2 * r + 1]));
        }
        top = fmaxf(rows.max[r], quad_max(fmaxf(top, top2)));
        if constexpr (LAZY) {
            if ((top - rows.max[r]) * c > LAZY_LIMIT) /* not when both are -inf */
                moved = true;
            else
                top = rows.max[r];
        }
        const float finite_top = top == -INFINITY ? 0.f : top, shift = finite_top * c; /* no keys so far: exp2(-inf) */
        /* the difference first: a fused multiply-add would leave the product's rounding, a factor not quite 1 while the
         * maximum stays, and a drift over many blocks */
        factor[r] = exp2_approx((rows.max[r] - finite_top) * c);
        rows.max[r] = top;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < BN / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float p = exp2_approx(fmaf(s[4 * j + 2 * r + e], c, -shift));
                s[4 * j + 2 * r + e] = p;
                sum += p;
            }
        rows.sum[r] = rows.sum[r] * factor[r] + sum;
    }
    return LAZY ? __any_sync(~0u, moved) : true;
}

/* The softmax of scores that are f times as large, f a power of two: no product is rounded but that of the exponent, whose error is then
 * one of its own size and not of the scores'. */
template <int BN>
__device__ __forceinline__ void softmax_scaled(float (&s)[BN / 2], row_state &rows, float (&factor)[2], float c,
                                               float f)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = fmaxf(s[2 * r], s[2 * r + 1]);
#pragma unroll
        for (int j = 1; j < BN / 8; j++)
            top = fmaxf(top, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
        top = fmaxf(rows.max[r], quad_max(top) * f);
        const float finite_top = top == -INFINITY ? 0.f : top; /* no keys so far: exp2(-inf) */
        factor[r] = exp2_approx((rows.max[r] - finite_top) * c);
        rows.max[r] = top;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < BN / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float p = exp2_approx(fmaf(s[4 * j + 2 * r + e], f, -finite_top) * c);
                s[4 * j + 2 * r + e] = p;
                sum += p;
            }
        rows.sum[r] = fmaf(rows.sum[r], factor[r], sum);
    }
}

/* Keys at or past the limit of a row get -inf. limit[r] counts from this thread's first column of the block. */
template <int BN>
__device__ __forceinline__ void mask_block(float (&s)[BN / 2], const int (&limit)[2])
{
#pragma unroll
    for (int j = 0; j < BN / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (8 * j + (e & 1) >= limit[e >> 1])
                s[4 * j + e] = -INFINITY;
}

/* Hides the keys before the limit. */
template <int BN>
__device__ __forceinline__ void mask_block_before(float (&s)[BN / 2], const int (&limit)[2])
{
#pragma unroll
    for (int j = 0; j < BN / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (8 * j + (e & 1) < limit[e >> 1])
                s[4 * j + e] = -INFINITY;
}

/* Hides what documents and windows hide of the scores of keys from `first_key` on, for the rows of a group from `first_row` on. `row`
 * and row + 8 are this thread's, `column` its first key of the block. (The kernel without documents has the same code inline: as a
 * function call, ptxas would order its instructions differently.) */
template <int BN>
__device__ __forceinline__ void mask_document(float (&s)[BN / 2], const document_lengths &of, int first_row, int row,
                                              int first_key, int column)
{
    const int past = of.seq_k - of.seq_q, begin = first_key + column;
    if (first_key + BN > min(of.seq_k, first_row + past + of.window_right + 1)) {
        const int end[2] = {min(of.seq_k, row + past + of.window_right + 1) - begin,
                            min(of.seq_k, row + 8 + past + of.window_right + 1) - begin};
        mask_block<BN>(s, end);
    }
    if (first_key < first_row + 63 + past - of.window_left) {
        const int first[2] = {row + past - of.window_left - begin, row + 8 + past - of.window_left - begin};
        mask_block_before<BN>(s, first);
    }
}

/* ---- the kernel ---- */

/* Columns of Q that a group holds in registers as operands, as many as there is room for: all from 80 to 128 (with three groups 80),
 * and 64 of 192. It reads the others from shared memory for each block of keys. */
__host__ __device__ constexpr int query_columns(int parts, int d, int groups)
{
    return parts > 1 || d <= 64 ? 0 : d <= (groups < 3 ? 128 : 80) ? d : d == 192 ? 64 : 0;
}

/* WINDOW: a query also sees no key that is more than window_left before its own; comes with CAUSAL and without CLUSTERS. PACKED: a
 * tile belongs to one document; comes with WINDOW. Keys of the next document that a box holds are masked like keys past the end, and
 * its queries are not stored. PAIRED: the two blocks of a cluster have adjacent tiles of the same head, and each loads half of K and V
 * into both: half of the traffic from L2.
 * (The function is long because its stages share its registers. As methods of a struct the same stages compile to slightly
 * different machine code, whose speed has not been measured.) */
template <class T, int PARTS, int D, int DV, int BN, int GROUPS, bool CAUSAL, bool CLUSTERS, bool WINDOW = false,
          bool PACKED = false, bool PAIRED = false>
__global__ void __launch_bounds__(128 * (GROUPS + 1), 1) flash_forward(const __grid_constant__ forward_params p)
{
    using job_of = typename job_type<PACKED>::type;
    using mem = forward_memory<PARTS, D, DV, BN, GROUPS, CLUSTERS, job_of>;
    using tile_q = typename mem::tile_q;
    using tile_kv = typename mem::tile_kv;
    using tile_v = typename mem::tile_v;
    constexpr int QUERY_STEPS = query_columns(PARTS, D, GROUPS) / 16;
    constexpr bool Q_REGISTERS = QUERY_STEPS == D / 16; /* all of it */
    constexpr bool SCALED = scaled_parts<T, PARTS>;
    constexpr bool TILE_STORES = PARTS == 1 && mem::Q_STAGES == 2; /* O leaves by way of Q: see store_tile_rows */
    /* Operands of P in two sets that alternate: one is written while P V reads the other, so that the conversions run among the
     * exponentials and not behind them. (3.5 to 5 % at D 64. With less room in registers, so everywhere else, ptxas puts a
     * wait behind each product instead.) */
    constexpr bool TWO_SETS = PARTS == 1 && D <= 64 && GROUPS < 3;
    constexpr int PRODUCER_REGISTERS = GROUPS == 1 ? 64 : GROUPS == 2 ? 40 : 32;
    constexpr int CONSUMER_REGISTERS = GROUPS == 1 ? 240 : GROUPS == 2 ? 232 : 160;
    static_assert(!PACKED || WINDOW, "documents have the masks of windows");
    static_assert(!WINDOW || (CAUSAL && !CLUSTERS && PARTS == 1), "what a window goes with");
    static_assert(!PAIRED || (!CLUSTERS && !WINDOW && PARTS == 1), "what pairs go with");
    extern __shared__ __align__(1024) unsigned char smem[];
    const uint32_t base = smem_u32(smem);
    const forward_barriers bar = {base + mem::BARRIERS};
    const int warpgroup = uniform(threadIdx.x / 128);
    const int split = CLUSTERS ? cluster_size() : 1, rank = CLUSTERS || PAIRED ? cluster_rank() : 0;
    volatile job_of *const job_slots = (volatile job_of *)(smem + mem::JOBS);

    if (threadIdx.x == 0)
        forward_init<mem, GROUPS, PAIRED>(p, bar);
    if (PAIRED)
        cluster_sync();
    else
        __syncthreads();
    let_next_kernel_start();

    if (warpgroup == 0) {
        registers_lower<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            forward_produce<mem, BN, CAUSAL, WINDOW, PAIRED>(p, bar, base, job_slots, split, rank);
        if (split > 1) { /* the block's shared memory must outlive its readers */
            __syncwarp();
            cluster_wait();
            cluster_wait();
        }
        if (PAIRED) { /* and its barriers must outlive arrivals */
            __syncwarp();
            cluster_sync();
        }
        return;
    }

    registers_raise<CONSUMER_REGISTERS>();
    const int wg = warpgroup - 1, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int group_row =
        forward_group_row<GROUPS, PAIRED, CAUSAL>(wg, rank); /* the group's first row within the job */
    const int row_local = group_row + warp * 16 + lane / 4;  /* this thread's first row; the other is 8 below */
    const int column = 2 * (lane % 4);
    const int offset =
        p.seq_k - p.seq_q + (WINDOW ? p.window_right : 0); /* causal: query i sees keys j <= i + offset */
    const bool leader = lane == 0;
    const float c = p.scale_log2;

    wait_for_previous_kernel();
    if (GROUPS > 1 && wg == GROUPS - 1)
        named_arrive(TURN_BARRIER, 256); /* the first turn is group 0's */
    ring<mem::Q_STAGES> q;
    ring<mem::STAGES> k, v;
    ring<2> jobs;
    auto next_job = [&] {
        mbarrier_wait(bar.job_full(jobs.slot), jobs.parity);
        const volatile job_of &slot = job_slots[jobs.slot];
        job_of job = {};
        job.bh = read_uniform(slot.bh), job.b = read_uniform(slot.b), job.h = read_uniform(slot.h);
        job.row_first = read_uniform(slot.row_first);
        job.block_begin = read_uniform(slot.block_begin), job.block_end = read_uniform(slot.block_end);
        if constexpr (PACKED)
            job.seq_q = read_uniform(slot.seq_q), job.seq_k = read_uniform(slot.seq_k),
            job.q_begin = read_uniform(slot.q_begin);
        __syncwarp();
        if (leader)
            mbarrier_arrive(bar.job_empty(jobs.slot));
        jobs.next();
        return job;
    };
    auto take_turn = [&] {
        if (GROUPS > 1)
            named_sync(TURN_BARRIER + wg, 256);
    };
    auto pass_turn = [&] {
        if (GROUPS > 1)
            named_arrive(TURN_BARRIER + (wg + 1) % GROUPS, 256);
    };
    const uint32_t other =
        PAIRED ? cluster_map(base, rank ^ 1) - base : 0; /* from a place here to that of the other block */
    auto release_k = [&] {
        if (leader)
            mbarrier_arrive(bar.k_empty(k.slot));
        if (PAIRED && leader)
            mbarrier_arrive_remote(bar.k_empty(k.slot) + other);
        k.next();
    };
    auto release_v = [&] {
        if (leader)
            mbarrier_arrive(bar.v_empty(v.slot));
        if (PAIRED && leader)
            mbarrier_arrive_remote(bar.v_empty(v.slot) + other);
        v.next();
    };
    auto release_q = [&] {
        __syncwarp(); /* Q in registers: every lane has read its own */
        if (leader)
            mbarrier_arrive(bar.q_empty(q.slot));
        q.next();
    };

    using out = typename memory_type<T, PARTS>::type;
    float s[BN / 2], o[DV / 2], factor[2], inverse[2];
    /* SCALED: probabilities are multiplied by 2^14 to become parts. Inverse scales of this group's queries, of the block of keys whose
     * scores are computed, and of the one before it, whose P V is; the place of the head's first among them. */
    constexpr float P_SCALE = 1 << 14;
    float q_inverse = 1, k_inverse = 1, v_inverse = 1 / P_SCALE;
    int64_t kv_place = 0;
    float fresh[PARTS == 1 ? 1 : DV / 2]; /* fp32: P V of one block, added by rounding (see mma_rs_rounded) */
    using operands = uint32_t[PARTS][BN / 4];
    operands prob, next_prob; /* next_prob: if TWO_SETS */
    uint32_t query[QUERY_STEPS ? QUERY_STEPS : 1][4];
    row_state rows;
    bool leaving = false; /* if TILE_STORES: O of the tile before leaves from the other slot of Q */

    /* End of the key blocks that a row of this group sees. */
    auto own_end = [&](const job_of &job) {
        const int row = job.row_first + group_row;
        if constexpr (PACKED)
            return row < job.seq_q ? min(job.block_end, forward_blocks<64, BN, true, true>(lengths_of(p, job), row))
                                   : job.block_begin;
        else
            return row < p.seq_q ? min(job.block_end, forward_blocks<64, BN, CAUSAL, WINDOW>(p, row)) : job.block_begin;
    };
    /* The first of these blocks. */
    auto own_begin = [&](const job_of &job, int end) {
        if constexpr (PACKED)
            return max(job.block_begin, forward_first_block<BN>(lengths_of(p, job), job.row_first + group_row, end));
        else
            return WINDOW ? max(job.block_begin, forward_first_block<BN>(p, job.row_first + group_row, end))
                          : job.block_begin;
    };
    auto target_of = [&](const job_of &job) {
        if constexpr (PACKED)
            return merge_target{(out *)p.o + job.h * p.o_stride_h + job.q_begin * p.o_stride_s,
                                p.o_stride_s,
                                p.lse + (int64_t)job.bh * p.seq_q + job.q_begin,
                                job.row_first,
                                job.seq_q,
                                p.head_dim_v,
                                p.scale,
                                p.scale_log2};
        return merge_target{(out *)p.o + job.b * p.o_stride_b + job.h * p.o_stride_h,
                            p.o_stride_s,
                            p.lse + (int64_t)job.bh * p.seq_q,
                            job.row_first,
                            p.seq_q,
                            p.head_dim_v,
                            p.scale,
                            c};
    };
    auto issue_scores = [&] {
        const uint32_t k_addr = base + mem::K + k.slot * tile_kv::BYTES;
        wgmma_fence();
        if constexpr (QUERY_STEPS > 0) {
            const uint64_t a0 = tile_q::descriptor(base + mem::Q + q.slot * tile_q::BYTES + wg * 64 * ROW_BYTES, 16);
            const uint64_t b0 = tile_kv::descriptor(k_addr, 16);
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                if (i < QUERY_STEPS)
                    wgmma<T, BN, 0>(s, query[i < QUERY_STEPS ? i : 0], b0 + (tile_kv::step(i) >> 4), i != 0);
                else
                    wgmma<T, BN, 0, 0>(s, a0 + (tile_q::step(i) >> 4), b0 + (tile_kv::step(i) >> 4), i != 0);
        } else {
            mma_abt<T, tile_q, tile_kv, BN, D>(s, base + mem::Q + q.slot * tile_q::BYTES + wg * 64 * ROW_BYTES, k_addr);
        }
        wgmma_commit();
    };
    auto issue_values = [&](auto &sum, const operands &from, int accumulate) {
        mbarrier_wait(bar.v_full(v.slot), v.parity);
        wgmma_fence();
        mma_rs<T, tile_v, DV>(sum, from, base + mem::V + v.slot * tile_v::BYTES, accumulate);
        wgmma_commit();
    };
    auto pin_operands = [&](operands &x) {
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            pin(x[i]);
    };
    /* j: key block */
    auto load_inverse = [&](float &x, const float *of, int j) {
        if constexpr (SCALED)
            x = of[kv_place + j * BN / FP32_PARTS_KEY_ROWS];
    };
    auto scores_to_probabilities = [&](const job_of &job, int j) {
        const int row = job.row_first + row_local;
        if constexpr (PACKED) {
            mask_document<BN>(s, lengths_of(p, job), job.row_first + group_row, row, j * BN, column);
        } else {
            const bool tail =
                (j + 1) * BN > p.seq_k || (CAUSAL && (j + 1) * BN > job.row_first + group_row + offset + 1);
            if (tail) {
                int limit[2];
#pragma unroll
                for (int r = 0; r < 2; r++)
                    limit[r] = min(p.seq_k, CAUSAL ? row + 8 * r + offset + 1 : p.seq_k) - j * BN - column;
                mask_block<BN>(s, limit);
            }
            if (WINDOW && j * BN < job.row_first + group_row + 63 + p.seq_k - p.seq_q - p.window_left) {
                int limit[2];
#pragma unroll
                for (int r = 0; r < 2; r++)
                    limit[r] = row + 8 * r + p.seq_k - p.seq_q - p.window_left - j * BN - column;
                mask_block_before<BN>(s, limit);
            }
        }
        if constexpr (SCALED) {
            softmax_scaled<BN>(s, rows, factor, c, fmaxf(q_inverse * k_inverse, FLT_MIN)); /* -inf 0 is not -inf */
            return true;
        } else {
            return softmax_block<PARTS == 1, BN>(s, rows, factor, c);
        }
    };
    auto start_rows = [&] {
#pragma unroll
        for (int r = 0; r < 2; r++)
            rows.max[r] = -INFINITY, rows.sum[r] = 0;
#pragma unroll
        for (int i = 0; i < DV / 2; i++)
            o[i] = 0;
    };
    auto wait_for_queries = [&] {
        mbarrier_wait(bar.q_full(q.slot), q.parity);
        if constexpr (QUERY_STEPS > 0)
            load_queries<tile_q>(query, base + mem::Q + q.slot * tile_q::BYTES + wg * 64 * ROW_BYTES);
        if constexpr (TILE_STORES) {
            if (leaving) {
                tma_store_wait_read();
                __syncwarp();
                if (leader)
                    mbarrier_arrive(bar.q_empty(q.slot ^ 1));
            }
            leaving = true;
        } else if constexpr (Q_REGISTERS) {
            release_q();
        }
    };

    for (job_of job = next_job(); job.bh >= 0; job = next_job()) {
        const int last = own_end(job), first_block = own_begin(job, last), row = job.row_first + row_local;
        start_rows();
        if constexpr (SCALED) {
            const int group = min((job.row_first + group_row) / FP32_PARTS_QUERY_ROWS, p.q_groups - 1);
            q_inverse = p.q_inverse[(int64_t)job.bh * p.q_groups + group];
            kv_place = (int64_t)(job.bh / p.heads * (p.heads / p.group) + job.h / p.group) * p.kv_groups;
        }
        if (job.block_begin < job.block_end) {
            wait_for_queries();
            for (int j = job.block_end - 1; j >= last; j--) { /* no row of this group sees these keys */
                mbarrier_wait(bar.k_full(k.slot), k.parity);  /* else the arrival might count for the loads before */
                release_k();
                if (j > job.block_begin) {
                    take_turn();
                    pass_turn();
                }
                mbarrier_wait(bar.v_full(v.slot), v.parity);
                release_v();
            }
            if (last > first_block) {
                mbarrier_wait(bar.k_full(k.slot), k.parity);
                load_inverse(k_inverse, p.k_inverse, last - 1);
                issue_scores();
                wgmma_wait<0>();
                pin(s);
                release_k();
                scores_to_probabilities(job, last - 1);
                to_operand<T, PARTS, BN / 4>(prob, s, P_SCALE);
            }
            /* Scores of block j under P V of block j + 1, whose P is in `from`; leaves P of block j in `to`. */
            auto step = [&](int j, operands &from, operands &to) {
                mbarrier_wait(bar.k_full(k.slot), k.parity);
                load_inverse(k_inverse, p.k_inverse, j);
                load_inverse(v_inverse, p.v_inverse, j + 1);
                take_turn();
                pin_operands(from);
                pin(o);
                issue_scores();
                if constexpr (PARTS == 1)
                    issue_values(o, from, 1);
                else
                    issue_values(fresh, from, 0);
                pass_turn();
                wgmma_wait<1>();
                pin(s);
                release_k();
                const bool moved = scores_to_probabilities(job, j);
                auto values_are_there = [&] {
                    wgmma_wait<0>();
                    if constexpr (PARTS == 1)
                        pin(o);
                    else
                        pin(fresh);
                    pin_operands(from);
                };
                if constexpr (TWO_SETS)
                    to_operand<T, PARTS, BN / 4>(to, s);
                /* A wait on each side of a branch: one behind the softmax ptxas moves in front of it. (fp32 has no
                 * registers for more than one way to O.) */
                if (moved) {
                    values_are_there();
#pragma unroll
                    for (int i = 0; i < DV / 2; i++)
                        o[i] = (PARTS == 1 ? o[i]
                                : SCALED   ? fmaf(fresh[i], v_inverse * (1 / P_SCALE), o[i])
                                           : o[i] + fresh[i]) *
                               factor[i >> 1 & 1];
                } else {
                    values_are_there();
                }
                release_v();
                if constexpr (!TWO_SETS)
                    to_operand<T, PARTS, BN / 4>(to, s, P_SCALE);
            };
            int j = last - 2;
            if constexpr (TWO_SETS) {
                for (; j > first_block; j -= 2) {
                    step(j, prob, next_prob);
                    step(j - 1, next_prob, prob);
                }
                if (j == first_block) {
                    step(j, prob, next_prob);
#pragma unroll
                    for (int i = 0; i < BN / 4; i++)
                        prob[0][i] = next_prob[0][i];
                }
            } else {
                for (; j >= first_block; j--)
                    step(j, prob, prob);
            }
            if constexpr (!Q_REGISTERS && !TILE_STORES)
                release_q();
            if (last > first_block) {
                pin_operands(prob);
                if constexpr (SCALED) {
                    load_inverse(v_inverse, p.v_inverse, job.block_begin);
                    issue_values(fresh, prob, 0);
                    wgmma_wait<0>();
                    pin(fresh);
#pragma unroll
                    for (int i = 0; i < DV / 2; i++)
                        o[i] = fmaf(fresh[i], v_inverse * (1 / P_SCALE), o[i]);
                } else {
                    pin(o);
                    issue_values(o, prob, 1);
                    wgmma_wait<0>();
                    pin(o);
                }
                release_v();
#pragma unroll
                for (int r = 0; r < 2; r++)
                    rows.sum[r] = quad_sum(rows.sum[r]);
            }
            if constexpr (WINDOW) {
                for (int i = first_block - 1; i >= job.block_begin; i--) { /* no row of this group sees these either */
                    mbarrier_wait(bar.k_full(k.slot), k.parity);
                    release_k();
                    take_turn();
                    pass_turn();
                    mbarrier_wait(bar.v_full(v.slot), v.parity);
                    release_v();
                }
            }
        }
        if constexpr (CLUSTERS) {
            if (split > 1) { /* a cluster has one job */
                merge_cluster<mem, out, DV, GROUPS>(smem, split, rank, target_of(job), o, rows, row_local);
                break;
            }
        }
        finish_rows(target_of(job), rows, row, inverse);
        if constexpr (TILE_STORES) {
            if constexpr (PACKED) /* a box must not reach into the next document; its slot of Q is used up even so */
                if (job.block_begin < job.block_end &&
                    uniform(job.row_first + group_row + warp * 16 + 16 > job.seq_q)) {
                    store_rows<out, DV>(target_of(job), o, inverse, row);
                    q.next();
                    continue;
                }
            if (job.block_begin < job.block_end) {
                const int first = uniform(wg * 64 + warp * 16);
                int o_row = 0;
                if constexpr (PACKED)
                    o_row = job.q_begin;
                if constexpr (PAIRED)
                    o_row = group_row - wg * 64;
                store_tile_rows<T, tile_q, DV>(base + mem::Q + q.slot * tile_q::BYTES + first * ROW_BYTES, &p.o_map, o,
                                               inverse, o_row + job.row_first + first, job.h, job.b);
                q.next();
                continue;
            }
        }
        store_rows<out, DV>(target_of(job), o, inverse, row);
    }
    if (TILE_STORES)
        tma_store_wait_read(); /* the block's shared memory must outlive them */
    if (GROUPS > 1 && wg == 0)
        named_sync(TURN_BARRIER, 256); /* takes the turn that is left over */
    if (PAIRED)
        cluster_sync();
}

/* DV: columns of V. */
template <class T, int PARTS, int D, int BN, int GROUPS, bool CLUSTERS, int DV = D, bool PAIRED = false>
forward_instance make_forward_instance()
{
    using mem = forward_memory<PARTS, D, DV, BN, GROUPS, CLUSTERS>;
    return {D,
            DV,
            GROUPS,
            BN,
            mem::PANEL,
            mem::BYTES,
            CLUSTERS,
            PAIRED,
            flash_forward<T, PARTS, D, DV, BN, GROUPS, false, CLUSTERS, false, false, PAIRED>,
            flash_forward<T, PARTS, D, DV, BN, GROUPS, true, CLUSTERS, false, false, PAIRED>};
}

/* An instance for pairs: two tiles share K and V. */
template <class T, int D, int BN, int GROUPS, int DV = D>
forward_instance make_paired_instance()
{
    return make_forward_instance<T, 1, D, BN, GROUPS, false, DV, true>();
}

/* An instance for packed documents, whatever the mask. */
template <class T, int D, int BN, int GROUPS, int DV = D>
forward_instance make_packed_instance()
{
    using mem = forward_memory<1, D, DV, BN, GROUPS, false, packed_job>;
    const auto kernel = flash_forward<T, 1, D, DV, BN, GROUPS, true, false, true, true>;
    return {D, DV, GROUPS, BN, mem::PANEL, mem::BYTES, false, false, kernel, kernel};
}

/* An instance for windows, causal or not. */
template <class T, int D, int BN, int GROUPS, int DV = D>
forward_instance make_window_instance()
{
    using mem = forward_memory<1, D, DV, BN, GROUPS, false>;
    const auto kernel = flash_forward<T, 1, D, DV, BN, GROUPS, true, false, true>;
    return {D, DV, GROUPS, BN, mem::PANEL, mem::BYTES, false, false, kernel, kernel};
}

} // namespace flash_hopper
