/* Host side of the Hopper backward: workspace, which main kernel runs, the passes before and after it, and the launch of
 * the kernel that takes every shape. */
#include "kernels/cuda/flash_backward_sm90.cuh"

#include <cuda_runtime.h>
#include <math.h>

#include "kernels/cuda/cluster_split.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/flash_backward_layout.h"
#include "kernels/cuda/flash_backward_passes_sm90.cuh"
#include "kernels/cuda/flash_sm90.h"
#include "kernels/cuda/launch_sm90.cuh"
#include "kernels/cuda/planes.cuh"
#include "kernels/cuda/tma.h"
#include "kernels/internal.h"

using namespace flash_sm90;

namespace
{

using layout = flash_backward_layout;

/* Query rows a step of the wide kernel, as its tiles need them. */
int step_rows(const sb_attention *a)
{
    return (a->head_dim <= 64 ? 128 : 64) / (a->dtype == SB_FP32 ? 2 : 1);
}

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
    l.next_job = l.dq_sum + aligned(heads * l.rows * l.padded_dim * 4);
    l.turn = l.next_job + aligned(4);
    l.turn_end = l.turn + aligned(heads * l.blocks * 2 * 4);
    l.bytes = l.turn_end;
    if (a->dtype == SB_FP32) {
        const size_t q = planes_bytes(a->batch, a->heads, a->seq_q, a->head_dim),
                     k = planes_bytes(a->batch, a->heads_kv, a->seq_k, a->head_dim);
        l.planes[0] = l.bytes, l.planes[1] = l.planes[0] + q, l.planes[2] = l.planes[1] + k;
        l.planes[3] = l.planes[2] + k;
        l.bytes = l.planes[3] + q;
    }
    return l;
}

/* Blocks that share a key tile in the wide kernel. */
int wide_split(const sb_attention *a, int query_blocks, const int *clusters)
{
    const int64_t jobs = (int64_t)a->batch * a->heads_kv * ((a->seq_k + BACKWARD_KEYS - 1) / BACKWARD_KEYS);
    const double start = a->dtype == SB_FP32 ? 2 : 3; /* in steps; fp32's are longer */
    return choose_split(jobs, query_blocks * (a->heads / a->heads_kv), a->causal, start, clusters);
}

/* Whether the narrow kernel runs: unless jobs are so few that sharing them among several blocks is faster, or one head alone
 * has more of them than there are multiprocessors: all start at its last queries and add to the same dQ at once (6 to 8 %
 * slower there on an H200). Times are in steps of the wide kernel, 128 queries. Measured: starting a job takes 3 steps there
 * and 1.3 here, where a step takes 0.98. */
bool prefers_narrow(const sb_context *ctx, const sb_attention *a, const layout &l, const int *clusters)
{
    if (a->dtype == SB_FP32 || a->head_dim > 64)
        return false;
    const int key_tiles = (a->seq_k + BACKWARD_KEYS - 1) / BACKWARD_KEYS;
    const double jobs = (double)a->batch * a->heads_kv * key_tiles;
    const double steps = (double)l.blocks * (a->heads / a->heads_kv), work = jobs * steps * (a->causal ? 0.5 : 1.0);
    const int split = wide_split(a, l.blocks, clusters);
    const int at_once = clusters[split == 8 ? 3 : split / 2];
    const double wide = fmax(3 + steps / split, (3 * jobs + work / split) / at_once);
    const double narrow = 1.3 + fmax(0.98 * steps, (1.3 * jobs + 0.98 * work) / ctx->sm_count);
    return a->deterministic || (narrow <= wide && key_tiles <= ctx->sm_count);
}

