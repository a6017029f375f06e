/* FlashAttention backward for Hopper: the main kernel. Launched by flash_backward_sm90.cu.
 *
 *   P = exp2(S c - lse2)   dP = dO V^T   dS = P (dP - delta)   dV = P^T dO   dK = dS^T Q scale   dQ = dS K scale
 *
 * A block owns 128 keys of one key/value head (two consumer warpgroups of 64), walks the query blocks of every query
 * head of its group and keeps dK and dV in registers. Everything is computed transposed, S^T = K Q^T and dP^T = V dO^T,
 * so that P^T and dS^T are already operands in registers for dV and dK; only dS passes through shared memory, for
 * dQ^T = K^T dS^T. dQ leaves by vector reductions into an fp32 buffer in fragment order, which a later kernel turns
 * into rows.
 *
 * Tiles (query rows BM): D 128: 64, fp32 32; D 64: 128, fp32 64.
 * Shared memory, bytes, D 128: K 32K, V 32K, Q 2 x 16K, dO 2 x 16K, dS 2 x 16K = 160K (fp32: 64+64+32+32+32 = 224K).
 * Registers of a consumer thread, D 128: dK 64, dV 64, S^T 32, dP^T 32 = 192 of 232.
 *
 * Few key tiles: a cluster of blocks shares one, each takes a range of its steps, and they add their dK and dV through
 * distributed shared memory, in a fixed order.
 *
 * Deterministic mode: the adders of one query block take turns in the order in which their blocks start, so that no
 * block waits for one that can't run. Causal blocks start at the diagonal, so the turns go from the last key tile to the
 * first: each block then meets a query block two steps after the one before it in the queue. (In ascending order each
 * would have to stay two steps behind its neighbour, the last one the whole length behind the first.) No clusters then:
 * a block that starts in the middle would only wait. */
#ifndef STEPBENCH_FLASH_BACKWARD_SM90_CUH
#define STEPBENCH_FLASH_BACKWARD_SM90_CUH

#include "kernels/cuda/flash_sm90.cuh"
#include "kernels/kernels.h"

