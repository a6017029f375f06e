/* SPDX-License-Identifier: MIT */
/* Host side of the Hopper backward: workspace, the passes before and after the main kernel, and the launch of the one that
 * takes every shape. */
#include "kernels/cuda/attention/hopper/backward/wide.cuh"

#include <cuda_runtime.h>

#include "kernels/cuda/hopper/cluster_split.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/attention/hopper/backward/choice.h"
#include "kernels/cuda/attention/hopper/backward/large.cuh"
#include "kernels/cuda/attention/hopper/backward/latent.cuh"
#include "kernels/cuda/attention/hopper/backward/layout.h"
#include "kernels/cuda/attention/hopper/backward/passes.cuh"
#include "kernels/cuda/attention/hopper/backward/tall.cuh"
#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/cuda/hopper/launch.cuh"
#include "kernels/cuda/attention/hopper/fp32_parts.cuh"
#include "kernels/cuda/hopper/tma.h"
#include "kernels/shared/internal.h"

using namespace flash_hopper;

static_assert(FLASH_BACKWARD_KEYS == BACKWARD_KEYS && FLASH_BACKWARD_LARGE_KEYS == LARGE_KEYS &&
                  FLASH_BACKWARD_TALL_KEYS == tall_memory::KEYS,
              "key tiles are counted alike");