template <class M, int DP>
sb_status prepare(sb_context *ctx, const sb_attention *a, const layout &l, bool sums, bool turns, cudaStream_t stream)
{
    char *const w = (char *)a->workspace;
    prepare_params p = {};
    p.o = a->o, p.d_o = a->d_o, p.lse = a->lse;
    p.lse2 = (float *)(w + l.lse2), p.delta = (float *)(w + l.delta);
    const size_t zero = sums ? l.dq_sum : l.next_job;
    p.zero = (float4 *)(w + zero), p.zero_count = (int64_t)((turns ? l.turn_end : l.turn) - zero) / 16;
    if (!sums)
        p.dq = a->dq;
    p.batch = a->batch, p.heads = a->heads, p.seq_q = a->seq_q;
    p.rows = l.rows, p.head_dim = a->head_dim;
    const int64_t rows = (int64_t)a->batch * a->heads * l.rows;
    auto blocks_for = [&](int chunk) { return (rows / chunk + 7) / 8; };
    /* Few rows: one a lane, and no more than one float4 of zeros a thread, so that nothing waits twice. (fp32, where twice as
     * many lanes have a row, loses up to 3 % by it.) */
    const int64_t shallow = blocks_for(prepare_shape<M, DP, 1>::CHUNK),
                  deep = blocks_for(prepare_shape<M, DP, 4>::CHUNK);
    if constexpr (sizeof(M) == 2) {
        if (shallow <= ctx->sm_count) {
            const int64_t for_zeros = (p.zero_count + 255) / 256;
            return launch_sm90("flash backward, prepare", flash_backward_prepare<M, DP, 1>,
                               (unsigned)(for_zeros > shallow ? for_zeros : shallow), 256, 0, 1, stream, p);
        }
    }
    const int64_t most = (int64_t)ctx->sm_count * 16;
    return launch_sm90("flash backward, prepare", flash_backward_prepare<M, DP, 4>,
                       (unsigned)(deep < most ? deep : most), 256, 0, 1, stream, p);
}

template <class M, int DP, int BM>
sb_status finish(const sb_attention *a, const layout &l, cudaStream_t stream)
{
    finish_params p = {};
    p.dq_sum = (float *)((char *)a->workspace + l.dq_sum), p.dq = a->dq.data;
    p.dq_stride_b = a->dq.stride_b, p.dq_stride_h = a->dq.stride_h, p.dq_stride_s = a->dq.stride_s;
    p.heads = a->heads, p.seq_q = a->seq_q, p.head_dim = a->head_dim;
    p.query_blocks = l.blocks, p.scale = sb_attention_scale(a);
    return launch_sm90("flash backward, finish", flash_backward_finish<M, DP, BM>,
                       (unsigned)((int64_t)a->batch * a->heads * l.blocks), 256, 0, 1, stream, p);
}

template <class T, int PLANES, int D, int BM>
sb_status launch_wide(const sb_attention *a, const layout &l, const sb_tensor (&in)[4], int split,
                      const flash_backward_options *options, cudaStream_t stream)
{
    using mem = backward_memory<PLANES, D, BM>;
    using M = typename memory_type<T, PLANES>::type;
    char *const w = (char *)a->workspace;
    backward_params p = {};
    const sb_dtype type = is_bf16<T>::value ? SB_BF16 : SB_FP16;
    const int64_t rows = (int64_t)a->batch * a->heads;
    sb_status st;
    if ((st = tma_map_tensor(&p.q_map, type, &in[0], a->batch * PLANES, a->heads, a->seq_q, a->head_dim, BM)) ||
        (st = tma_map_tensor(&p.k_map, type, &in[1], a->batch * PLANES, a->heads_kv, a->seq_k, a->head_dim,
                             BACKWARD_KEYS)) ||
        (st = tma_map_tensor(&p.v_map, type, &in[2], a->batch * PLANES, a->heads_kv, a->seq_k, a->head_dim,
                             BACKWARD_KEYS)) ||
        (st = tma_map_tensor(&p.do_map, type, &in[3], a->batch * PLANES, a->heads, a->seq_q, a->head_dim, BM)) ||
        (st = tma_map_rows(&p.lse_map, (float *)(w + l.lse2), rows, l.rows, BM)) ||
        (st = tma_map_rows(&p.delta_map, (float *)(w + l.delta), rows, l.rows, BM)))
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
    p.scale = sb_attention_scale(a), p.scale_log2 = p.scale * LOG2E;
    /* heads whose Q, dO and dQ sums fit in about two thirds of L2 are walked together */
    const int64_t head_bytes = (int64_t)a->seq_q * p.group * (2 * a->head_dim * (int)sizeof(M) + l.padded_dim * 4);
    const int64_t fit = options->section > 0 ? options->section : (int64_t)(40 << 20) / head_bytes,
                  all = (int64_t)a->batch * a->heads_kv;
    p.section = (int)(fit < 1 ? 1 : fit < all ? fit : all);

    const auto kernel = a->causal ? flash_backward<T, PLANES, D, BM, true> : flash_backward<T, PLANES, D, BM, false>;
    return launch_sm90("flash backward (Hopper)", kernel, (unsigned)(p.key_tiles * all * split), BACKWARD_THREADS,
                       mem::BYTES, split, stream, p);
}

