/* Host side of the Hopper backward: workspace, tensor maps, the three launches. */
#include "kernels/cuda/flash_backward_sm90.cuh"

#include <cuda_runtime.h>

#include "kernels/cuda/cluster_split.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/flash_sm90.h"
#include "kernels/cuda/launch_sm90.cuh"
#include "kernels/cuda/planes.cuh"
#include "kernels/cuda/tma.h"
#include "kernels/internal.h"

using namespace flash_sm90;

namespace
{

/* Query rows a step, as the kernel's tiles need them. */
int step_rows(const sb_attention *a)
{
    return (a->head_dim <= 64 ? 128 : 64) / (a->dtype == SB_FP32 ? 2 : 1);
}

/* Where things lie in the workspace, all 256-byte aligned. */
struct layout {
    int rows, blocks, padded_dim;     /* rows of lse2 and delta of a head; query blocks; 64 or 128 */
    size_t lse2, delta, dq_sum, turn; /* offsets */
    size_t zero_end;                  /* dq_sum .. zero_end starts as zeros */
    size_t planes[4];                 /* q, k, v, d_o; fp32 only */
    size_t bytes;
};

size_t aligned(size_t n)
{
    return (n + 255) / 256 * 256;
}

layout plan(const sb_attention *a)
{
    const int bm = step_rows(a);
    const size_t heads = (size_t)a->batch * a->heads;
    layout l = {};
    l.blocks = (a->seq_q + bm - 1) / bm;
    l.rows = l.blocks * bm;
    l.padded_dim = a->head_dim <= 64 ? 64 : 128;
    l.delta = aligned(heads * l.rows * 4);
    l.dq_sum = l.delta + aligned(heads * l.rows * 4);
    l.turn = l.dq_sum + aligned(heads * l.rows * l.padded_dim * 4);
    l.zero_end = a->deterministic ? l.turn + aligned(heads * l.blocks * 2 * 4) : l.turn;
    l.bytes = l.zero_end;
    if (a->dtype == SB_FP32) {
        const size_t q = planes_bytes(a->batch, a->heads, a->seq_q, a->head_dim),
                     k = planes_bytes(a->batch, a->heads_kv, a->seq_k, a->head_dim);
        l.planes[0] = l.bytes, l.planes[1] = l.planes[0] + q, l.planes[2] = l.planes[1] + k;
        l.planes[3] = l.planes[2] + k;
        l.bytes = l.planes[3] + q;
    }
    return l;
}

template <class T, int PLANES, int DP, int BM>
sb_status run(sb_context *ctx, const sb_attention *a, const layout &l, const sb_tensor (&in)[4], cudaStream_t stream)
{
    using mem = backward_memory<PLANES, DP, BM>;
    using M = typename memory_type<T, PLANES>::type;
    char *const w = (char *)a->workspace;
    const float scale = sb_attention_scale(a);

    prepare_params before = {};
    before.o = a->o, before.d_o = a->d_o, before.lse = a->lse;
    before.lse2 = (float *)(w + l.lse2), before.delta = (float *)(w + l.delta);
    before.zero = (float4 *)(w + l.dq_sum), before.zero_count = (int64_t)(l.zero_end - l.dq_sum) / 16;
    before.batch = a->batch, before.heads = a->heads, before.seq_q = a->seq_q;
    before.rows = l.rows, before.head_dim = a->head_dim;
    const int64_t warps = (int64_t)a->batch * a->heads * l.rows, most = (int64_t)ctx->sm_count * 8;
    const unsigned prepare_blocks = (unsigned)((warps + 7) / 8 < most ? (warps + 7) / 8 : most);
    sb_status st =
        launch_sm90("flash backward, prepare", flash_backward_prepare<M>, prepare_blocks, 256, 0, 1, stream, before);
    if (st)
        return st;

    backward_params p = {};
    const sb_dtype type = is_bf16<T>::value ? SB_BF16 : SB_FP16;
    const int64_t rows = (int64_t)a->batch * a->heads;
    if ((st = tma_map_tensor(&p.q_map, type, &in[0], a->batch * PLANES, a->heads, a->seq_q, a->head_dim, BM)) ||
        (st = tma_map_tensor(&p.k_map, type, &in[1], a->batch * PLANES, a->heads_kv, a->seq_k, a->head_dim,
                             BACKWARD_KEYS)) ||
        (st = tma_map_tensor(&p.v_map, type, &in[2], a->batch * PLANES, a->heads_kv, a->seq_k, a->head_dim,
                             BACKWARD_KEYS)) ||
        (st = tma_map_tensor(&p.do_map, type, &in[3], a->batch * PLANES, a->heads, a->seq_q, a->head_dim, BM)) ||
        (st = tma_map_rows(&p.lse_map, before.lse2, rows, l.rows, BM)) ||
        (st = tma_map_rows(&p.delta_map, before.delta, rows, l.rows, BM)))
        return st;
    p.dk = a->dk.data, p.dv = a->dv.data;
    p.dk_stride_b = a->dk.stride_b, p.dk_stride_h = a->dk.stride_h, p.dk_stride_s = a->dk.stride_s;
    p.dv_stride_b = a->dv.stride_b, p.dv_stride_h = a->dv.stride_h, p.dv_stride_s = a->dv.stride_s;
    p.dq_sum = (float *)(w + l.dq_sum);
    p.turn = a->deterministic ? (uint32_t *)(w + l.turn) : nullptr;
    p.batch = a->batch, p.heads = a->heads, p.heads_kv = a->heads_kv, p.group = a->heads / a->heads_kv;
    p.seq_q = a->seq_q, p.seq_k = a->seq_k, p.head_dim = a->head_dim;
    p.key_tiles = (a->seq_k + BACKWARD_KEYS - 1) / BACKWARD_KEYS;
    p.query_blocks = l.blocks;
    p.scale = scale, p.scale_log2 = scale * LOG2E;
    /* heads whose Q, dO and dQ sums fit in about two thirds of L2 are walked together */
    const int64_t head_bytes = (int64_t)a->seq_q * p.group * (2 * a->head_dim * (int)sizeof(M) + l.padded_dim * 4);
    const int64_t fit = (int64_t)(40 << 20) / head_bytes, all = (int64_t)a->batch * a->heads_kv;
    p.section = (int)(fit < 1 ? 1 : fit < all ? fit : all);

    const auto kernel = a->causal ? flash_backward<T, PLANES, DP, BM, true> : flash_backward<T, PLANES, DP, BM, false>;
    const int64_t jobs = (int64_t)p.key_tiles * all;
    const int *const clusters = count_clusters(ctx, (const void *)kernel, BACKWARD_THREADS, mem::BYTES);
    const int split = a->deterministic ? 1 : choose_split(jobs, p.query_blocks * p.group, a->causal, 3, clusters);
    if ((st = launch_sm90("flash backward (Hopper)", kernel, (unsigned)(jobs * split), BACKWARD_THREADS, mem::BYTES,
                          split, stream, p)))
        return st;

    finish_params after = {};
    after.dq_sum = p.dq_sum, after.dq = a->dq.data;
    after.dq_stride_b = a->dq.stride_b, after.dq_stride_h = a->dq.stride_h, after.dq_stride_s = a->dq.stride_s;
    after.heads = a->heads, after.seq_q = a->seq_q, after.head_dim = a->head_dim;
    after.query_blocks = l.blocks, after.scale = scale;
    return launch_sm90("flash backward, finish", flash_backward_finish<M, DP, BM>, (unsigned)(rows * l.blocks), 256, 0,
                       1, stream, after);
}

template <class T, int PLANES>
sb_status dispatch(sb_context *ctx, const sb_attention *a, const layout &l, const sb_tensor (&in)[4],
                   cudaStream_t stream)
{
    return a->head_dim <= 64 ? run<T, PLANES, 64, 128 / PLANES>(ctx, a, l, in, stream)
                             : run<T, PLANES, 128, 64 / PLANES>(ctx, a, l, in, stream);
}

} // namespace

