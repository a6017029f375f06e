/* SPDX-License-Identifier: MIT */
/* FlashAttention-2 forward on mma.sync. A block owns MT x 16 queries for each warp and walks over the keys it sees, BK
 * at a time, with an online softmax; the next K tile arrives while P V is computed, the next V tile during Q K^T. */
#pragma once

#include "kernels/cuda/attention/portable/tile.cuh"

namespace flash_portable
{

template <class P, int D, int MT, int WARPS, int BK>
struct forward_shape {
    static constexpr int threads = WARPS * 32, queries = MT * 16 * WARPS;
    static constexpr int shared_bytes =
        (queries + 2 * BK) * tile_stride<typename P::element, D> * (int)sizeof(typename P::element);
};

/* Reduces over the four lanes that share a row. */
__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Scores s become probabilities relative to the running row maximum; out and row_sum are rescaled when it grows.
 * row_max is that of the unscaled scores; row_sum holds this lane's share of the row. */
template <bool FP32_LEVEL, int MT, int BK, int D>
__device__ __forceinline__ void online_softmax(float (&s)[MT][BK / 8][4], float (&out)[MT][D / 8][4],
                                               float (&row_max)[MT][2], float (&row_sum)[MT][2], float scale_log2)
{
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = row_max[mt][half];
#pragma unroll
            for (int j = 0; j < BK / 8; j++)
                top = fmaxf(top, fmaxf(s[mt][j][half * 2], s[mt][j][half * 2 + 1]));
            top = quad_max(top);
            /* -inf: nothing seen yet; any finite reference gives p = 0 and a factor of 0 */
            const float finite_top = top == -INFINITY ? 0.0f : top, reference = finite_top * scale_log2;
            /* the difference first: a fused multiply-add would leave the product's rounding, a factor not quite 1 while
             * the maximum stays, and a drift over many blocks */
            const float factor = mma::exp2_fast((row_max[mt][half] - finite_top) * scale_log2);
            row_max[mt][half] = top;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < BK / 8; j++)
#pragma unroll
                for (int i = half * 2; i < half * 2 + 2; i++) {
                    /* at fp32 level no rounding may be that of a score: the exponent's own is enough */
                    s[mt][j][i] = mma::exp2_fast(FP32_LEVEL ? (s[mt][j][i] - finite_top) * scale_log2
                                                            : fmaf(s[mt][j][i], scale_log2, -reference));
                    sum += s[mt][j][i];
                }
            row_sum[mt][half] = fmaf(row_sum[mt][half], factor, sum);
#pragma unroll
            for (int j = 0; j < D / 8; j++) {
                out[mt][j][half * 2] *= factor;
                out[mt][j][half * 2 + 1] *= factor;
            }
        }
}

/* WINDOW: a query sees only keys in its window; window_left and window_right are at most Sk and Sq. PACKED comes with WINDOW: a
 * block's tile belongs to one document. */
