/* SPDX-License-Identifier: MIT */
/* A model of the time of each instance of the Hopper forward, in steps of a kernel's loop and rounds of the chip. */
#include "kernels/cuda/attention/hopper/forward/choice.cuh"

#include <math.h>

#include "kernels/cuda/attention/hopper/forward/choice.h"
#include "kernels/cuda/hopper/cluster_split.h"
#include "kernels/shared/internal.h"

namespace flash_hopper
{

const forward_list &forward_list_for(const sb_attention *a)
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

/* The instances for pairs: those that the shape has are tried like the others. */
static const forward_list *paired_list_for(const sb_attention *a)
{
    if (!flash_forward_has_pairs(a))
        return nullptr;
    return a->dtype == SB_BF16 ? &forward_bf16_paired : &forward_fp16_paired;
}

static int key_blocks(const sb_attention *a, const forward_instance *x)
{
    return (a->seq_k + x->keys - 1) / x->keys;
}

/* A pair's step compared with a step of two separate blocks, at the power limit, and how many steps longer its job takes: its
 * blocks wait for each other, and when causal only some of its groups see the first keys. */
static const double PAIRED_STEP = 0.96, PAIRED_WAIT = 0.4;

/* The time of a step of the kernel's loop, in steps of two groups at D 64: 128 rows by 128 keys. More rows hide a softmax
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

/* In and out of a tile: a cluster merges, and the next one is launched when it has left; a block without a cluster stays, and the loads of
 * its next tile run under the end of the one before. A pair ends when both of its tiles do. */
static double time_for(const sb_attention *a, const forward_instance *x, int split, int at_once)
{
    const int64_t tiles = (int64_t)a->batch * a->heads * ((a->seq_q + x->job_rows() - 1) / x->job_rows());
    const double wait = x->paired ? PAIRED_WAIT : 0, first = split == 1 ? x->groups + 1 : 2 * x->groups,
                 later = split == 1 ? 2 : x->groups + 3;
    return step_time(x) * split_time(tiles, key_blocks(a, x), a->causal, first + wait, later + wait, split, at_once);
}

/* Instances are listed by columns, so of equals the narrowest is first. */
static void choose_from(const forward_list &list, const sb_attention *a, const int *clusters, forward_choice *best)
{
    for (int i = 0; i < list.n; i++) {
        const forward_instance *const x = &list.items[i];
        if (x->columns < a->head_dim || x->columns_v < sb_head_dim_v(a))
            continue;
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

forward_choice choose_forward(const sb_attention *a, flash_forward_kernel kernel, const int *clusters)
{
    forward_choice best = {nullptr, 1, 0, INFINITY};
    const forward_list *const paired = paired_list_for(a);
    if (kernel != FLASH_FORWARD_PAIRED)
        choose_from(forward_list_for(a), a, clusters, &best);
    if (paired && kernel != FLASH_FORWARD_ALONE)
        choose_from(*paired, a, clusters, &best);
    return best;
}

} // namespace flash_hopper

using namespace flash_hopper;

extern "C" bool flash_forward_has_pairs(const sb_attention *a)
{
    return sb_head_dim_most(a) > 80 && (a->dtype == SB_BF16 || a->dtype == SB_FP16) && !a->windowed && !a->packed;
}

extern "C" flash_forward_choice flash_forward_choose(const sb_attention *a, flash_forward_kernel kernel,
                                                     const int *clusters)
{
    const forward_choice c = choose_forward(a, kernel, clusters);
    if (!c.instance)
        return {};
    return {c.instance->groups, c.instance->keys, c.split, c.instance->paired};
}
