/* SPDX-License-Identifier: MIT */
/* FlashAttention-2 backward on mma.sync, without atomics: every gradient has one owner and one order of sums.
 *   row_stats   per query, lse and delta = rowsum(dO * O), into the workspace
 *   backward_kv a block owns keys and walks over the queries, of every query head that reads them, for dK and dV; where their
 *               sums do not fit in registers together, it runs once for each
 *   backward_q  a block owns queries and walks over the keys, for dQ
 * backward_kv computes S^T = K Q^T and dP^T = V dO^T: their accumulators are then the A operands of dV and dK.
 * The walked tiles have two stages: the next one arrives while this one is used. */
#pragma once

#include "kernels/cuda/attention/portable/tile.cuh"

namespace flash_portable
{

/* What the backward needs of one query. lse is in log2 units, at fp32 level natural: see probability. A query that sees no key has lse = +inf, so that
 * every p of it is 0. */
struct query_stats {
    float lse, delta;
};

/* The probability that belongs to a score without its scale. At fp32 level the difference is rounded once, whatever the size of the scores. */
template <class P>
__device__ __forceinline__ float probability(float x, float scale, float scale_log2, float lse)
{
    return mma::exp2_fast(P::fp32_level ? fmaf(x, scale, -lse) * log2_e : fmaf(x, scale_log2, -lse));
}

/* TILES: tiles of owned rows, in addition to two stages of two walked tiles. */
template <class P, int D, int MT, int WARPS, int WALK, int TILES = 2>
struct backward_shape {
    static constexpr int threads = WARPS * 32, owned = MT * 16 * WARPS;
    static constexpr int shared_bytes =
        (TILES * owned + 4 * WALK) * tile_stride<typename P::element, D> * (int)sizeof(typename P::element);
};

/* What a run of backward_kv computes. Without dK it needs no V. */
enum { MAKE_DK = 1, MAKE_DV = 2, MAKE_BOTH = MAKE_DK | MAKE_DV };
template <class P, int D, int MT, int WARPS, int BQ, int MAKE>
using backward_kv_shape = backward_shape<P, D, MT, WARPS, BQ, MAKE & MAKE_DK ? 2 : 1>;

constexpr int stats_threads = 256,
              stats_lanes = 16; /* lanes of one query: 16 pieces of 16 bytes, again beyond 256 bytes */

template <class E, bool FP32_LEVEL>
__global__ void __launch_bounds__(stats_threads) row_stats(const __grid_constant__ sb_attention a)
{
    const int query =
        blockIdx.x * (stats_threads / stats_lanes) + threadIdx.x / stats_lanes; /* counted over (B, H, Sq) */
    const int lane = threadIdx.x % stats_lanes;
    const bool valid = query < a.batch * a.heads * a.seq_q;
    float delta = 0.0f;
    if (valid) {
        const int bh = query / a.seq_q, row = query % a.seq_q;
        const E *const o = head_rows<E>(a.o, bh / a.heads, bh % a.heads) + row * a.o.stride_s;
        const E *const d_o = head_rows<E>(a.d_o, bh / a.heads, bh % a.heads) + row * a.d_o.stride_s;
        for (int c = lane * piece<E>::size; c < a.head_dim_v; c += stats_lanes * piece<E>::size) {
            const piece<E> some_o = *(const piece<E> *)(o + c), some_d_o = *(const piece<E> *)(d_o + c);
#pragma unroll
            for (int i = 0; i < piece<E>::size; i++)
                delta = fmaf((float)some_o.x[i], (float)some_d_o.x[i], delta);
        }
    }
#pragma unroll
    for (int distance = stats_lanes / 2; distance > 0; distance /= 2)
        delta += __shfl_xor_sync(0xffffffffu, delta, distance);
    if (valid && lane == 0) {
        const float lse = a.lse[query];
        ((query_stats *)a.workspace)[query] = {lse == -INFINITY ? INFINITY : FP32_LEVEL ? lse : lse * log2_e, delta};
    }
}

/* The statistics of the first query of the first head, or of the document's first query. */
template <bool PACKED>
__device__ __forceinline__ const query_stats *stats_of(const sb_attention &whole, int document)
{
    if constexpr (PACKED) /* where there is no query, of any */
        return (const query_stats *)whole.workspace + min(whole.cu_seqlens_q[document], whole.seq_q - 1);
    else
        return (const query_stats *)whole.workspace;
}

/* WINDOW, PACKED: as in forward.cuh. */
template <class P, int D, int MT, int WARPS, int BQ, bool WINDOW, bool PACKED = false, int MAKE = MAKE_BOTH>
__global__ void __launch_bounds__(WARPS * 32, 2) backward_kv(const __grid_constant__ sb_attention whole)
{
    using E = typename P::element;
    using shape = backward_kv_shape<P, D, MT, WARPS, BQ, MAKE>;
    constexpr bool makes_dk = MAKE & MAKE_DK, makes_dv = MAKE & MAKE_DV;
    constexpr int stride = tile_stride<E, D>;
    extern __shared__ __align__(16) unsigned char shared[];
    E *const k_tile = (E *)shared, *const v_tile = k_tile + shape::owned * stride;
    /* 2 x (Q, dO); the padding of a Q row holds its query_stats */
    E *const stages = makes_dk ? v_tile + shape::owned * stride : v_tile;

    /* what the block owns: keys of one key/value head */
    const tile_place at = place_of<PACKED, true>(whole, blockIdx.x, shape::owned);
    const sb_attention &a = problem_of<PACKED, E, true>(whole, at.document);
    const int k0 = at.tile * shape::owned; /* the first keys are seen most when causal */
    if (PACKED && k0 >= a.seq_k)
        return;
    const int bh_kv = at.bh, b = bh_kv / a.heads_kv, h_kv = bh_kv % a.heads_kv;
    const int group = a.heads / a.heads_kv;
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int warp_row = threadIdx.x / 32 * MT * 16; /* the warp's first row in the block */
    E *const k_box = k_tile + warp_row * stride, *const v_box = v_tile + warp_row * stride;

    /* what it walks: the query blocks that see these keys, for each head of the group */
    const int past = a.seq_k - a.seq_q; /* query i sees the keys up to i + past */
    const int ahead = WINDOW ? past + a.window_right : past;
    const int first_block = WINDOW || a.causal ? max(0, k0 - ahead) / BQ : 0;
    int end_block = (a.seq_q + BQ - 1) / BQ;
    if (WINDOW) {
        const int last_query = min(k0 + shape::owned, a.seq_k) - 1 - past + a.window_left;
        end_block = min(end_block, max(max(0, last_query) / BQ, first_block) + 1);
        if (PACKED) /* a document without queries: one step of zeros */
            end_block = max(end_block, first_block + 1);
    }
    const int q_blocks = end_block - first_block; /* query blocks of each head; at least 1 */
    const int steps = group * q_blocks;
    const float scale_log2 = a.scale * log2_e;

    auto load_step = [&](int step) {
        const int h = h_kv * group + step / q_blocks, q0 = (first_block + step % q_blocks) * BQ;
        E *const q_tile = stages + step % 2 * 2 * BQ * stride, *const do_tile = q_tile + BQ * stride;
        load_tile<E, D, BQ, shape::threads>(q_tile, head_rows<E>(a.q, b, h), a.q.stride_s, q0, a.seq_q, a.head_dim);
        load_tile<E, D, BQ, shape::threads>(do_tile, head_rows<E>(a.d_o, b, h), a.d_o.stride_s, q0, a.seq_q,
                                            a.head_dim_v);
        const query_stats *const stats =
            stats_of<PACKED>(whole, at.document) + (int64_t)(b * a.heads + h) * whole.seq_q;
        if ((int)threadIdx.x < BQ) {
            const bool valid = q0 + (int)threadIdx.x < a.seq_q;
            mma::copy_async_8(q_tile + threadIdx.x * stride + D, valid ? stats + q0 + threadIdx.x : stats, valid);
        }
    };
    static_assert(BQ <= shape::threads, "one thread copies the stats of a query");

    load_tile<E, D, shape::owned, shape::threads>(k_tile, head_rows<E>(a.k, b, h_kv), a.k.stride_s, k0, a.seq_k,
                                                  a.head_dim);
    if constexpr (makes_dk)
        load_tile<E, D, shape::owned, shape::threads>(v_tile, head_rows<E>(a.v, b, h_kv), a.v.stride_s, k0, a.seq_k,
                                                      a.head_dim_v);
    load_step(0);

    float dk[MT][D / 8][4] = {}, dv[MT][D / 8][4] = {}; /* none of registers where it is not made */
    for (int step = 0; step < steps; step++) {
        mma::copy_async_wait();
        __syncthreads(); /* this step's tiles are there, and everyone is done with the other stage */
        if (step + 1 < steps)
            load_step(step + 1);
        const int q0 = (first_block + step % q_blocks) * BQ;
        const E *const q_tile = stages + step % 2 * 2 * BQ * stride, *const do_tile = q_tile + BQ * stride;

        /* Rows are keys, columns queries. Queries past the end have Q, dO and stats of 0: p = 1, no contribution.
         * Keys past the end give rows that are not stored. */
        float p[MT][BQ / 8][4] = {}, ds[MT][BQ / 8][4] = {};
        product_nk<P, MT, BQ, D>(p, k_box, q_tile);
        if constexpr (makes_dk)
            product_nk<P, MT, BQ, D>(ds, v_box, do_tile);
        const bool masked = (WINDOW || a.causal) && k0 + warp_row + MT * 16 - 1 > q0 + ahead;
        const bool left_edge = WINDOW && k0 + warp_row < q0 + BQ - 1 + past - a.window_left;
#pragma unroll
        for (int j = 0; j < BQ / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int column = j * 8 + 2 * q + i;
                const query_stats stats = *(const query_stats *)(q_tile + column * stride + D);
#pragma unroll
                for (int mt = 0; mt < MT; mt++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        float &x = p[mt][j][half * 2 + i];
                        x = probability<P>(x, a.scale, scale_log2, stats.lse);
                        if (masked && k0 + warp_row + mt * 16 + half * 8 + g > q0 + column + ahead)
                            x = 0.0f;
                        if (left_edge && k0 + warp_row + mt * 16 + half * 8 + g < q0 + column + past - a.window_left)
                            x = 0.0f;
                        float &y = ds[mt][j][half * 2 + i];
                        y = x * (y - stats.delta);
                    }
            }
        /* dV += P dO, dK += dS Q */
        if constexpr (makes_dv)
            product_kn<P, MT, D, BQ>(dv, p, do_tile);
        if constexpr (makes_dk)
            product_kn<P, MT, D, BQ>(dk, ds, q_tile);
    }

    /* dK and dV leave by way of the warp's rows of K and V */
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int j = 0; j < D / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dk[mt][j][i] *= a.scale;
    __syncwarp(); /* the warp's rows of the K and V tiles are only its own */
    if constexpr (makes_dk)
        store_rows<E, D, MT>(k_box, dk, head_rows<E>(a.dk, b, h_kv), a.dk.stride_s, k0 + warp_row, a.seq_k, a.head_dim);
    if constexpr (makes_dv)
        store_rows<E, D, MT>(makes_dk ? v_box : k_box, dv, head_rows<E>(a.dv, b, h_kv), a.dv.stride_s, k0 + warp_row,
                             a.seq_k, a.head_dim_v);
}

template <class P, int D, int MT, int WARPS, int BK, bool WINDOW, bool PACKED = false>
__global__ void __launch_bounds__(WARPS * 32, 2) backward_q(const __grid_constant__ sb_attention whole)
{
    using E = typename P::element;
    using shape = backward_shape<P, D, MT, WARPS, BK>;
    constexpr int stride = tile_stride<E, D>;
    extern __shared__ __align__(16) unsigned char shared[];
    E *const q_tile = (E *)shared, *const do_tile = q_tile + shape::owned * stride;
    E *const stages = do_tile + shape::owned * stride; /* 2 x (K, V) */

    /* what the block owns: queries of one head; what it walks: the keys that they see */
    const tile_place at = place_of<PACKED, false>(whole, blockIdx.x, shape::owned);
    const sb_attention &a = problem_of<PACKED, E, false>(whole, at.document);
    const int q_blocks = (a.seq_q + shape::owned - 1) / shape::owned;
    if (PACKED && at.tile >= q_blocks)
        return;
    const int q0 = (q_blocks - 1 - at.tile) * shape::owned; /* the longest first, as in forward */
    const int bh = at.bh, b = bh / a.heads, h = bh % a.heads, h_kv = h / (a.heads / a.heads_kv);
    const int lane = threadIdx.x % 32;
    const int warp_row = threadIdx.x / 32 * MT * 16; /* the warp's first row in the block */
    E *const q_box = q_tile + warp_row * stride, *const do_box = do_tile + warp_row * stride;
    const E *const k_rows = head_rows<E>(a.k, b, h_kv), *const v_rows = head_rows<E>(a.v, b, h_kv);

    const int past = a.seq_k - a.seq_q;
    const int k_end = WINDOW     ? min(a.seq_k, q0 + shape::owned + past + a.window_right)
                      : a.causal ? min(a.seq_k, q0 + shape::owned + past)
                                 : a.seq_k;
    const int k_begin = WINDOW ? max(0, q0 + past - a.window_left) / BK * BK : 0;
    const float scale_log2 = a.scale * log2_e;

    auto load_step = [&](int k0) {
        E *const k_tile = stages + k0 / BK % 2 * 2 * BK * stride, *const v_tile = k_tile + BK * stride;
        load_tile<E, D, BK, shape::threads>(k_tile, k_rows, a.k.stride_s, k0, a.seq_k, a.head_dim);
        load_tile<E, D, BK, shape::threads>(v_tile, v_rows, a.v.stride_s, k0, a.seq_k, a.head_dim_v);
    };

    /* lse and delta of this thread's rows, and the first tiles */
    query_stats stats[MT][2];
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = q0 + warp_row + mt * 16 + half * 8 + lane / 4;
            stats[mt][half] = row < a.seq_q ? stats_of<PACKED>(whole, at.document)[(int64_t)bh * whole.seq_q + row]
                                            : query_stats{0.0f, 0.0f};
        }
    if (k_end > k_begin) {
        load_tile<E, D, shape::owned, shape::threads>(q_tile, head_rows<E>(a.q, b, h), a.q.stride_s, q0, a.seq_q,
                                                      a.head_dim);
        load_tile<E, D, shape::owned, shape::threads>(do_tile, head_rows<E>(a.d_o, b, h), a.d_o.stride_s, q0, a.seq_q,
                                                      a.head_dim_v);
        load_step(k_begin);
    }