template <class P, int D, int MT, int WARPS, int BK, bool WINDOW, bool PACKED = false>
__global__ void __launch_bounds__(WARPS * 32, 2) forward(const __grid_constant__ sb_attention whole)
{
    static_assert(!PACKED || WINDOW, "documents have the masks of windows");
    using E = typename P::element;
    using shape = forward_shape<P, D, MT, WARPS, BK>;
    constexpr int stride = tile_stride<E, D>;
    extern __shared__ __align__(16) unsigned char shared[];
    E *const q_tile = (E *)shared, *const k_tile = q_tile + shape::queries * stride;
    E *const v_tile = k_tile + BK * stride;

    /* The last queries see the most keys when causal: they go first. */
    const tile_place at = place_of<PACKED, false>(whole, blockIdx.x, shape::queries);
    const sb_attention &a = problem_of<PACKED, E, false>(whole, at.document);
    const int q_blocks = (a.seq_q + shape::queries - 1) / shape::queries;
    if (PACKED && at.tile >= q_blocks)
        return;
    const int q0 = (q_blocks - 1 - at.tile) * shape::queries;
    const int bh = at.bh, b = bh / a.heads, h = bh % a.heads, h_kv = h / (a.heads / a.heads_kv);
    const int warp_row = threadIdx.x / 32 * MT * 16; /* the warp's first row in the block */
    const E *const k_rows = head_rows<E>(a.k, b, h_kv), *const v_rows = head_rows<E>(a.v, b, h_kv);

    const int past = a.seq_k - a.seq_q; /* query i sees the keys up to i + past */
    const int k_end = WINDOW     ? min(a.seq_k, q0 + shape::queries + past + a.window_right)
                      : a.causal ? min(a.seq_k, q0 + shape::queries + past)
                                 : a.seq_k;
    const int k_begin = WINDOW ? max(0, q0 + past - a.window_left) / BK * BK : 0;
    const float scale_log2 = a.scale * log2_e;

    float out[MT][D / 8][4] = {};
    float row_max[MT][2], row_sum[MT][2];
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            row_max[mt][half] = -INFINITY;
            row_sum[mt][half] = 0.0f;
        }

    if (k_end > k_begin) {
        load_tile<E, D, shape::queries, shape::threads>(q_tile, head_rows<E>(a.q, b, h), a.q.stride_s, q0, a.seq_q,
                                                        a.head_dim);
        load_tile<E, D, BK, shape::threads>(k_tile, k_rows, a.k.stride_s, k_begin, a.seq_k, a.head_dim);
    }
    for (int k0 = k_begin; k0 < k_end; k0 += BK) {
        mma::copy_async_wait();
        __syncthreads(); /* the K tile is there, and everyone is done with the V tile */
        load_tile<E, D, BK, shape::threads>(v_tile, v_rows, a.v.stride_s, k0, a.seq_k, a.head_dim_v);

        /* S while V arrives */
        float s[MT][BK / 8][4] = {};
        product_nk<P, MT, BK, D>(s, q_tile + warp_row * stride, k_tile);

        mma::copy_async_wait();
        __syncthreads(); /* the V tile is there, and everyone is done with the K tile */
        if (k0 + BK < k_end)
            load_tile<E, D, BK, shape::threads>(k_tile, k_rows, a.k.stride_s, k0 + BK, a.seq_k, a.head_dim);

        /* softmax and P V while the next K arrives */
        if (k0 + BK > a.seq_k ||
            (WINDOW ? at_edge<MT, BK>(a, q0 + warp_row, k0) : a.causal && k0 + BK - 1 > q0 + warp_row + past))
            mask_scores<WINDOW, MT, BK>(s, a, q0 + warp_row, k0);
        online_softmax<P::fp32_level, MT, BK, D>(s, out, row_max, row_sum, scale_log2);
        product_kn<P, MT, D, BK>(out, s, v_tile);
    }

    /* O divided by the sums, and lse */
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = quad_sum(row_sum[mt][half]);
            const float inverse = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum); /* 0: a query that sees no key */
#pragma unroll
            for (int j = 0; j < D / 8; j++) {
                out[mt][j][half * 2] *= inverse;
                out[mt][j][half * 2 + 1] *= inverse;
            }
            const int row = q0 + warp_row + mt * 16 + half * 8 + lane / 4;
            if (lane % 4 == 0 && row < a.seq_q)
                a.lse[(int64_t)bh * whole.seq_q + row] =
                    sum == 0.0f ? -INFINITY : row_max[mt][half] * a.scale + logf(sum);
        }
    __syncwarp(); /* the warp's rows of the Q tile are only its own */
    store_rows<E, D, MT>(q_tile + warp_row * stride, out, head_rows<E>(a.o, b, h), a.o.stride_s, q0 + warp_row, a.seq_q,
                         a.head_dim_v);
}

} // namespace flash_portable
