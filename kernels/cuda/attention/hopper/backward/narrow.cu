/* SPDX-License-Identifier: MIT */
/* Host side of the Hopper backward's main kernel for head_dim <= 64: tensor maps, order of the jobs, launch. */
#include "kernels/cuda/attention/hopper/backward/narrow.cuh"

#include <cuda_runtime.h>

#include "kernels/cuda/attention/hopper/backward/choice.h"
#include "kernels/cuda/attention/hopper/backward/layout.h"
#include "kernels/cuda/hopper/launch.cuh"
#include "kernels/cuda/hopper/tma.h"
#include "kernels/shared/internal.h"

using namespace flash_hopper;

static sb_status make_maps(narrow_params &p, const sb_attention *a, const flash_backward_layout &l)
{
    const int bh = a->batch * a->heads;
    sb_status st;
    if ((st = tma_map_tensor(&p.q_map, a->dtype, &a->q, a->batch, a->heads, a->seq_q, a->head_dim, NARROW_ROWS)) ||
        (st = tma_map_tensor(&p.do_map, a->dtype, &a->d_o, a->batch, a->heads, a->seq_q, a->head_dim, NARROW_ROWS)) ||
        (st = tma_map_tensor(&p.k_map, a->dtype, &a->k, a->batch, a->heads_kv, a->seq_k, a->head_dim, NARROW_KEYS)) ||
        (st = tma_map_tensor(&p.v_map, a->dtype, &a->v, a->batch, a->heads_kv, a->seq_k, a->head_dim, NARROW_KEYS)) ||
        (st = tma_map_tensor(&p.dk_map, a->dtype, &a->dk, a->batch, a->heads_kv, a->seq_k, a->head_dim, 16)) ||
        (st = tma_map_tensor(&p.dv_map, a->dtype, &a->dv, a->batch, a->heads_kv, a->seq_k, a->head_dim, 16)) ||
        (st = tma_map_tensor(&p.dq_map, a->dtype, &a->dq, a->batch, a->heads, a->seq_q, a->head_dim, NARROW_ROWS)) ||
        (st = tma_map_rows(&p.lse_map, (float *)((char *)a->workspace + l.lse2), bh, l.rows, NARROW_ROWS)) ||
        (st = tma_map_rows(&p.delta_map, (float *)((char *)a->workspace + l.delta), bh, l.rows, NARROW_ROWS)))
        return st;
    return SB_OK;
}

sb_status flash_backward_narrow_launch(sb_context *ctx, const sb_attention *a, const flash_backward_layout &l,
                                       cudaStream_t stream)
{
    narrow_params p = {};
    const sb_status st = make_maps(p, a, l);
    if (st)
        return st;
    char *const w = (char *)a->workspace;
    p.dq_sum = (float *)(w + l.dq_sum);
    p.order = flash_backward_narrow_in_order(a) ? (uint32_t *)(w + l.order) : nullptr;
    p.next_job = (unsigned *)(w + l.next_job);
    p.batch = a->batch, p.heads = a->heads, p.heads_kv = a->heads_kv, p.group = a->heads / a->heads_kv;
    p.seq_q = a->seq_q, p.seq_k = a->seq_k;
    p.key_tiles = a->packed ? documents::tile_numbers(a->seq_k, a->documents, NARROW_KEYS)
                            : (a->seq_k + NARROW_KEYS - 1) / NARROW_KEYS;
    p.query_blocks = (a->seq_q + NARROW_ROWS - 1) / NARROW_ROWS, p.block_stride = l.rows / NARROW_ROWS;
    p.scale = sb_attention_scale(a), p.scale_log2 = p.scale * LOG2E;

    const int all = a->batch * a->heads_kv;
    p.section = flash_backward_narrow_section(a, ctx->sm_count, p.order);
    p.sections = all / p.section;
    p.jobs = p.key_tiles * all;

    const unsigned blocks = p.jobs < ctx->sm_count ? p.jobs : ctx->sm_count;
    p.window_left = sb_window_left(a), p.window_right = sb_window_right(a);
    if (a->packed) { /* with the masks of windows */
        p.cu_seqlens_q = a->cu_seqlens_q, p.cu_seqlens_k = a->cu_seqlens_k, p.documents = a->documents;
        p.dq = a->dq, p.dk = a->dk, p.dv = a->dv, p.head_dim = a->head_dim;
        return launch_hopper("flash backward (Hopper, narrow, documents)",
                             a->dtype == SB_BF16 ? flash_backward_narrow<__nv_bfloat16, true, true, true>
                                                 : flash_backward_narrow<__half, true, true, true>,
                             blocks, NARROW_THREADS, narrow_memory::PACKED_BYTES, 1, stream, p);
    }
    auto kernel = a->dtype == SB_BF16 ? a->causal ? flash_backward_narrow<__nv_bfloat16, true>
                                                  : flash_backward_narrow<__nv_bfloat16, false>
                  : a->causal ? flash_backward_narrow<__half, true>
                                      : flash_backward_narrow<__half, false>;
    if (a->windowed)
        kernel = a->dtype == SB_BF16 ? flash_backward_narrow<__nv_bfloat16, true, true>
                                     : flash_backward_narrow<__half, true, true>;
    return launch_hopper("flash backward (Hopper, narrow)", kernel, blocks, NARROW_THREADS, narrow_memory::BYTES, 1,
                         stream, p);
}
