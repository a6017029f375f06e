/* SPDX-License-Identifier: MIT */
/* Models of the times of the main kernels of the Hopper backward, in steps of the wide one. */
#include "kernels/cuda/attention/hopper/backward/choice.h"

#include <math.h>

#include "kernels/cuda/hopper/cluster_split.h"
#include "kernels/cuda/attention/hopper/backward/order.h"

/* What the models know from an H200, in steps of the wide kernel whose dQ is not staged: what starting a job takes, a step, and
 * handing over to the next adder in order: 1.75 us in the wide kernel (one head of S 16384, D 64 and one sum, against any order),
 * fewer of fp32's longer steps; for pairs, with half as many bytes to wait for and the same way through L2, about the same. The
 * narrow kernel loses 5 to 8 % in order however many adders a head has at once, and more where they are many (S 16384: 9 % with
 * 16 heads, 21 with 4). */
static const double WIDE_START = 3, WIDE_START_FP32 = 2 /* its steps are longer */, WIDE_HAND_OVER = 0.74,
                    WIDE_HAND_OVER_FP32 = 0.4, WIDE_STAGED_STEP = 0.9;
static const double PAIR_START = 3.5, PAIR_HAND_OVER = 0.7;
/* A step of 96 keys compared with one of 64: fits one to 256 heads of S 512 to 16384, forced to either kernel, within 13 %. */
static const double TALL_STEP = 1.17;
static const double NARROW_START = 1.3, NARROW_STEP = 0.96, NARROW_IN_ORDER = 1.05, NARROW_HAND_OVER = 1;
/* Where there is less to add, a step of a pair gains less. */
static double pair_step(int head_dim)
{
    return head_dim <= 80 ? 0.96 : head_dim <= 96 ? 0.935 : 0.91;
}

/* The parts of a problem that the models need. */
typedef struct work {
    int key_tiles, query_blocks;
    double jobs, steps, sum; /* key tiles of all heads; steps of the longest; steps of all */
} work;

/* Steps by which a key tile is longer than the next one, on average: some may be before the first query's diagonal. */
static double tile_steps(const sb_attention *a, flash_backward_kernel kernel)
{
    const double on_diagonal = fmin((double)a->seq_q / a->seq_k, 1);
    return a->causal ? on_diagonal * flash_backward_tile_keys(a, kernel) / flash_backward_step_rows(a) : 0;
}

static work measure(const sb_attention *a, flash_backward_kernel kernel)
{
    work w = {.key_tiles = flash_backward_key_tiles(a, kernel)};
    const int group = a->heads / a->heads_kv, rows = flash_backward_step_rows(a);
    w.query_blocks = (a->seq_q + rows - 1) / rows;
    w.jobs = (double)a->batch * a->heads_kv * w.key_tiles;
    w.steps = (double)w.query_blocks * group;
    w.sum = w.jobs * w.steps * (a->causal ? 0.5 : 1.0);
    return w;
}

static double wide_time(const sb_attention *a, const work *w, int sms, const int *clusters,
                        flash_backward_choice *choice)
{
    const double start = flash_in_parts(a) ? WIDE_START_FP32 : WIDE_START,
                 step = flash_backward_is_staged(a) ? WIDE_STAGED_STEP : 1;
    choice->split = choose_split((int64_t)w->jobs, (int)w->steps, a->causal, start, clusters);
    const int at_once = clusters[choice->split == 8 ? 3 : choice->split / 2];
    const flash_backward_order t = {.longest = start + step * w->steps / choice->split,
                                    .busy = (start * w->jobs + step * w->sum / choice->split) / at_once,
                                    .hand_over = flash_in_parts(a) ? WIDE_HAND_OVER_FP32 : WIDE_HAND_OVER,
                                    .apart = tile_steps(a, FLASH_BACKWARD_WIDE) / choice->split,
                                    .section = flash_backward_wide_section(a, FLASH_BACKWARD_WIDE, sms)};
    return a->deterministic ? flash_backward_order_additions(a, t, at_once, choice) : fmax(t.longest, t.busy);
}

/* When causal and all jobs run at once, no block waits at the end: each job has one step less than the one before. */
static double narrow_time(const sb_attention *a, const work *w, int sms)
{
    const double time =
        NARROW_START + fmax(NARROW_STEP * w->steps, (NARROW_START * w->jobs + NARROW_STEP * w->sum) / sms);
    if (!a->deterministic || (a->causal && w->jobs <= sms))
        return time;
    const int row = flash_backward_first_round(w->key_tiles, sms, flash_backward_narrow_section(a, sms, true));
    return NARROW_IN_ORDER * time + NARROW_HAND_OVER * (row - 1);
}

