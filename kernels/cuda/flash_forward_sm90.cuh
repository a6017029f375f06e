/* FlashAttention forward for Hopper: the kernel. Launched by flash_forward_sm90.cu.
 *
 * Tile: consumer warpgroups of 64 query rows each: two a block, three at D <= 64 when there are tiles enough, one when
 * there are very few; key blocks of BN = 128 (64 for fp32 at D > 64).
 * Shared memory, bytes, D 128, two groups: Q 2 x 32K, K 2 x 32K, V 2 x 32K = 192K (fp32: Q 64K, the same K and V); one
 * group: Q 16K, K and V 3 x 32K each = 208K (fp32: Q 32K).
 * Registers of a consumer thread, D 128: scores 64, operands of P 32, O 64 = 160 of 232; fp32: 32, 32, 64 and 64 for one
 * block's P V; D 64: 128, of 160 with three groups.
 *
 * Schedule (FlashAttention-3, arXiv 2407.08608, section 3): a producer warp loads by TMA through mbarrier rings; a
 * consumer issues the scores of block j, then P V of block j+1 (keys are walked from the diagonal to 0), does the
 * softmax of j while P V runs, then rescales. The groups take turns at issuing, so that one's softmax runs under the
 * others' products.
 *
 * Many tiles: blocks stay and take one after the other, so that the next tile's loads run under this one's end.
 * Few tiles: a cluster of blocks shares one tile, each takes a range of its keys, and they merge their partial O, max
 * and sum through distributed shared memory. The order of the merge is fixed: results are the same on every run. */
#ifndef STEPBENCH_FLASH_FORWARD_SM90_CUH
#define STEPBENCH_FLASH_FORWARD_SM90_CUH

#include "kernels/cuda/flash_sm90.cuh"

