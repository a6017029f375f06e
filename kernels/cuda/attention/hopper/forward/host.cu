/* SPDX-License-Identifier: MIT */
/* Host side of the Hopper forward: tensor maps, workspace, launch. */
#include <cuda_runtime.h>

#include "kernels/cuda/hopper/cluster_split.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/attention/hopper/forward/choice.cuh"
#include "kernels/cuda/attention/hopper/forward/section.h"
#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/cuda/hopper/launch.cuh"
#include "kernels/cuda/attention/hopper/fp32_parts.cuh"
#include "kernels/cuda/hopper/tma.h"
#include "kernels/shared/internal.h"

namespace flash_hopper
{

/* The fewest rows of a tile in the instances for packed documents; the workspace is planned for them. */
enum { PACKED_LEAST_ROWS = 128 };

static void (*kernel_of(const forward_instance *x, const sb_attention *a))(forward_params)
{
    return a->causal ? x->causal : x->full;
}

/* in: q, k and v, or their parts. */
static sb_status launch(sb_context *ctx, const sb_attention *a, const forward_choice &choice, const sb_tensor (&in)[3],
                        forward_params p, cudaStream_t stream)
{
    const forward_instance *const x = choice.instance;
    const int rows = x->job_rows(), parts = flash_in_parts(a) ? 2 : 1, head_dim_v = sb_head_dim_v(a);
    const int box_rows = x->paired ? 64 : rows, box_keys = x->paired ? x->keys / 2 : x->keys;
    const sb_dtype type = flash_operand_type(a);
    sb_status st;
    if ((st = tma_map_tensor(&p.q_map, type, &in[0], a->batch * parts, a->heads, a->seq_q, a->head_dim, box_rows)) ||
        (st = tma_map_panels(&p.k_map, type, &in[1], a->batch * parts, a->heads_kv, a->seq_k, a->head_dim, box_keys,
                             x->panel)) ||
        (st = tma_map_panels(&p.v_map, type, &in[2], a->batch * parts, a->heads_kv, a->seq_k, head_dim_v, box_keys,
                             x->panel)) ||
        (parts == 1 && (st = tma_map_tensor(&p.o_map, type, &a->o, a->batch, a->heads, a->seq_q, head_dim_v, 16))))
        return st;
    p.o = a->o.data;
    p.o_stride_b = a->o.stride_b, p.o_stride_h = a->o.stride_h, p.o_stride_s = a->o.stride_s;
    p.lse = a->lse;
    p.next_job = ctx->zeros;
    p.batch = a->batch, p.heads = a->heads, p.group = a->heads / a->heads_kv;
    p.seq_q = a->seq_q, p.seq_k = a->seq_k, p.head_dim_v = head_dim_v;
    p.scale = sb_attention_scale(a);
    p.scale_log2 = p.scale * LOG2E;
    p.window_left = sb_window_left(a), p.window_right = sb_window_right(a);
    p.tiles = (a->seq_q + rows - 1) / rows;
    if (a->packed) {
        document_tiles *const list = (document_tiles *)a->workspace;
        if ((st = document_tiles_list(a, rows, x->keys, list, stream)))
            return st;
        p.tiles = document_tiles_most(a, rows);
        p.list = list;
    }

    const int64_t jobs = (int64_t)a->batch * a->heads * p.tiles;
    p.section = flash_forward_section(a);

    const int cluster = x->paired ? 2 : choice.split;
    const int64_t clusters = choice.split > 1 || jobs < choice.at_once ? jobs : choice.at_once;
    return launch_hopper("flash forward (Hopper)", kernel_of(x, a), (unsigned)(clusters * cluster),
                         128 * (x->groups + 1), x->bytes, cluster, stream, p);
}

/* p: where the scales of parts are. */
static sb_status run(sb_context *ctx, const sb_attention *a, flash_forward_kernel kernel, const sb_tensor (&in)[3],
                     const forward_params &p, cudaStream_t stream)
{
    const forward_instance *const any = &forward_list_for(a).items[0];
    const int *const clusters =
        count_clusters(ctx, (const void *)kernel_of(any, a), 128 * (any->groups + 1), any->bytes);
    const forward_choice choice = choose_forward(a, kernel, clusters);
    if (!choice.instance)
        return sb_error(SB_UNSUPPORTED, "no forward for head_dim %d and head_dim_v %d", a->head_dim, sb_head_dim_v(a));
    return launch(ctx, a, choice, in, p, stream);
}

} // namespace flash_hopper

using namespace flash_hopper;

extern "C" size_t flash_hopper_forward_workspace(sb_context *ctx, const sb_attention *a)
{
    (void)ctx;
    if (a->packed)
        return document_tiles_bytes(a, PACKED_LEAST_ROWS);
    if (!flash_in_parts(a))
        return 0;
    return fp32_parts_bytes(a->batch, a->heads, a->seq_q, a->head_dim, FP32_PARTS_QUERY_ROWS) +
           2 * fp32_parts_bytes(a->batch, a->heads_kv, a->seq_k, a->head_dim, FP32_PARTS_KEY_ROWS);
}

extern "C" sb_status flash_hopper_forward(sb_context *ctx, const sb_attention *a, void *stream)
{
    return flash_hopper_forward_with(ctx, a, FLASH_FORWARD_CHOSEN, stream);
}

extern "C" sb_status flash_hopper_forward_with(sb_context *ctx, const sb_attention *a, flash_forward_kernel kernel,
                                               void *stream)
{
    const cudaStream_t s = (cudaStream_t)stream;
    forward_params p = {};
    const sb_status room = sb_workspace_check(a, flash_hopper_forward_workspace(ctx, a));
    if (room)
        return room;
    if (!flash_in_parts(a)) {
        const sb_tensor in[3] = {a->q, a->k, a->v};
        return run(ctx, a, kernel, in, p, s);
    }
    char *const w = (char *)a->workspace;
    const size_t q = fp32_parts_bytes(a->batch, a->heads, a->seq_q, a->head_dim, FP32_PARTS_QUERY_ROWS),
                 k = fp32_parts_bytes(a->batch, a->heads_kv, a->seq_k, a->head_dim, FP32_PARTS_KEY_ROWS);
    const fp32_parts_tensor t[3] = {fp32_parts_queries(a, a->q, w), fp32_parts_keys(a, a->k, w + q),
                                    fp32_parts_keys(a, a->v, w + q + k)};
    const sb_status st = fp32_parts(flash_operand_type(a), t, 3, a->batch, a->head_dim, stream);
    if (st)
        return st;
    p.q_inverse = t[0].inverse, p.k_inverse = t[1].inverse, p.v_inverse = t[2].inverse;
    p.q_groups = fp32_parts_groups(t[0].seq, t[0].rows), p.kv_groups = fp32_parts_groups(t[1].seq, t[1].rows);
    const sb_tensor in[3] = {fp32_parts_view(&t[0], a->head_dim), fp32_parts_view(&t[1], a->head_dim),
                             fp32_parts_view(&t[2], a->head_dim)};
    return run(ctx, a, kernel, in, p, s);
}