namespace
{

using layout = flash_backward_layout;

size_t aligned(size_t n)
{
    return (n + 255) / 256 * 256;
}

/* With `sums` sums of dQ. */
layout plan(const sb_attention *a, int sums)
{
    const int bm = flash_backward_step_rows(a);
    const size_t heads = (size_t)a->batch * a->heads;
    layout l = {};
    l.blocks = a->packed ? documents::tile_numbers(a->seq_q, a->documents, bm) : (a->seq_q + bm - 1) / bm;
    l.rows = l.blocks * bm;
    l.padded_dim = flash_backward_padded_dim(a);
    l.delta = aligned(heads * l.rows * 4);
    l.dq_sum = l.delta + aligned(heads * l.rows * 4);
    l.next_job = l.dq_sum + aligned(sums * heads * l.rows * l.padded_dim * 4);
    l.order = l.next_job + aligned(4);
    l.order_end = l.order + aligned(heads * l.blocks * sums * 2 * 4);
    l.bytes = l.order_end;
    if (flash_in_parts(a)) {
        const size_t q = fp32_parts_bytes(a->batch, a->heads, a->seq_q, a->head_dim, FP32_PARTS_QUERY_ROWS),
                     k = fp32_parts_bytes(a->batch, a->heads_kv, a->seq_k, a->head_dim, FP32_PARTS_KEY_ROWS);
        l.parts[0] = l.bytes, l.parts[1] = l.parts[0] + q, l.parts[2] = l.parts[1] + k;
        l.parts[3] = l.parts[2] + k;
        l.bytes = l.parts[3] + q;
    }
    return l;
}

/* q, k, v and d_o in parts. */
void parts_of(const sb_attention *a, const layout &l, fp32_parts_tensor (&t)[4])
{
    char *const w = (char *)a->workspace;
    t[0] = fp32_parts_queries(a, a->q, w + l.parts[0]);
    t[1] = fp32_parts_keys(a, a->k, w + l.parts[1]);
    t[2] = fp32_parts_keys(a, a->v, w + l.parts[2]);
    t[3] = fp32_parts_queries(a, a->d_o, w + l.parts[3]);
}

flash_backward_choice choose(sb_context *ctx, const sb_attention *a, flash_backward_kernel kernel)
{
    const auto any =
        flash_backward<__nv_bfloat16, 1, 128, 64, true, false>; /* to count clusters: one block an SM, as all have */
    const int *const clusters =
        count_clusters(ctx, (const void *)any, BACKWARD_THREADS, backward_memory<1, 128, 64>::BYTES);
    return flash_backward_choose(a, kernel, ctx->sm_count, clusters);
}

template <class M, int DP>
sb_status prepare(sb_context *ctx, const sb_attention *a, const layout &l, bool zero_sums, bool zero_order,
                  bool zero_rows, cudaStream_t stream)
{
    char *const w = (char *)a->workspace;
    prepare_params p = {};
    p.o = a->o, p.d_o = a->d_o, p.lse = a->lse;
    p.lse2 = (float *)(w + l.lse2), p.delta = (float *)(w + l.delta);
    p.lse_factor = a->dtype == SB_FP32 ? 1 : LOG2E;
    const size_t zero = zero_sums ? l.dq_sum : l.next_job;
    p.zero = (float4 *)(w + zero), p.zero_count = (int64_t)((zero_order ? l.order_end : l.order) - zero) / 16;
    if (zero_rows)
        p.dq = a->dq;
    p.batch = a->batch, p.heads = a->heads, p.seq_q = a->seq_q;
    p.rows = l.rows, p.head_dim = sb_head_dim_v(a);
    p.cu_seqlens_q = a->cu_seqlens_q, p.documents = a->documents;
    const int64_t rows = (int64_t)a->batch * a->heads * l.rows;
    auto blocks_for = [&](int chunk) { return (rows / chunk + 7) / 8; };
    /* Few rows: one a lane, and no more than one float4 of zeros a thread, so that nothing waits twice. (fp32, where twice as
     * many lanes have a row, loses up to 3 % by it.) */
    const int64_t shallow = blocks_for(prepare_shape<M, DP, 1>::CHUNK),
                  deep = blocks_for(prepare_shape<M, DP, 4>::CHUNK);
    if constexpr (sizeof(M) == 2) {
        if (!a->packed && shallow <= ctx->sm_count) {
            const int64_t for_zeros = (p.zero_count + 255) / 256;
            return launch_hopper("flash backward, prepare", flash_backward_prepare<M, DP, 1>,
                                 (unsigned)(for_zeros > shallow ? for_zeros : shallow), 256, 0, 1, stream, p);
        }
    }
    const int64_t most = (int64_t)ctx->sm_count * 16;
    if constexpr (sizeof(M) == 2) {
        constexpr int BLOCK = DP == 64 ? 128 : 64; /* flash_backward_step_rows */
        if (a->packed)
            return launch_hopper("flash backward, prepare", flash_backward_prepare<M, DP, 4, true, BLOCK>,
                                 (unsigned)(deep < most ? deep : most), 256, 0, 1, stream, p);
    }
    return launch_hopper("flash backward, prepare", flash_backward_prepare<M, DP, 4>,
                         (unsigned)(deep < most ? deep : most), 256, 0, 1, stream, p);
}

template <class M, class MEM, int AT_ONCE>
sb_status finish(const sb_attention *a, const layout &l, const flash_backward_choice &c, cudaStream_t stream)
{
    finish_params p = {};
    p.dq_sum = (float *)((char *)a->workspace + l.dq_sum), p.dq = a->dq.data;
    p.dq_stride_b = a->dq.stride_b, p.dq_stride_h = a->dq.stride_h, p.dq_stride_s = a->dq.stride_s;
    p.sums = a->deterministic ? c.sums : 0, p.early = c.early, p.early_sums = c.early_sums;
    p.sum_stride = (int64_t)a->batch * a->heads * l.rows * (l.padded_dim / 4);
    p.key_tiles = flash_backward_key_tiles(a, c.kernel),
    p.keys_ahead = a->causal || a->windowed ? a->seq_k - a->seq_q + sb_window_right(a) : a->seq_k;
    p.pairs = c.kernel == FLASH_BACKWARD_PAIR;
    p.heads = a->heads, p.seq_q = a->seq_q, p.head_dim = a->head_dim;
    p.query_blocks = l.blocks, p.scale = sb_attention_scale(a);
    p.cu_seqlens_q = a->cu_seqlens_q, p.documents = a->documents;
    auto kernel = flash_backward_finish<M, MEM, AT_ONCE>;
    if constexpr (sizeof(M) == 2 && MEM::COLUMNS % 64 == 0 && AT_ONCE == 1)
        kernel = a->packed ? flash_backward_finish<M, MEM, 1, true> : kernel;
    return launch_hopper("flash backward, finish", kernel,
                         (unsigned)((int64_t)a->batch * a->heads * l.blocks * finish_shape<MEM, AT_ONCE>::PIECES), 256,
                         0, 1, stream, p);
}

/* ... with as many sums under way at once as there are. */
template <class M, class MEM>
sb_status finish_sums_of(const sb_attention *a, const layout &l, const flash_backward_choice &c, cudaStream_t stream)
{
    return c.sums == 1   ? finish<M, MEM, 1>(a, l, c, stream)
           : c.sums == 2 ? finish<M, MEM, 2>(a, l, c, stream)
           : c.sums <= 4 ? finish<M, MEM, 4>(a, l, c, stream)
                         : finish<M, MEM, 8>(a, l, c, stream);
}

/* Whether key tiles, or the pairs of them, wait for each other. */
bool in_order(const sb_attention *a, const flash_backward_choice &c)
{
    return a->deterministic && c.sums < flash_backward_most_sums(a, c.kernel);
}

/* What the main kernels are told, all but the narrow one. */
template <class T, int PARTS, class MEM>
sb_status set_params(backward_params *to, sb_context *ctx, const sb_attention *a, const layout &l,
                     const sb_tensor (&in)[4], const flash_backward_choice &c)
{
    char *const w = (char *)a->workspace;
    backward_params &p = *to;
    const sb_dtype type = is_bf16<T>::value ? SB_BF16 : SB_FP16;
    const int64_t rows = (int64_t)a->batch * a->heads;
    constexpr int QUERIES = MEM::tile_q::ROWS, KEYS = MEM::tile_kv::ROWS;
    const int head_dim_v = sb_head_dim_v(a);
    sb_status st;
    if ((st = tma_map_panels(&p.q_map, type, &in[0], a->batch * PARTS, a->heads, a->seq_q, a->head_dim, QUERIES,
                             MEM::tile_q::PANEL)) ||
        (st = tma_map_panels(&p.k_map, type, &in[1], a->batch * PARTS, a->heads_kv, a->seq_k, a->head_dim, KEYS,
                             MEM::tile_kv::PANEL)) ||
        (st = tma_map_panels(&p.v_map, type, &in[2], a->batch * PARTS, a->heads_kv, a->seq_k, head_dim_v, KEYS,
                             MEM::tile_v::PANEL)) ||
        (st = tma_map_panels(&p.do_map, type, &in[3], a->batch * PARTS, a->heads, a->seq_q, head_dim_v, QUERIES,
                             MEM::tile_do::PANEL)) ||
        (st = tma_map_rows(&p.lse_map, (float *)(w + l.lse2), rows, l.rows, QUERIES)) ||
        (st = tma_map_rows(&p.delta_map, (float *)(w + l.delta), rows, l.rows, QUERIES)))
        return st;
    p.dk = a->dk.data, p.dv = a->dv.data;
    p.dk_stride_b = a->dk.stride_b, p.dk_stride_h = a->dk.stride_h, p.dk_stride_s = a->dk.stride_s;
    p.dv_stride_b = a->dv.stride_b, p.dv_stride_h = a->dv.stride_h, p.dv_stride_s = a->dv.stride_s;
    p.dq_sum = (float *)(w + l.dq_sum);
    p.key_tiles = flash_backward_key_tiles(a, c.kernel);
    p.sums = a->deterministic ? c.sums : 0, p.early = c.early, p.early_sums = c.early_sums;
    p.order = in_order(a, c) ? (uint32_t *)(w + l.order) : nullptr;
    p.batch = a->batch, p.heads = a->heads, p.heads_kv = a->heads_kv, p.group = a->heads / a->heads_kv;
    p.seq_q = a->seq_q, p.seq_k = a->seq_k, p.head_dim = a->head_dim, p.head_dim_v = head_dim_v;
    p.query_blocks = l.blocks;
    p.scale = sb_attention_scale(a), p.scale_log2 = p.scale * LOG2E;
    p.section = flash_backward_wide_section(a, c.kernel, ctx->sm_count);
    p.window_left = sb_window_left(a), p.window_right = sb_window_right(a);
    p.cu_seqlens_q = a->cu_seqlens_q, p.cu_seqlens_k = a->cu_seqlens_k, p.documents = a->documents;
    if (scaled_parts<T, PARTS>) {
        fp32_parts_tensor t[4];
        parts_of(a, l, t);
        p.q_inverse = t[0].inverse, p.k_inverse = t[1].inverse, p.v_inverse = t[2].inverse, p.do_inverse = t[3].inverse;
        p.q_groups = fp32_parts_groups(t[0].seq, t[0].rows), p.k_groups = fp32_parts_groups(t[1].seq, t[1].rows);
    }
    return SB_OK;
}

/* The wide kernel, or the one for pairs, which has the same parameters. */
template <class T, int PARTS, int D, int BM>
sb_status launch_wide(sb_context *ctx, const sb_attention *a, const layout &l, const sb_tensor (&in)[4],
                      const flash_backward_choice &c, cudaStream_t stream)
{
    using mem = backward_memory<PARTS, D, BM>;
    backward_params p = {};
    const sb_status st = set_params<T, PARTS, mem>(&p, ctx, a, l, in, c);
    if (st)
        return st;
    if (c.kernel == FLASH_BACKWARD_PAIR)
        return flash_backward_pair_launch(p, a, stream);

    const auto start = [&](auto causal, auto full, int bytes) {
        return launch_hopper("flash backward (Hopper)", a->causal ? causal : full,
                             (unsigned)((int64_t)a->batch * a->heads_kv * p.key_tiles * c.split), BACKWARD_THREADS,
                             bytes, c.split, stream, p);
    };
    if constexpr (PARTS == 1 && D == 64)
        if (flash_backward_is_staged(a))
            return start(flash_backward<T, PARTS, D, BM, true, true>, flash_backward<T, PARTS, D, BM, false, true>,
                         mem::STAGED_BYTES);
    return start(flash_backward<T, PARTS, D, BM, true, false>, flash_backward<T, PARTS, D, BM, false, false>,
                 mem::BYTES);
}

template <class T, int PARTS, int D, int BM>
sb_status run(sb_context *ctx, const sb_attention *a, const flash_backward_choice &c, const layout &l,
              const sb_tensor (&in)[4], cudaStream_t stream)
{
    using M = typename memory_type<T, PARTS>::type;
    using mem = backward_memory<PARTS, D, BM>;
    /* in order the narrow kernel needs no zeros to add to, and its last adder writes dq itself */
    const bool narrow = c.kernel == FLASH_BACKWARD_NARROW, alone = narrow && flash_backward_narrow_in_order(a);
    sb_status st = prepare<M, mem::DP>(ctx, a, l, !alone && (narrow || !a->deterministic),
                                       narrow ? alone : in_order(a, c), alone, stream);
    if (st)
        return st;
    st = narrow ? flash_backward_narrow_launch(ctx, a, l, stream)
                : launch_wide<T, PARTS, D, BM>(ctx, a, l, in, c, stream);
    if (st || alone)
        return st;
    return finish_sums_of<M, mem>(a, l, c, stream);
}

/* Above head_dim or head_dim_v 128. */
template <class T, class MEM>
sb_status run_large(sb_context *ctx, const sb_attention *a, const flash_backward_choice &c, const layout &l,
                    const sb_tensor (&in)[4], cudaStream_t stream)
{
    backward_params p = {};
    sb_status st;
    if ((st = prepare<T, MEM::DP>(ctx, a, l, !a->deterministic, in_order(a, c), false, stream)) ||
        (st = set_params<T, 1, MEM>(&p, ctx, a, l, in, c)) || (st = backward_alone_launch<T, MEM>(p, a, stream)))
        return st;
    return finish_sums_of<T, MEM>(a, l, c, stream);
}

template <class T, int PARTS>
sb_status dispatch(sb_context *ctx, const sb_attention *a, const flash_backward_choice &c, const layout &l,
                   const sb_tensor (&in)[4], cudaStream_t stream)
{
    if (sb_head_dim_most(a) <= 64)
        return run<T, PARTS, 64, 128 / PARTS>(ctx, a, c, l, in, stream);
    if constexpr (PARTS == 1) {
        const int columns = flash_backward_padded_dim(a);
        if (columns == 192)
            return flash_backward_large_columns(a).v == 128 ? run_large<T, latent_memory>(ctx, a, c, l, in, stream)
                   : c.kernel == FLASH_BACKWARD_TALL        ? run_large<T, tall_memory>(ctx, a, c, l, in, stream)
                                                            : run_large<T, large_memory<192>>(ctx, a, c, l, in, stream);
        if (columns == 256)
            return run_large<T, large_memory<256>>(ctx, a, c, l, in, stream);
        if (columns == 80)
            return run<T, PARTS, 80, 64>(ctx, a, c, l, in, stream);
        if (columns == 96)
            return run<T, PARTS, 96, 64>(ctx, a, c, l, in, stream);
    }
    return run<T, PARTS, 128, 64 / PARTS>(ctx, a, c, l, in, stream);
}

} // namespace