namespace flash_sm90
{

struct forward_params {
    CUtensorMap q_map, k_map, v_map;
    void *o;                                    /* (B, H, Sq, D) */
    int64_t o_stride_b, o_stride_h, o_stride_s; /* elements */
    float *lse;                                 /* (B, H, Sq) */
    int batch, heads, group, seq_q, seq_k, head_dim;
    int tiles;          /* row tiles of one head */
    unsigned *next_job; /* two zeros: jobs given out beyond the first of each block; blocks done */
    int section;        /* heads walked together, so that their K and V stay in L2 */
    float scale, scale_log2;
};

/* GROUPS: consumer warpgroups, each 64 query rows of the block. */
template <int PLANES, int DP, int BN, int GROUPS>
struct forward_memory {
    static constexpr int ROWS = 64 * GROUPS;
    static constexpr int STAGES = GROUPS == 1 ? 3 : 2; /* of K and V; one group alone hides less of a load */
    using tile_q = tile<PLANES, ROWS, DP>;
    using tile_kv = tile<PLANES, BN, DP>;
    /* two query tiles where they fit, so that the next tile's is there when this one's ends */
    static constexpr int Q_STAGES = 2 * tile_q::BYTES + 2 * STAGES * tile_kv::BYTES <= 200 << 10 ? 2 : 1;
    static constexpr int Q = 0;
    static constexpr int K = Q + Q_STAGES * tile_q::BYTES;
    static constexpr int V = K + STAGES * tile_kv::BYTES;
    static constexpr int BARRIERS = V + STAGES * tile_kv::BYTES;
    static constexpr int JOB = BARRIERS + 160; /* numbers of this job and the next */
    static constexpr int BYTES = JOB + 8;
    /* merge of a cluster, over K and V: partial O with padded rows, then max and sum */
    static constexpr int MERGE_PITCH = DP + 8; /* floats */
    static constexpr int MERGE_MAX = K + ROWS * MERGE_PITCH * 4;
    static constexpr int MERGE_SUM = MERGE_MAX + ROWS * 4;
    static_assert(MERGE_SUM + ROWS * 4 <= BARRIERS, "the merge fits over K and V");
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
};

/* One row tile of one head, and the key blocks this block walks for it. */
struct forward_job {
    int bh, b, h, h_kv, row_first, block_begin, block_end;
};

/* Jobs are numbered longest first within a section of heads. */
template <int ROWS, int BN, bool CAUSAL>
__device__ __forceinline__ forward_job forward_decode(const forward_params &p, int number, int split, int rank)
{
    forward_job job;
    const int first_head = number / (p.section * p.tiles) * p.section;
    const int section_heads = min(p.section, p.batch * p.heads - first_head);
    const int in_section = number - first_head * p.tiles;
    const int tile_index = in_section / section_heads;
    job.bh = first_head + in_section - tile_index * section_heads;
    job.b = job.bh / p.heads, job.h = job.bh - job.b * p.heads, job.h_kv = job.h / p.group;
    job.row_first = (CAUSAL ? p.tiles - 1 - tile_index : tile_index) * ROWS;
    const int keys = CAUSAL ? min(p.seq_k, max(0, job.row_first + ROWS + p.seq_k - p.seq_q)) : p.seq_k;
    const int blocks = (keys + BN - 1) / BN;
    job.block_begin = blocks * rank / split, job.block_end = blocks * (rank + 1) / split;
    return job;
}

/* Named barriers. A turn is 256 threads: the waiting group's and the arriving group's; group g waits on TURN + g. */
enum { CONSUMER_BARRIER = 1, TURN_BARRIER = 2 };

/* Running max (unscaled) and sum of the two rows a thread holds. */
struct row_state {
    float max[2], sum[2];
};

/* Scores of one key block to probabilities in place; factor is what older sums and O must be multiplied by. */
template <int BN>
__device__ __forceinline__ void softmax_block(float (&s)[BN / 2], row_state &rows, float (&factor)[2], float c)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = fmaxf(s[2 * r], s[2 * r + 1]);
#pragma unroll
        for (int j = 1; j < BN / 8; j++)
            top = fmaxf(top, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
        top = fmaxf(rows.max[r], quad_max(top));
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

/* Where the rows of a tile go. */
struct merge_target {
    void *o;
    int64_t stride_s;
    float *lse;
    int row_first, seq_q, head_dim;
    float scale, scale_log2;
};

/* This block's share of a tile's rows from the partial results of all SPLIT blocks. Every load is issued before the
 * first is used: distributed shared memory answers in about a microsecond, however many ask. */
template <class MEM, class OUT, int DP, int GROUPS, int SPLIT>
__device__ __forceinline__ void merge_rows(uint32_t base, int rank, const merge_target &t)
{
    constexpr int SHARE = MEM::ROWS / SPLIT,
                  UNITS = SHARE * (DP / 4) / (128 * GROUPS); /* units of 4 columns a thread */
    static_assert(UNITS * 128 * GROUPS == SHARE * (DP / 4), "whole units");
    const int thread = threadIdx.x - 128;
    float top[UNITS][SPLIT], sum[UNITS][SPLIT];
    float4 part[UNITS][SPLIT];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = u * 128 * GROUPS + thread, row = rank * SHARE + unit / (DP / 4), d = unit % (DP / 4) * 4;
#pragma unroll
        for (int n = 0; n < SPLIT; n++) {
            top[u][n] = cluster_load(cluster_map(base + MEM::MERGE_MAX + row * 4, n));
            sum[u][n] = cluster_load(cluster_map(base + MEM::MERGE_SUM + row * 4, n));
            part[u][n] = cluster_load4(cluster_map(base + MEM::K + (row * MEM::MERGE_PITCH + d) * 4, n));
        }
    }
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = u * 128 * GROUPS + thread, d = unit % (DP / 4) * 4;
        const int64_t i = t.row_first + rank * SHARE + unit / (DP / 4);
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
        if (i >= t.seq_q || d >= t.head_dim)
            continue;
        const float inverse = total > 0 ? 1 / total : 0;
        OUT *const to = (OUT *)t.o + i * t.stride_s + d;
        store_pair(to, o.x * inverse, o.y * inverse);
        store_pair(to + 2, o.z * inverse, o.w * inverse);
        if (d == 0)
            t.lse[i] = total > 0 ? most * t.scale + logf(total) : -INFINITY;
    }
}