namespace flash_sm90
{

constexpr int BACKWARD_KEYS = 128, BACKWARD_STAGES = 2, BACKWARD_THREADS = 384;

struct backward_params {
    CUtensorMap q_map, k_map, v_map, do_map, lse_map, delta_map;
    void *dk, *dv; /* (B, Hkv, Sk, D) */
    int64_t dk_stride_b, dk_stride_h, dk_stride_s, dv_stride_b, dv_stride_h, dv_stride_s;
    float *dq_sum;  /* (B, H, query blocks, 2 groups, fragment order) */
    uint32_t *turn; /* (B, H, query blocks, 2) how many key tiles have added; NULL: any order */
    int batch, heads, heads_kv, group, seq_q, seq_k, head_dim;
    int key_tiles, query_blocks, section;
    float scale, scale_log2;
};

template <int PLANES, int DP, int BM>
struct backward_memory {
    using tile_kv = tile<PLANES, BACKWARD_KEYS, DP>;
    using tile_q = tile<PLANES, BM, DP>;
    using tile_ds = tile<PLANES, BM, BACKWARD_KEYS>; /* a panel is one group's 64 keys */
    static constexpr int K = 0;
    static constexpr int V = K + tile_kv::BYTES;
    static constexpr int Q = V + tile_kv::BYTES;
    static constexpr int DO = Q + BACKWARD_STAGES * tile_q::BYTES;
    static constexpr int DS = DO + BACKWARD_STAGES * tile_q::BYTES;
    static constexpr int LSE = DS + 2 * tile_ds::BYTES;
    static constexpr int DELTA = LSE + BACKWARD_STAGES * BM * 4;
    static constexpr int BARRIERS = DELTA + BACKWARD_STAGES * BM * 4;
    static constexpr int BYTES = BARRIERS + 128;
    /* merge of a cluster, over all tiles: partial dK and dV with padded rows */
    static constexpr int MERGE_PITCH = DP + 8; /* floats */
    static constexpr int MERGE_DK = 0, MERGE_DV = BACKWARD_KEYS * MERGE_PITCH * 4;
    static_assert(2 * MERGE_DV <= LSE, "the merge fits over the tiles");
};

struct backward_barriers {
    uint32_t base;
    __device__ uint32_t kv_full() const { return base; }
    __device__ uint32_t q_full(int s) const { return base + 8 + 8 * s; }
    __device__ uint32_t q_empty(int s) const { return base + 24 + 8 * s; }
    __device__ uint32_t do_full(int s) const { return base + 40 + 8 * s; }
    __device__ uint32_t do_empty(int s) const { return base + 56 + 8 * s; }
};

enum { DS_BARRIER = 1, GROUP_BARRIER = 2 /* and 3 */ };

/* dQ^T of this group: 64 rows of d times N queries, A = K^T read transposed, B = dS. */
template <class T, class TKV, class TDS, int N>
__device__ __forceinline__ void mma_dq(float (&d)[N / 2], uint32_t k_addr, uint32_t ds_addr)
{
    const uint64_t a0 = wgmma_descriptor(k_addr, 16), b0 = wgmma_descriptor(ds_addr, 16);
#pragma unroll
    for (int p = 0; p < products<TKV::PLANES>::COUNT; p++)
#pragma unroll
        for (int k = 0; k < BACKWARD_KEYS / 16; k++) {
            const int a = plane_a(p) * TKV::PLANE_BYTES + k * 16 * ROW_BYTES;
            const int b = plane_b(p) * TDS::PLANE_BYTES + k / 4 * TDS::PANEL_BYTES + k % 4 * 32;
            wgmma<T, N, 1, 0>(d, a0 + (a >> 4), b0 + (b >> 4), p + k != 0);
        }
}

/* Steps are the query blocks of every query head of the group, one head after the other; a cluster shares them. */
struct step_range {
    int begin, end;
};
__device__ __forceinline__ step_range steps_of_block(int all)
{
    const int rank = cluster_rank(), split = cluster_size();
    return {all * rank / split, all * (rank + 1) / split};
}

/* This block's share of the rows of dK or dV from the partial sums of all SPLIT blocks, all loads before the first use. */
template <class MEM, class OUT, int DP, int SPLIT>
__device__ __forceinline__ void merge_key_rows(uint32_t part_addr, int rank, OUT *head, int64_t stride_s, int key_first,
                                               int seq_k, int head_dim, float scale)
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
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = u * 256 + thread, d = unit % (DP / 4) * 4;
        const int64_t i = key_first + rank * SHARE + unit / (DP / 4);
        float4 x = part[u][0];
#pragma unroll
        for (int n = 1; n < SPLIT; n++)
            x.x += part[u][n].x, x.y += part[u][n].y, x.z += part[u][n].z, x.w += part[u][n].w;
        if (i >= seq_k || d >= head_dim)
            continue;
        store_pair(head + i * stride_s + d, x.x * scale, x.y * scale);
        store_pair(head + i * stride_s + d + 2, x.z * scale, x.w * scale);
    }
}