extern "C" sb_status flash_hopper_backward_takes(const sb_attention *a, flash_backward_kernel kernel)
{
    const int most = sb_head_dim_most(a);
    const bool above = most > 128;
    if (!above && sb_head_dim_v(a) != a->head_dim)
        return sb_error(SB_UNSUPPORTED, "the Hopper backward takes values of another width only above head_dim 128");
    if (kernel == FLASH_BACKWARD_TALL && !flash_backward_tall_takes(a))
        return sb_error(SB_UNSUPPORTED, "the tall backward takes head_dim_v 136 to 192, without windows and documents");
    if (above ? kernel == FLASH_BACKWARD_WIDE || kernel == FLASH_BACKWARD_NARROW || kernel == FLASH_BACKWARD_PAIR
              : kernel == FLASH_BACKWARD_LARGE)
        return sb_error(SB_UNSUPPORTED,
                        "the large backward is the one of head_dim or head_dim_v above 128, and of no other");
    if (above && (most > 256 || flash_in_parts(a) || (a->deterministic && (a->windowed || a->packed))))
        return sb_error(SB_UNSUPPORTED, "the Hopper backward above head_dim 128 takes 16-bit tensors up to 256, with "
                                        "windows and documents in any order alone");
    if (a->packed && ((a->deterministic && a->head_dim > 64) || flash_in_parts(a) || kernel == FLASH_BACKWARD_WIDE))
        return sb_error(SB_UNSUPPORTED, "packed documents have the narrow backward, and the pair one in any order");
    if (a->windowed && (kernel == FLASH_BACKWARD_WIDE || flash_in_parts(a)))
        return sb_error(SB_UNSUPPORTED, "a window has the narrow and the pair backward, of 16 bits");
    if (kernel == FLASH_BACKWARD_NARROW && (a->head_dim > 64 || flash_in_parts(a)))
        return sb_error(SB_UNSUPPORTED, "the narrow backward takes 16-bit tensors of head_dim 64 or less");
    if (kernel == FLASH_BACKWARD_PAIR && (a->head_dim <= 64 || flash_in_parts(a)))
        return sb_error(SB_UNSUPPORTED, "the pair backward takes 16-bit tensors of head_dim above 64");
    return SB_OK;
}