    float dq[MT][D / 8][4] = {};
    for (int k0 = k_begin; k0 < k_end; k0 += BK) {
        mma::copy_async_wait();
        __syncthreads(); /* this step's tiles are there, and everyone is done with the other stage */
        if (k0 + BK < k_end)
            load_step(k0 + BK);
        const E *const k_tile = stages + k0 / BK % 2 * 2 * BK * stride, *const v_tile = k_tile + BK * stride;

        /* S and dP, then dS = P (dP - delta), then dQ += dS K */
        float p[MT][BK / 8][4] = {}, ds[MT][BK / 8][4] = {};
        product_nk<P, MT, BK, D>(p, q_box, k_tile);
        product_nk<P, MT, BK, D>(ds, do_box, v_tile);
        if (k0 + BK > a.seq_k ||
            (WINDOW ? at_edge<MT, BK>(a, q0 + warp_row, k0) : a.causal && k0 + BK - 1 > q0 + warp_row + past))
            mask_scores<WINDOW, MT, BK>(p, a, q0 + warp_row, k0);
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
#pragma unroll
            for (int j = 0; j < BK / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float x = probability<P>(p[mt][j][i], a.scale, scale_log2, stats[mt][i / 2].lse);
                    ds[mt][j][i] = x * (ds[mt][j][i] - stats[mt][i / 2].delta);
                }
        product_kn<P, MT, D, BK>(dq, ds, k_tile);
    }

    /* dQ leaves by way of the warp's rows of Q */
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int j = 0; j < D / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dq[mt][j][i] *= a.scale;
    __syncwarp(); /* the warp's rows of the Q tile are only its own */
    store_rows<E, D, MT>(q_box, dq, head_rows<E>(a.dq, b, h), a.dq.stride_s, q0 + warp_row, a.seq_q, a.head_dim);
}

} // namespace flash_portable