template <class T, int PLANES, int DP, int BM, bool CAUSAL>
__global__ void __launch_bounds__(BACKWARD_THREADS, 1) flash_backward(const __grid_constant__ backward_params p)
{
    using mem = backward_memory<PLANES, DP, BM>;
    using tile_kv = typename mem::tile_kv;
    using tile_q = typename mem::tile_q;
    using tile_ds = typename mem::tile_ds;
    constexpr int DQ_N = DP == 128 ? BM : BM / 2; /* queries of a group's share of dQ^T */
    extern __shared__ __align__(1024) unsigned char smem[];
    const uint32_t base = smem_u32(smem);
    const backward_barriers bar = {base + mem::BARRIERS};
    const int warpgroup = threadIdx.x / 128;

    const int job = blockIdx.x / cluster_size();
    const int first_head = job / (p.section * p.key_tiles) * p.section;
    const int section_heads = min(p.section, p.batch * p.heads_kv - first_head);
    const int in_section = job - first_head * p.key_tiles;
    const int b = (first_head + in_section % section_heads) / p.heads_kv,
              h_kv = (first_head + in_section % section_heads) % p.heads_kv;
    /* causal: the first is the longest; when adders take turns, the shortest (see the top of this file) */
    const int tile_index = in_section / section_heads;
    const int key_tile = CAUSAL && p.turn ? p.key_tiles - 1 - tile_index : tile_index;
    const int key_first = key_tile * BACKWARD_KEYS;
    const int offset = p.seq_k - p.seq_q; /* causal: query i sees keys j <= i + offset */
    const int query_begin = CAUSAL ? min(max(key_first - offset, 0) / BM, p.query_blocks) : 0;
    const int steps_of_head = p.query_blocks - query_begin;

    if (threadIdx.x == 0) {
        tma_prefetch(&p.k_map);
        tma_prefetch(&p.q_map);
        tma_prefetch(&p.v_map);
        tma_prefetch(&p.do_map);
        mbarrier_init(bar.kv_full(), 1);
        for (int s = 0; s < BACKWARD_STAGES; s++) {
            mbarrier_init(bar.q_full(s), 1);
            mbarrier_init(bar.do_full(s), 1);
            mbarrier_init(bar.q_empty(s), 8); /* one arrival a consumer warp */
            mbarrier_init(bar.do_empty(s), 8);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    let_next_kernel_start();

    if (warpgroup == 0) {
        registers_lower<40>();
        const step_range steps = steps_of_block(steps_of_head * p.group);
        if (threadIdx.x == 0 && steps.begin < steps.end) {
            /* Q, K, V and dO are older than the kernel ahead, which waited for them before this one could start */
            mbarrier_expect(bar.kv_full(), 2 * tile_kv::BYTES);
            load_tile<tile_kv>(base + mem::K, &p.k_map, bar.kv_full(), key_first, h_kv, b, p.batch);
            load_tile<tile_kv>(base + mem::V, &p.v_map, bar.kv_full(), key_first, h_kv, b, p.batch);
            ring<BACKWARD_STAGES> stage;
            int g = steps.begin / steps_of_head, i = query_begin + steps.begin - g * steps_of_head;
            for (int step = steps.begin; step < steps.end; step++) {
                const int h = h_kv * p.group + g;
                mbarrier_wait(bar.q_empty(stage.slot), stage.parity ^ 1);
                mbarrier_expect(bar.q_full(stage.slot), tile_q::BYTES + BM * 4);
                load_tile<tile_q>(base + mem::Q + stage.slot * tile_q::BYTES, &p.q_map, bar.q_full(stage.slot), i * BM,
                                  h, b, p.batch);
                if (step == steps.begin)
                    wait_for_previous_kernel(); /* lse2, delta and zeroed sums */
                tma_load_2d(base + mem::LSE + stage.slot * BM * 4, &p.lse_map, bar.q_full(stage.slot), i * BM,
                            b * p.heads + h);
                mbarrier_wait(bar.do_empty(stage.slot), stage.parity ^ 1);
                mbarrier_expect(bar.do_full(stage.slot), tile_q::BYTES + BM * 4);
                load_tile<tile_q>(base + mem::DO + stage.slot * tile_q::BYTES, &p.do_map, bar.do_full(stage.slot),
                                  i * BM, h, b, p.batch);
                tma_load_2d(base + mem::DELTA + stage.slot * BM * 4, &p.delta_map, bar.do_full(stage.slot), i * BM,
                            b * p.heads + h);
                stage.next();
                if (++i == p.query_blocks)
                    i = query_begin, g++;
            }
        }
        if (cluster_size() > 1) { /* the block's shared memory must outlive its readers */
            __syncwarp();
            cluster_sync();
            cluster_sync();
        }
        return;
    }

    registers_raise<232>();
    const int wg = warpgroup - 1, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32, thread = threadIdx.x % 128;
    const int key = key_first + wg * 64 + warp * 16 + lane / 4; /* and + 8 */
    const int column = 2 * (lane % 4);                          /* first query of each pair this thread holds */
    const bool leader = lane == 0;
    const float c = p.scale_log2;
    const uint32_t k_rows = base + mem::K + wg * 64 * ROW_BYTES, v_rows = base + mem::V + wg * 64 * ROW_BYTES;
    /* dS^T fragments go to dS[query][key] by transposing stores: this lane's row and 16-byte chunk of a 16-query step */
    const uint32_t ds_store = wg * tile_ds::PANEL_BYTES + (lane / 16 * 8 + lane % 8) * ROW_BYTES +
                              ((2 * warp + (lane >> 3 & 1)) ^ (lane & 7)) * 16;
    const uint32_t dq_a = base + mem::K + (DP == 128 ? wg * tile_kv::PANEL_BYTES : 0);
    const uint32_t dq_b = DP == 128 ? 0 : wg * (BM / 2) * ROW_BYTES;

    float dk[DP / 2], dv[DP / 2];
#pragma unroll
    for (int i = 0; i < DP / 2; i++)
        dk[i] = dv[i] = 0;

    wait_for_previous_kernel();
    ring<BACKWARD_STAGES> stage;
    /* query head of the group and query block of this block's first step */
    const step_range steps = steps_of_block(steps_of_head * p.group);
    int g = steps.begin / max(steps_of_head, 1), i = query_begin + steps.begin - g * steps_of_head;
    if (steps.begin < steps.end)
        mbarrier_wait(bar.kv_full(), 0);
    for (int step = steps.begin; step < steps.end; step++) {
        const uint32_t q_tile = base + mem::Q + stage.slot * tile_q::BYTES,
                       do_tile = base + mem::DO + stage.slot * tile_q::BYTES,
                       ds_tile = base + mem::DS + (step & 1) * tile_ds::BYTES;
        float s[BM / 2], dp[BM / 2];
        uint32_t prob[PLANES][BM / 4], ds[PLANES][BM / 4];

        mbarrier_wait(bar.q_full(stage.slot), stage.parity);
        wgmma_fence();
        mma_abt<T, tile_kv, tile_q, BM>(s, k_rows, q_tile);
        wgmma_commit();
        mbarrier_wait(bar.do_full(stage.slot), stage.parity);
        wgmma_fence();
        mma_abt<T, tile_kv, tile_q, BM>(dp, v_rows, do_tile);
        wgmma_commit();
        wgmma_wait<1>();
        pin(s);

        const float *const lse2 = (const float *)(smem + mem::LSE) + stage.slot * BM + 2 * column;
        const float *const delta = (const float *)(smem + mem::DELTA) + stage.slot * BM + 2 * column;
#pragma unroll
        for (int j = 0; j < BM / 16; j++) {
            const float4 l = *(const float4 *)(lse2 + 16 * j);
            const float pair[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
            for (int e = 0; e < 8; e++)
                s[8 * j + e] = exp2_approx(fmaf(s[8 * j + e], c, -pair[e / 4 * 2 + e % 2]));
        }
        const int first_query = i * BM;
        if (key_first + BACKWARD_KEYS > p.seq_k || (CAUSAL && key_first + BACKWARD_KEYS - 1 > first_query + offset)) {
#pragma unroll
            for (int j = 0; j < BM / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int k = key + (e >> 1) * 8, query = first_query + 8 * j + column + (e & 1);
                    if (k >= p.seq_k || (CAUSAL && k > query + offset))
                        s[4 * j + e] = 0;
                }
        }
        to_operand<T, PLANES, BM / 4>(prob, s);

        wgmma_wait<0>();
        pin(dp);
#pragma unroll
        for (int j = 0; j < BM / 16; j++) {
            const float4 d = *(const float4 *)(delta + 16 * j);
            const float pair[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
            for (int e = 0; e < 8; e++)
                dp[8 * j + e] = s[8 * j + e] * (dp[8 * j + e] - pair[e / 4 * 2 + e % 2]);
        }
        to_operand<T, PLANES, BM / 4>(ds, dp);
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++)
#pragma unroll
            for (int k = 0; k < BM / 16; k++)
                store_matrix4_transposed(ds_tile + plane * tile_ds::PLANE_BYTES + ds_store + k * 16 * ROW_BYTES,
                                         ds[plane][4 * k], ds[plane][4 * k + 1], ds[plane][4 * k + 2],
                                         ds[plane][4 * k + 3]);
        fence_async_proxy();

#pragma unroll
        for (int plane = 0; plane < PLANES; plane++)
            pin(prob[plane]), pin(ds[plane]);
        if constexpr (PLANES == 1) {
            pin(dv);
            wgmma_fence();
            mma_rs<T, tile_q, DP>(dv, prob, do_tile, 1);
            wgmma_commit();
        } else {
            mma_rs_rounded<T, tile_q>(dv, prob, do_tile);
        }
        named_sync(DS_BARRIER, 256); /* both groups' keys of dS are there, and both are done with the other slot */
        float dq[DQ_N / 2];
        if constexpr (PLANES == 1)
            pin(dk);
        wgmma_fence();
        mma_dq<T, tile_kv, tile_ds, DQ_N>(dq, dq_a, ds_tile + dq_b);
        wgmma_commit();
        if constexpr (PLANES == 1) {
            mma_rs<T, tile_q, DP>(dk, ds, q_tile, 1);
            wgmma_commit();
            wgmma_wait<1>();
            pin(dv);
        } else {
            mma_rs_rounded<T, tile_q>(dk, ds, q_tile); /* waits for dQ too */
        }
        pin(dq);
        if (leader)
            mbarrier_arrive(bar.do_empty(stage.slot));
        const int64_t block = ((int64_t)(b * p.heads + h_kv * p.group + g) * p.query_blocks + i) * 2 + wg;
        float *const sum = p.dq_sum + block * (DQ_N / 2 * 128) + thread * 4;
        const int last_tile = min(p.key_tiles - 1, (first_query + BM - 1 + offset) / BACKWARD_KEYS);
        const uint32_t turn = CAUSAL ? last_tile - key_tile : key_tile;
        if (p.turn) {
            if (thread == 0)
                while (*(volatile uint32_t *)(p.turn + block) != turn)
                    __nanosleep(32);
            named_sync(GROUP_BARRIER + wg, 128);
        }
#pragma unroll
        for (int j = 0; j < DQ_N / 8; j++)
            add_global4(sum + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
        if (p.turn) {
            __threadfence();
            named_sync(GROUP_BARRIER + wg, 128);
            if (thread == 0)
                *(volatile uint32_t *)(p.turn + block) = turn + 1;
        }
        if constexpr (PLANES == 1) {
            wgmma_wait<0>();
            pin(dk);
        }
        if (leader)
            mbarrier_arrive(bar.q_empty(stage.slot));
        stage.next();
        if (++i == p.query_blocks)
            i = query_begin, g++;
    }

    using out = typename memory_type<T, PLANES>::type;
    out *const dk_head = (out *)p.dk + b * p.dk_stride_b + h_kv * p.dk_stride_h;
    out *const dv_head = (out *)p.dv + b * p.dv_stride_b + h_kv * p.dv_stride_h;
    const int split = cluster_size(), rank = cluster_rank();
    if (split == 1) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t row = key + 8 * r;
            if (row >= p.seq_k)
                continue;
#pragma unroll
            for (int j = 0; j < DP / 8; j++)
                if (8 * j < p.head_dim) {
                    store_pair(dk_head + row * p.dk_stride_s + 8 * j + column, dk[4 * j + 2 * r] * p.scale,
                               dk[4 * j + 2 * r + 1] * p.scale);
                    store_pair(dv_head + row * p.dv_stride_s + 8 * j + column, dv[4 * j + 2 * r],
                               dv[4 * j + 2 * r + 1]);
                }
        }
        return;
    }

    /* merge: every block leaves its partial sums, then finishes its share of the rows */
    named_sync(DS_BARRIER, 256); /* the other group may still read the tiles */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float *const part_dk = (float *)(smem + mem::MERGE_DK) + (key - key_first + 8 * r) * mem::MERGE_PITCH + column,
                     *const part_dv = part_dk + mem::MERGE_DV / 4;
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            store_pair(part_dk + 8 * j, dk[4 * j + 2 * r], dk[4 * j + 2 * r + 1]);
            store_pair(part_dv + 8 * j, dv[4 * j + 2 * r], dv[4 * j + 2 * r + 1]);
        }
    }
    cluster_sync();
    auto merge = [&](auto blocks) {
        constexpr int SPLIT = decltype(blocks)::value;
        merge_key_rows<mem, out, DP, SPLIT>(base + mem::MERGE_DK, rank, dk_head, p.dk_stride_s, key_first, p.seq_k,
                                            p.head_dim, p.scale);
        merge_key_rows<mem, out, DP, SPLIT>(base + mem::MERGE_DV, rank, dv_head, p.dv_stride_s, key_first, p.seq_k,
                                            p.head_dim, 1);
    };
    if (split == 2)
        merge(constant<2>());
    if (split == 4)
        merge(constant<4>());
    if (split == 8)
        merge(constant<8>());
    cluster_sync();
}

} // namespace flash_sm90
#endif
