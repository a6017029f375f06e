/* Models of the times of the main kernels of the Hopper backward, in steps of the wide one. */
#include "kernels/cuda/flash_backward_choice.h"

#include <math.h>

#include "kernels/cuda/cluster_split.h"

/* The parts of a problem that the models need. */
typedef struct work {
    int key_tiles, query_blocks;
    double jobs, steps, sum; /* key tiles of all heads; steps of the longest; steps of all */
} work;

int flash_backward_key_tiles(const sb_attention *a)
{
    return (a->seq_k + FLASH_BACKWARD_KEYS - 1) / FLASH_BACKWARD_KEYS;
}

int flash_backward_step_rows(const sb_attention *a)
{
    return (a->head_dim <= 64 ? 128 : 64) / (a->dtype == SB_FP32 ? 2 : 1);
}

int flash_backward_padded_dim(const sb_attention *a)
{
    const int d = a->head_dim;
    return d <= 64 ? 64 : a->dtype == SB_FP32 || d > 96 ? 128 : d > 80 ? 96 : 80;
}

/* Their Q, dO and dQ sums fit in about two thirds of L2. */
int flash_backward_wide_section(const sb_attention *a)
{
    const int64_t row = 2 * a->head_dim * (a->dtype == SB_FP32 ? 4 : 2) + flash_backward_padded_dim(a) * 4,
                  head = row * a->seq_q * (a->heads / a->heads_kv), fit = (40 << 20) / head,
                  all = (int64_t)a->batch * a->heads_kv;
    return (int)(fit < 1 ? 1 : fit < all ? fit : all);
}

/* A section of heads makes about two jobs for each block: what it reads and adds to is then still in L2 when the next key
 * tile of a head comes (about 20 MB), and its long jobs are done when the chip runs out of short ones. Long rows of adders
 * in turns get four, so that a tile and the next one of its head begin farther apart. */
int flash_backward_narrow_section(const sb_attention *a, int sms, bool in_turns)
{
    const int key_tiles = flash_backward_key_tiles(a), all = a->batch * a->heads_kv;
    const int section = (in_turns && key_tiles > 8 ? 4 : 2) * ((sms + key_tiles - 1) / key_tiles);
    return section < all ? section : all;
}

static work measure(const sb_attention *a)
{
    work w = {.key_tiles = flash_backward_key_tiles(a)};
    const int group = a->heads / a->heads_kv, rows = flash_backward_step_rows(a);
    w.query_blocks = (a->seq_q + rows - 1) / rows;
    w.jobs = (double)a->batch * a->heads_kv * w.key_tiles;
    w.steps = (double)w.query_blocks * group;
    w.sum = w.jobs * w.steps * (a->causal ? 0.5 : 1.0);
    return w;
}

/* How many others of its head add to a query block while the first of `at_once` key tiles does. */
static int row_behind(int key_tiles, int at_once, int section)
{
    const int row = at_once / section < key_tiles ? at_once / section : key_tiles;
    return row > 1 ? row - 1 : 0;
}

/* Deterministic: how many sums of dQ are best, and the steps they cost. The key tiles of a head that run at once add to a
 * query block one after the other, and the last of them is late by a hand-over for each before it: 0.7 of a step, by a
 * simulation of the turns that gives the measured times of one sum. With n sums these rows are n times shorter, and with one
 * for each key tile nobody waits. But the pass after reads each of them at about 3.5 TB/s: in the time of a step 256 query
 * blocks of 32 KB, fp32 750 of 16 KB. When causal, early query blocks have fewer than n. The pass itself, which the narrow
 * kernel does not need in turns, is a step. */
