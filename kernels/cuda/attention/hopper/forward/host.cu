/* SPDX-License-Identifier: MIT */
/* Host side of the Hopper forward: which instance, how many blocks share a tile or keys, tensor maps, launch. */
#include <cuda_runtime.h>
#include <math.h>

#include "kernels/cuda/hopper/cluster_split.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/attention/hopper/forward/layout.cuh"
#include "kernels/cuda/attention/hopper/forward/section.h"
#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/cuda/hopper/launch.cuh"
#include "kernels/cuda/attention/hopper/fp32_parts.cuh"
#include "kernels/cuda/hopper/tma.h"
#include "kernels/internal.h"

namespace flash_hopper
{

/* Of a tile in the instances for packed documents: more tiles than these have none. */
enum { PACKED_LEAST_ROWS = 128 };

static const forward_list &list_for(const sb_attention *a)
{
    if (flash_in_parts(a))
        return a->dtype == SB_FP32 ? forward_fp32 : forward_bf16x3;
    if (a->packed)
        return a->dtype == SB_BF16 ? forward_bf16_packed : forward_fp16_packed;
    if (a->windowed)
        return a->dtype == SB_BF16 ? forward_bf16_window : forward_fp16_window;
    if (a->dtype == SB_BF16)
        return sb_head_dim_most(a) <= 64 ? forward_bf16_small : forward_bf16_large;
    return sb_head_dim_most(a) <= 64 ? forward_fp16_small : forward_fp16_large;
}

/* Of pairs, besides: those that the shape has are tried like the others. */
static const forward_list *paired_list_for(const sb_attention *a)
{
    if (!flash_forward_has_pairs(a))
        return nullptr;
    return a->dtype == SB_BF16 ? &forward_bf16_paired : &forward_fp16_paired;
}

static void (*kernel_of(const forward_instance *x, const sb_attention *a))(forward_params)
{
    return a->causal ? x->causal : x->full;
}

static int key_blocks(const sb_attention *a, const forward_instance *x)
{
    return (a->seq_k + x->keys - 1) / x->keys;
}

/* A pair's step beside that of two blocks alone, at the power limit, and what a job of it takes longer: its blocks wait for each
 * other, and when causal only some of its groups see the first keys. */
static const double PAIRED_STEP = 0.96, PAIRED_WAIT = 0.4;

/* The time of a step of the kernel's loop, in those of two groups at D 64: 128 rows by 128 keys. More rows hide a softmax
 * better and load keys less often; fewer give more multiprocessors work. This and the constants below fit one head of S 2048 to
 * 65536 on an H200, forced to several of these choices, within about 10 %. */
static double step_time(const forward_instance *x)
{
    static const double rows[] = {0, 0.58, 0.68, 0.85};
    const double products = (x->columns + x->columns_v) / 2.0 * x->keys / (200.0 * 128);
    const double alone =
        x->columns > 128 ? 0.1 + 2 * products : rows[x->groups] + products; /* above 128 they hide the softmax */
    return x->paired ? PAIRED_STEP * alone : alone;
}

/* Query rows of a job, which a pair has together. */
static int job_rows(const forward_instance *x)
{
    return 64 * x->groups * (x->paired ? 2 : 1);
}

/* In and out of a tile: a cluster merges, and the next one is launched when it has left; a block alone stays, and the loads of
 * its next tile run under the end of the one before. A pair ends when both of its tiles do. */
static double time_for(const sb_attention *a, const forward_instance *x, int split, int at_once)
{
    const int64_t tiles = (int64_t)a->batch * a->heads * ((a->seq_q + job_rows(x) - 1) / job_rows(x));
    const double wait = x->paired ? PAIRED_WAIT : 0, first = split == 1 ? x->groups + 1 : 2 * x->groups,
                 later = split == 1 ? 2 : x->groups + 3;
    return step_time(x) * split_time(tiles, key_blocks(a, x), a->causal, first + wait, later + wait, split, at_once);
}

struct forward_choice {
    const forward_instance *instance; /* NULL: none has the columns */
    int split;                        /* blocks that share a tile */
    int at_once;                      /* clusters that run at once */
    double time;
};

/* Instances are listed by columns, so of equals the narrowest is first. */
static void choose_from(const forward_list &list, sb_context *ctx, const sb_attention *a, forward_choice *best)
{
    for (int i = 0; i < list.n; i++) {
        const forward_instance *const x = &list.items[i];
        if (x->columns < a->head_dim || x->columns_v < sb_head_dim_v(a))
            continue;
        const int *const clusters = count_clusters(ctx, (const void *)kernel_of(x, a), 128 * (x->groups + 1), x->bytes);
        if (x->paired) {
            const double time = clusters[1] > 0 ? time_for(a, x, 1, clusters[1]) : INFINITY;
            if (time < best->time)
                *best = {x, 1, clusters[1], time};
            continue;
        }
        const int most = x->clusters ? 4 : 1, blocks = key_blocks(a, x);
        for (int n = 0; n < most && (n == 0 || 1 << n <= blocks) && clusters[n] > 0; n++) {
            const double time = time_for(a, x, 1 << n, clusters[n]);
            if (time < best->time)
                *best = {x, 1 << n, clusters[n], time};
        }
    }
}

static forward_choice choose(sb_context *ctx, const sb_attention *a, flash_forward_kernel kernel)
{
    forward_choice best = {nullptr, 1, 0, INFINITY};
    const forward_list *const paired = paired_list_for(a);
    if (kernel != FLASH_FORWARD_PAIRED)
        choose_from(list_for(a), ctx, a, &best);
    if (paired && kernel != FLASH_FORWARD_ALONE)
        choose_from(*paired, ctx, a, &best);
    return best;
}

/* in: q, k and v, or their parts. */
static sb_status launch(sb_context *ctx, const sb_attention *a, const forward_choice &choice, const sb_tensor (&in)[3],
                        forward_params p, cudaStream_t stream)
{
    const forward_instance *const x = choice.instance;
    const int rows = job_rows(x), parts = flash_in_parts(a) ? 2 : 1, head_dim_v = sb_head_dim_v(a);
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

/* p: where the scales of parts lie. */
static sb_status run(sb_context *ctx, const sb_attention *a, flash_forward_kernel kernel, const sb_tensor (&in)[3],
                     const forward_params &p, cudaStream_t stream)
{
    const forward_choice choice = choose(ctx, a, kernel);
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

extern "C" bool flash_forward_has_pairs(const sb_attention *a)
{
    return sb_head_dim_most(a) > 80 && (a->dtype == SB_BF16 || a->dtype == SB_FP16) && !a->windowed && !a->packed;
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