template <class T, int PLANES, int DP, int BN, int GROUPS, bool CAUSAL>
__global__ void __launch_bounds__(128 * (GROUPS + 1), 1) flash_forward(const __grid_constant__ forward_params p)
{
    using mem = forward_memory<PLANES, DP, BN, GROUPS>;
    using tile_q = typename mem::tile_q;
    using tile_kv = typename mem::tile_kv;
    constexpr int PRODUCER_REGISTERS = GROUPS == 1 ? 64 : GROUPS == 2 ? 40 : 32;
    constexpr int CONSUMER_REGISTERS = GROUPS == 1 ? 240 : GROUPS == 2 ? 232 : 160;
    extern __shared__ __align__(1024) unsigned char smem[];
    const uint32_t base = smem_u32(smem);
    const forward_barriers bar = {base + mem::BARRIERS};
    const int warpgroup = threadIdx.x / 128;

    const int split = cluster_size(), rank = cluster_rank();
    const int jobs = p.batch * p.heads * p.tiles;
    volatile int *const job_number = (volatile int *)(smem + mem::JOB);

    if (threadIdx.x == 0) {
        tma_prefetch(&p.q_map);
        tma_prefetch(&p.k_map);
        tma_prefetch(&p.v_map);
        for (int s = 0; s < 2; s++) {
            mbarrier_init(bar.q_full(s), 1);
            mbarrier_init(bar.job_full(s), 1);
            mbarrier_init(bar.q_empty(s), 4 * GROUPS); /* one arrival a consumer warp */
            mbarrier_init(bar.job_empty(s), 4 * GROUPS);
        }
        for (int s = 0; s < mem::STAGES; s++) {
            mbarrier_init(bar.k_full(s), 1);
            mbarrier_init(bar.v_full(s), 1);
            mbarrier_init(bar.k_empty(s), 4 * GROUPS);
            mbarrier_init(bar.v_empty(s), 4 * GROUPS);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    let_next_kernel_start();

    if (warpgroup == 0) {
        registers_lower<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) {
            ring<mem::Q_STAGES> q;
            ring<mem::STAGES> k, v;
            ring<2> turn;
            for (int number = blockIdx.x / split;; turn.next()) {
                mbarrier_wait(bar.job_empty(turn.slot), turn.parity ^ 1);
                job_number[turn.slot] = number;
                mbarrier_arrive(bar.job_full(turn.slot));
                if (number >= jobs)
                    break;
                const forward_job job = forward_decode<mem::ROWS, BN, CAUSAL>(p, number, split, rank);
                wait_for_previous_kernel(); /* only now: what came before ran under its end */
                if (job.block_begin < job.block_end) {
                    mbarrier_wait(bar.q_empty(q.slot), q.parity ^ 1);
                    mbarrier_expect(bar.q_full(q.slot), tile_q::BYTES);
                    load_tile<tile_q>(base + mem::Q + q.slot * tile_q::BYTES, &p.q_map, bar.q_full(q.slot),
                                      job.row_first, job.h, job.b, p.batch);
                    q.next();
                }
                for (int j = job.block_end - 1; j >= job.block_begin - 1; j--) {
                    if (j >= job.block_begin) {
                        mbarrier_wait(bar.k_empty(k.slot), k.parity ^ 1);
                        mbarrier_expect(bar.k_full(k.slot), tile_kv::BYTES);
                        load_tile<tile_kv>(base + mem::K + k.slot * tile_kv::BYTES, &p.k_map, bar.k_full(k.slot),
                                           j * BN, job.h_kv, job.b, p.batch);
                        k.next();
                    }
                    if (j < job.block_end - 1) { /* V runs one block behind K, as the consumers do */
                        mbarrier_wait(bar.v_empty(v.slot), v.parity ^ 1);
                        mbarrier_expect(bar.v_full(v.slot), tile_kv::BYTES);
                        load_tile<tile_kv>(base + mem::V + v.slot * tile_kv::BYTES, &p.v_map, bar.v_full(v.slot),
                                           (j + 1) * BN, job.h_kv, job.b, p.batch);
                        v.next();
                    }
                }
                /* not earlier: whoever asks late takes the shorter job. A cluster has one job. */
                number = split > 1 ? jobs : gridDim.x + (int)atomicAdd(p.next_job, 1);
            }
            if (split == 1 && atomicAdd(p.next_job + 1, 1) == gridDim.x - 1) { /* the last one leaves them zero */
                p.next_job[0] = 0;
                p.next_job[1] = 0;
            }
        }
        if (split > 1) { /* the block's shared memory must outlive its readers */
            __syncwarp();
            cluster_sync();
            cluster_sync();
        }
        return;
    }

    registers_raise<CONSUMER_REGISTERS>();
    const int wg = warpgroup - 1, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int row_local = wg * 64 + warp * 16 + lane / 4; /* and + 8 */
    const int column = 2 * (lane % 4);
    const int offset = p.seq_k - p.seq_q; /* causal: query i sees keys j <= i + offset */
    const bool leader = lane == 0;
    const float c = p.scale_log2;

    wait_for_previous_kernel();
    if (GROUPS > 1 && wg == GROUPS - 1)
        named_arrive(TURN_BARRIER, 256); /* the first turn is group 0's */
    ring<mem::Q_STAGES> q;
    ring<mem::STAGES> k, v;
    ring<2> turn;
    for (;; turn.next()) {
        mbarrier_wait(bar.job_full(turn.slot), turn.parity);
        const int number = job_number[turn.slot];
        __syncwarp();
        if (leader)
            mbarrier_arrive(bar.job_empty(turn.slot));
        if (number >= jobs)
            break;
        const forward_job job = forward_decode<mem::ROWS, BN, CAUSAL>(p, number, split, rank);
        const int row = job.row_first + row_local, wg_row = job.row_first + wg * 64;
        row_state rows = {{-INFINITY, -INFINITY}, {0, 0}};
        float s[BN / 2], o[DP / 2], factor[2];
        float part[PLANES == 1 ? 1 : DP / 2]; /* fp32: P V of one block, added by rounding (see mma_rs_rounded) */
        uint32_t prob[PLANES][BN / 4];
#pragma unroll
        for (int i = 0; i < DP / 2; i++)
            o[i] = 0;

        if (job.block_begin < job.block_end) {
            const uint32_t q_addr = base + mem::Q + q.slot * tile_q::BYTES + wg * 64 * ROW_BYTES;

            auto scores_to_probabilities = [&](int j) {
                const bool tail = (j + 1) * BN > p.seq_k || (CAUSAL && (j + 1) * BN > wg_row + offset + 1);
                if (tail) {
                    int limit[2];
#pragma unroll
                    for (int r = 0; r < 2; r++)
                        limit[r] = min(p.seq_k, CAUSAL ? row + 8 * r + offset + 1 : p.seq_k) - j * BN - column;
                    mask_block<BN>(s, limit);
                }
                softmax_block<BN>(s, rows, factor, c);
            };

            mbarrier_wait(bar.q_full(q.slot), q.parity);
            mbarrier_wait(bar.k_full(k.slot), k.parity);
            wgmma_fence();
            mma_abt<T, tile_q, tile_kv, BN>(s, q_addr, base + mem::K + k.slot * tile_kv::BYTES);
            wgmma_commit();
            wgmma_wait<0>();
            pin(s);
            if (leader)
                mbarrier_arrive(bar.k_empty(k.slot));
            k.next();
            scores_to_probabilities(job.block_end - 1);
            to_operand<T, PLANES, BN / 4>(prob, s);

            for (int j = job.block_end - 2; j >= job.block_begin; j--) {
                mbarrier_wait(bar.k_full(k.slot), k.parity);
                if (GROUPS > 1)
                    named_sync(TURN_BARRIER + wg, 256);
#pragma unroll
                for (int i = 0; i < PLANES; i++)
                    pin(prob[i]);
                pin(o);
                wgmma_fence();
                mma_abt<T, tile_q, tile_kv, BN>(s, q_addr, base + mem::K + k.slot * tile_kv::BYTES);
                wgmma_commit();
                mbarrier_wait(bar.v_full(v.slot), v.parity);
                wgmma_fence();
                if constexpr (PLANES == 1)
                    mma_rs<T, tile_kv, DP>(o, prob, base + mem::V + v.slot * tile_kv::BYTES, 1);
                else
                    mma_rs<T, tile_kv, DP>(part, prob, base + mem::V + v.slot * tile_kv::BYTES, 0);
                wgmma_commit();
                if (GROUPS > 1)
                    named_arrive(TURN_BARRIER + (wg + 1) % GROUPS, 256);
                wgmma_wait<1>();
                pin(s);
                if (leader)
                    mbarrier_arrive(bar.k_empty(k.slot));
                k.next();
                scores_to_probabilities(j);
                wgmma_wait<0>();
                if constexpr (PLANES == 1)
                    pin(o);
                else
                    pin(part);
#pragma unroll
                for (int i = 0; i < PLANES; i++)
                    pin(prob[i]);
                if (leader)
                    mbarrier_arrive(bar.v_empty(v.slot));
                v.next();
#pragma unroll
                for (int i = 0; i < DP / 2; i++)
                    o[i] = (PLANES == 1 ? o[i] : o[i] + part[i]) * factor[i >> 1 & 1];
                to_operand<T, PLANES, BN / 4>(prob, s);
            }
            if (leader)
                mbarrier_arrive(bar.q_empty(q.slot));
            q.next();

            mbarrier_wait(bar.v_full(v.slot), v.parity);
#pragma unroll
            for (int i = 0; i < PLANES; i++)
                pin(prob[i]);
            pin(o);
            wgmma_fence();
            mma_rs<T, tile_kv, DP>(o, prob, base + mem::V + v.slot * tile_kv::BYTES, 1);
            wgmma_commit();
            wgmma_wait<0>();
            pin(o);
            if (leader)
                mbarrier_arrive(bar.v_empty(v.slot));
            v.next();
#pragma unroll
            for (int r = 0; r < 2; r++)
                rows.sum[r] = quad_sum(rows.sum[r]);
        }

        using out = typename memory_type<T, PLANES>::type;
        out *const o_head = (out *)p.o + job.b * p.o_stride_b + job.h * p.o_stride_h;
        float *const lse_head = p.lse + (int64_t)job.bh * p.seq_q;
        if (split == 1) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int i = row + 8 * r;
                if (i >= p.seq_q)
                    continue;
                const float inverse = rows.sum[r] > 0 ? 1 / rows.sum[r] : 0;
#pragma unroll
                for (int j = 0; j < DP / 8; j++)
                    if (8 * j < p.head_dim)
                        store_pair(o_head + i * p.o_stride_s + 8 * j + column, o[4 * j + 2 * r] * inverse,
                                   o[4 * j + 2 * r + 1] * inverse);
                if (lane % 4 == 0)
                    lse_head[i] = rows.sum[r] > 0 ? rows.max[r] * p.scale + logf(rows.sum[r]) : -INFINITY;
            }
            continue;
        }

        /* merge (a cluster has one job): every block leaves its partial, then finishes its share of the rows */
        named_sync(CONSUMER_BARRIER, 128 * GROUPS); /* another group may still read K and V */
        float *const part_o = (float *)(smem + mem::K), *const part_max = (float *)(smem + mem::MERGE_MAX),
                     *const part_sum = (float *)(smem + mem::MERGE_SUM);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int i = row_local + 8 * r;
#pragma unroll
            for (int j = 0; j < DP / 8; j++)
                store_pair(part_o + i * mem::MERGE_PITCH + 8 * j + column, o[4 * j + 2 * r], o[4 * j + 2 * r + 1]);
            if (lane % 4 == 0)
                part_max[i] = rows.max[r], part_sum[i] = rows.sum[r];
        }
        cluster_sync();
        const merge_target target = {o_head, p.o_stride_s, lse_head, job.row_first, p.seq_q, p.head_dim, p.scale, c};
        if (split == 2)
            merge_rows<mem, out, DP, GROUPS, 2>(base, rank, target);
        if (split == 4)
            merge_rows<mem, out, DP, GROUPS, 4>(base, rank, target);
        if (split == 8)
            merge_rows<mem, out, DP, GROUPS, 8>(base, rank, target);
        cluster_sync();
        break;
    }
    if (GROUPS > 1 && wg == 0)
        named_sync(TURN_BARRIER, 256); /* takes the turn that is left over */
}

} // namespace flash_sm90
#endif