/* When causal, the second tile of a pair starts where the first does, two steps before it has a key to see. */
static double pair_time(const sb_attention *a, const work *w, int sms, int pairs, flash_backward_choice *choice)
{
    const double step = pair_step(a->head_dim), wasted = a->causal ? w->jobs * (a->heads / a->heads_kv) : 0;
    const flash_backward_order t = {.longest = PAIR_START + step * w->steps,
                                    .busy = (PAIR_START * w->jobs + step * (w->sum + wasted)) / sms,
                                    .hand_over = PAIR_HAND_OVER,
                                    .apart = 2 * tile_steps(a, FLASH_BACKWARD_PAIR),
                                    .section = flash_backward_wide_section(a, FLASH_BACKWARD_PAIR, sms)};
    return a->deterministic ? flash_backward_order_additions(a, t, pairs, choice) : fmax(t.longest, t.busy);
}

/* The time of the large kernel, in its steps, or of the tall one. Without a diagonal all jobs take equally long, and so they end in rounds. */
static double large_time(const sb_attention *a, int sms, flash_backward_choice *choice)
{
    const double step = choice->kernel == FLASH_BACKWARD_TALL ? TALL_STEP : 1;
    const work w = measure(a, choice->kernel);
    const flash_backward_order t = {.longest = WIDE_START + step * w.steps,
                                    .busy = (WIDE_START * w.jobs + step * w.sum) / sms,
                                    .hand_over = WIDE_HAND_OVER,
                                    .apart = step * tile_steps(a, choice->kernel),
                                    .section = flash_backward_wide_section(a, choice->kernel, sms)};
    if (a->deterministic)
        return flash_backward_order_additions(a, t, sms, choice);
    return a->causal ? fmax(t.longest, t.busy) : ceil(w.jobs / sms) * t.longest;
}

static flash_backward_choice choose_large(const sb_attention *a, flash_backward_kernel kernel, int sms)
{
    flash_backward_choice large = {FLASH_BACKWARD_LARGE, 1, 1, 0, 0}, tall = {FLASH_BACKWARD_TALL, 1, 1, 0, 0};
    const double large_steps = large_time(a, sms, &large),
                 tall_steps = flash_backward_tall_takes(a) ? large_time(a, sms, &tall) : INFINITY;
    if (kernel == FLASH_BACKWARD_CHOSEN)
        kernel = tall_steps < large_steps ? FLASH_BACKWARD_TALL : FLASH_BACKWARD_LARGE;
    return kernel == FLASH_BACKWARD_TALL ? tall : large;
}

/* The narrow kernel: unless jobs are so few that sharing them among several blocks is faster, or a single head has more of
 * them than there are multiprocessors: all start at its last queries, and add to the same dQ at once (up to 8 % slower there
 * on an H200) or queue up for it (20 %). The pair kernel, if it is faster: not for jobs that several blocks share. */
flash_backward_choice flash_backward_choose(const sb_attention *a, flash_backward_kernel kernel, int sms,
                                            const int *clusters)
{
    flash_backward_choice wide = {FLASH_BACKWARD_WIDE, 1, 1, 0, 0}, pair = {FLASH_BACKWARD_PAIR, 1, 1, 0, 0};
    const flash_backward_choice narrow = {FLASH_BACKWARD_NARROW, 1, 1, 0, 0};
    if (sb_head_dim_most(a) > 128)
        return choose_large(a, kernel, sms);
    if (a->windowed || a->packed) /* there are no others */
        return a->head_dim <= 64 ? narrow : pair;
    const work w = measure(a, FLASH_BACKWARD_WIDE);
    const double wide_steps = wide_time(a, &w, sms, clusters, &wide),
                 pair_steps = pair_time(a, &w, sms, clusters[1], &pair);
    if (kernel == FLASH_BACKWARD_CHOSEN) {
        kernel = FLASH_BACKWARD_WIDE;
        if (flash_in_parts(a))
            return wide;
        if (a->head_dim > 64 && wide.split == 1 && clusters[1] > 0 && pair_steps < wide_steps)
            kernel = FLASH_BACKWARD_PAIR;
        if (a->head_dim <= 64 && w.key_tiles <= sms && narrow_time(a, &w, sms) <= wide_steps)
            kernel = FLASH_BACKWARD_NARROW;
    }
    return kernel == FLASH_BACKWARD_PAIR ? pair : kernel == FLASH_BACKWARD_NARROW ? narrow : wide;
}