static double choose_sums(const sb_attention *a, const work *w, int at_once, int *sums)
{
    const double hand_over = 0.7, read_in_a_step = a->dtype == SB_FP32 ? 750 : 256;
    const int64_t most_bytes = 64 << 20;
    const int behind = row_behind(w->key_tiles, at_once, flash_backward_wide_section(a));
    const double blocks = (double)a->batch * a->heads * w->query_blocks;
    const double bytes = blocks * flash_backward_step_rows(a) * flash_backward_padded_dim(a) * 4;
    double best = INFINITY;
    for (int n = 1; n == 1 || n * bytes <= most_bytes; n = 2 * n < w->key_tiles ? 2 * n : w->key_tiles) {
        const double waits = n == w->key_tiles ? 0 : hand_over * (behind / n),
                     read = (a->causal ? n - n * (n - 1) / (2.0 * w->key_tiles) : n) * blocks / read_in_a_step;
        if (waits + read < best)
            best = waits + read, *sums = n;
        if (n == w->key_tiles)
            break;
    }
    return best + 1;
}

/* Measured: starting a job takes 3 steps here, 2 of fp32's longer ones; in the narrow kernel 1.3, and a step 0.98. */
static double wide_time(const sb_attention *a, const work *w, const int *clusters, flash_backward_choice *choice)
{
    const double start = a->dtype == SB_FP32 ? 2 : 3;
    choice->split = choose_split((int64_t)w->jobs, (int)w->steps, a->causal, start, clusters), choice->sums = 1;
    const int at_once = clusters[choice->split == 8 ? 3 : choice->split / 2];
    const double time = fmax(start + w->steps / choice->split, (start * w->jobs + w->sum / choice->split) / at_once);
    return a->deterministic ? time + choose_sums(a, w, at_once, &choice->sums) : time;
}

/* Deterministic: a hand-over takes 0.45. When causal and all jobs run at once, nobody waits at the end: each has one step
 * less than the one before. */
static double narrow_time(const sb_attention *a, const work *w, int sms)
{
    const double time = 1.3 + fmax(0.98 * w->steps, (1.3 * w->jobs + 0.98 * w->sum) / sms);
    if (!a->deterministic || (a->causal && w->jobs <= sms))
        return time;
    return time + 0.45 * row_behind(w->key_tiles, sms, flash_backward_narrow_section(a, sms, true));
}

/* Measured: a step takes 0.94 at D 128, 0.95 at D 96 and 0.98 at D 80, where there is less to add; starting a job half a step
 * more. When causal, the second tile of a pair starts where the first does, two steps before it has a key to see. */
static double pair_time(const sb_attention *a, const work *w, int sms)
{
    const double step = a->head_dim <= 80 ? 0.98 : a->head_dim <= 96 ? 0.95 : 0.94;
    const double wasted = a->causal ? w->jobs * (a->heads / a->heads_kv) : 0;
    return fmax(3.5 + step * w->steps, (3.5 * w->jobs + step * (w->sum + wasted)) / sms);
}

/* The narrow kernel: unless jobs are so few that sharing them among several blocks is faster, or one head alone has more of
 * them than there are multiprocessors: all start at its last queries and add to the same dQ at once (6 to 8 % slower there on
 * an H200). In turns they do not. The pair kernel, if it is faster: not for jobs that several blocks share, nor in turns. */
flash_backward_choice flash_backward_choose(const sb_attention *a, int sms, const int *clusters)
{
    flash_backward_choice choice = {.kernel = FLASH_BACKWARD_WIDE};
    const work w = measure(a);
    const double wide = wide_time(a, &w, clusters, &choice);
    if (a->dtype == SB_FP32)
        return choice;
    if (a->head_dim > 64) {
        if (!a->deterministic && choice.split == 1 && clusters[1] > 0 && pair_time(a, &w, sms) < wide)
            choice.kernel = FLASH_BACKWARD_PAIR;
    } else if (narrow_time(a, &w, sms) <= wide && (a->deterministic || w.key_tiles <= sms)) {
        choice.kernel = FLASH_BACKWARD_NARROW, choice.sums = 1;
    }
    return choice;
}