template <class T, int PLANES, int D, int BM>
sb_status run(sb_context *ctx, const sb_attention *a, const layout &l, const sb_tensor (&in)[4],
              const flash_backward_options *options, cudaStream_t stream)
{
    using mem = backward_memory<PLANES, D, BM>;
    using M = typename memory_type<T, PLANES>::type;
    const auto any = flash_backward<T, PLANES, D, BM, true>; /* to count clusters: one block an SM, as all have */
    const int *const clusters = count_clusters(ctx, (const void *)any, BACKWARD_THREADS, mem::BYTES);
    const bool narrow = options->kernel == FLASH_BACKWARD_CHOSEN ? prefers_narrow(ctx, a, l, clusters)
                                                                 : options->kernel == FLASH_BACKWARD_NARROW;
    /* in turns the narrow kernel needs no zeros to add to, and its last adder writes dq itself */
    const bool turns = narrow ? flash_backward_in_turns(a, options) : a->deterministic, sums = !(narrow && turns);
    sb_status st = prepare<M, mem::DP>(ctx, a, l, sums, turns, stream);
    if (st || options->passes == 1)
        return st;
    st = narrow ? flash_backward_narrow_launch(ctx, a, l, options, stream)
                : launch_wide<T, PLANES, D, BM>(a, l, in, wide_split(a, l.blocks, clusters), options, stream);
    return st || options->passes == 2 || !sums ? st : finish<M, mem::DP, BM>(a, l, stream);
}

template <class T, int PLANES>
sb_status dispatch(sb_context *ctx, const sb_attention *a, const layout &l, const sb_tensor (&in)[4],
                   const flash_backward_options *options, cudaStream_t stream)
{
    if (a->head_dim <= 64)
        return run<T, PLANES, 64, 128 / PLANES>(ctx, a, l, in, options, stream);
    if constexpr (PLANES == 1) {
        if (a->head_dim <= 80)
            return run<T, PLANES, 80, 64>(ctx, a, l, in, options, stream);
        if (a->head_dim <= 96)
            return run<T, PLANES, 96, 64>(ctx, a, l, in, options, stream);
    }
    return run<T, PLANES, 128, 64 / PLANES>(ctx, a, l, in, options, stream);
}

} // namespace

extern "C" size_t flash_sm90_backward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    return plan(a).bytes;
}

extern "C" sb_status flash_sm90_backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    const flash_backward_options chosen = {};
    return flash_sm90_backward_with(ctx, a, &chosen, stream);
}

extern "C" sb_status flash_sm90_backward_with(sb_context *ctx, const sb_attention *a,
                                              const flash_backward_options *options, void *stream)
{
    const layout l = plan(a);
    sb_status st = sb_workspace_check(a, l.bytes);
    if (st)
        return st;
    if (options->kernel == FLASH_BACKWARD_NARROW && (a->head_dim > 64 || a->dtype == SB_FP32))
        return sb_error(SB_UNSUPPORTED, "the narrow backward takes 16-bit tensors of head_dim 64 or less");
    const cudaStream_t s = (cudaStream_t)stream;
    if (a->dtype != SB_FP32) {
        const sb_tensor in[4] = {a->q, a->k, a->v, a->d_o};
        return a->dtype == SB_BF16 ? dispatch<__nv_bfloat16, 1>(ctx, a, l, in, options, s)
                                   : dispatch<__half, 1>(ctx, a, l, in, options, s);
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
    return dispatch<__nv_bfloat16, 2>(ctx, a, l, in, options, s);
}