extern "C" size_t flash_sm90_backward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    return plan(a).bytes;
}

extern "C" sb_status flash_sm90_backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const layout l = plan(a);
    sb_status st = sb_workspace_check(a, l.bytes);
    if (st)
        return st;
    const cudaStream_t s = (cudaStream_t)stream;
    if (a->dtype != SB_FP32) {
        const sb_tensor in[4] = {a->q, a->k, a->v, a->d_o};
        return a->dtype == SB_BF16 ? dispatch<__nv_bfloat16, 1>(ctx, a, l, in, s)
                                   : dispatch<__half, 1>(ctx, a, l, in, s);
    }
    char *const w = (char *)a->workspace;
    const planes_tensor t[4] = {{a->q, w + l.planes[0], a->heads, a->seq_q},
                                {a->k, w + l.planes[1], a->heads_kv, a->seq_k},
                                {a->v, w + l.planes[2], a->heads_kv, a->seq_k},
                                {a->d_o, w + l.planes[3], a->heads, a->seq_q}};
    if ((st = planes_split(t, 4, a->batch, a->head_dim, stream)))
        return st;
    const sb_tensor in[4] = {planes_view(&t[0], a->head_dim), planes_view(&t[1], a->head_dim),
                             planes_view(&t[2], a->head_dim), planes_view(&t[3], a->head_dim)};
    return dispatch<__nv_bfloat16, 2>(ctx, a, l, in, s);
}
