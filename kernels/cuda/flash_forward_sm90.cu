/* Host side of the Hopper forward: tensor maps, how many blocks share a tile, launch. */
#include "kernels/cuda/flash_forward_sm90.cuh"

#include <cuda_runtime.h>

#include "kernels/cuda/cluster_split.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/flash_sm90.h"
#include "kernels/cuda/launch_sm90.cuh"
#include "kernels/cuda/planes.cuh"
#include "kernels/cuda/tma.h"
#include "kernels/internal.h"

using namespace flash_sm90;

template <class T, int PLANES, int DP, int BN, int GROUPS, bool CAUSAL>
static sb_status launch_tile(sb_context *ctx, const sb_attention *a, forward_params &p, const sb_tensor *q,
                             const sb_tensor *k, const sb_tensor *v, cudaStream_t stream)
{
    using mem = forward_memory<PLANES, DP, BN, GROUPS>;
    const auto kernel = flash_forward<T, PLANES, DP, BN, GROUPS, CAUSAL>;
    p.tiles = (a->seq_q + mem::ROWS - 1) / mem::ROWS;
    const sb_dtype type = is_bf16<T>::value ? SB_BF16 : SB_FP16;
    sb_status st;
    if ((st = tma_map_tensor(&p.q_map, type, q, a->batch * PLANES, a->heads, a->seq_q, a->head_dim, mem::ROWS)) ||
        (st = tma_map_tensor(&p.k_map, type, k, a->batch * PLANES, a->heads_kv, a->seq_k, a->head_dim, BN)) ||
        (st = tma_map_tensor(&p.v_map, type, v, a->batch * PLANES, a->heads_kv, a->seq_k, a->head_dim, BN)))
        return st;
    const int64_t jobs = (int64_t)p.tiles * a->batch * a->heads;
    const int longest = (a->seq_k + BN - 1) / BN; /* key blocks */
    const int *const clusters = count_clusters(ctx, (const void *)kernel, 128 * (GROUPS + 1), mem::BYTES);
    const int split = choose_split(jobs, longest, a->causal, 4, clusters);
    const unsigned grid = (unsigned)(split > 1 ? jobs * split : jobs < ctx->sm_count ? jobs : ctx->sm_count);
    return launch_sm90("flash forward (Hopper)", kernel, grid, 128 * (GROUPS + 1), mem::BYTES, split, stream, p);
}

template <class T, int PLANES, int DP, int BN, int GROUPS>
static sb_status launch(sb_context *ctx, const sb_attention *a, forward_params &p, const sb_tensor *q,
                        const sb_tensor *k, const sb_tensor *v, cudaStream_t stream)
{
    return a->causal ? launch_tile<T, PLANES, DP, BN, GROUPS, true>(ctx, a, p, q, k, v, stream)
                     : launch_tile<T, PLANES, DP, BN, GROUPS, false>(ctx, a, p, q, k, v, stream);
}

template <class T, int PLANES>
static sb_status dispatch(sb_context *ctx, const sb_attention *a, forward_params &p, const sb_tensor *q,
                          const sb_tensor *k, const sb_tensor *v, cudaStream_t stream)
{
    constexpr int WIDE_KEYS = PLANES == 1 ? 128 : 64; /* key block at D > 64 */
    const int64_t heads = (int64_t)a->batch * a->heads;
    if (heads * ((a->seq_q + 63) / 64) * MAX_SPLIT <= ctx->sm_count) /* few rows: tiles of 64 */
        return a->head_dim > 64 ? launch<T, PLANES, 128, WIDE_KEYS, 1>(ctx, a, p, q, k, v, stream)
                                : launch<T, PLANES, 64, 128, 1>(ctx, a, p, q, k, v, stream);
    if (a->head_dim > 64)
        return launch<T, PLANES, 128, WIDE_KEYS, 2>(ctx, a, p, q, k, v, stream);
    if constexpr (PLANES == 1) {
        /* softmax-bound: a third group to hide it, unless its rows would leave the chip idle */
        if (heads * ((a->seq_q + 191) / 192) >= ctx->sm_count)
            return launch<T, 1, 64, 128, 3>(ctx, a, p, q, k, v, stream);
    }
    return launch<T, PLANES, 64, 128, 2>(ctx, a, p, q, k, v, stream);
}

extern "C" size_t flash_sm90_forward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    if (a->dtype != SB_FP32)
        return 0;
    return planes_bytes(a->batch, a->heads, a->seq_q, a->head_dim) +
           2 * planes_bytes(a->batch, a->heads_kv, a->seq_k, a->head_dim);
}

extern "C" sb_status flash_sm90_forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    forward_params p = {};
    p.o = a->o.data;
    p.o_stride_b = a->o.stride_b, p.o_stride_h = a->o.stride_h, p.o_stride_s = a->o.stride_s;
    p.lse = a->lse;
    p.next_job = ctx->zeros;
    p.batch = a->batch, p.heads = a->heads, p.group = a->heads / a->heads_kv;
    p.seq_q = a->seq_q, p.seq_k = a->seq_k, p.head_dim = a->head_dim;
    p.scale = sb_attention_scale(a);
    p.scale_log2 = p.scale * LOG2E;
    /* heads whose K and V fit in about half of L2 are walked together */
    const int64_t kv_bytes = (int64_t)2 * a->seq_k * a->head_dim * (a->dtype == SB_FP32 ? 4 : 2);
    const int64_t fit = (int64_t)(32 << 20) / kv_bytes * p.group, all = (int64_t)a->batch * a->heads;
    p.section = (int)(fit < p.group ? p.group : fit < all ? fit : all);

    const cudaStream_t s = (cudaStream_t)stream;
    if (a->dtype == SB_BF16)
        return dispatch<__nv_bfloat16, 1>(ctx, a, p, &a->q, &a->k, &a->v, s);
    if (a->dtype == SB_FP16)
        return dispatch<__half, 1>(ctx, a, p, &a->q, &a->k, &a->v, s);

    const sb_status room = sb_workspace_check(a, flash_sm90_forward_workspace(ctx, a));
    if (room)
        return room;
    char *w = (char *)a->workspace;
    planes_tensor t[3] = {
        {a->q, w, a->heads, a->seq_q}, {a->k, 0, a->heads_kv, a->seq_k}, {a->v, 0, a->heads_kv, a->seq_k}};
    t[1].to = w += planes_bytes(a->batch, a->heads, a->seq_q, a->head_dim);
    t[2].to = w + planes_bytes(a->batch, a->heads_kv, a->seq_k, a->head_dim);
    const sb_status st = planes_split(t, 3, a->batch, a->head_dim, stream);
    if (st)
        return st;
    const sb_tensor q = planes_view(&t[0], a->head_dim), k = planes_view(&t[1], a->head_dim),
                    v = planes_view(&t[2], a->head_dim);
    return dispatch<__nv_bfloat16, 2>(ctx, a, p, &q, &k, &v, s);
}