extern "C" size_t flash_hopper_backward_workspace(sb_context *ctx, const sb_attention *a)
{
    return flash_hopper_backward_workspace_with(ctx, a, FLASH_BACKWARD_CHOSEN);
}

extern "C" size_t flash_hopper_backward_workspace_with(sb_context *ctx, const sb_attention *a,
                                                       flash_backward_kernel kernel)
{
    return plan(a, a->deterministic ? choose(ctx, a, kernel).sums : 1).bytes;
}

extern "C" sb_status flash_hopper_backward(sb_context *ctx, const sb_attention *a, void *stream)
{
    return flash_hopper_backward_with(ctx, a, FLASH_BACKWARD_CHOSEN, stream);
}

extern "C" sb_status flash_hopper_backward_with(sb_context *ctx, const sb_attention *a, flash_backward_kernel kernel,
                                                void *stream)
{
    const flash_backward_choice c = choose(ctx, a, kernel);
    const layout l = plan(a, c.sums);
    sb_status st = sb_workspace_check(a, l.bytes);
    if (st || (st = flash_hopper_backward_takes(a, kernel)))
        return st;
    const cudaStream_t s = (cudaStream_t)stream;
    if (!flash_in_parts(a)) {
        const sb_tensor in[4] = {a->q, a->k, a->v, a->d_o};
        return a->dtype == SB_BF16 ? dispatch<__nv_bfloat16, 1>(ctx, a, c, l, in, s)
                                   : dispatch<__half, 1>(ctx, a, c, l, in, s);
    }
    fp32_parts_tensor t[4];
    parts_of(a, l, t);
    if ((st = fp32_parts(flash_operand_type(a), t, 4, a->batch, a->head_dim, stream)))
        return st;
    const sb_tensor in[4] = {fp32_parts_view(&t[0], a->head_dim), fp32_parts_view(&t[1], a->head_dim),
                             fp32_parts_view(&t[2], a->head_dim), fp32_parts_view(&t[3], a->head_dim)};
    return a->dtype == SB_FP32 ? dispatch<__half, 2>(ctx, a, c, l, in, s)
                               : dispatch<__nv_bfloat16, 2>(ctx, a, c, l, in, s);
}
