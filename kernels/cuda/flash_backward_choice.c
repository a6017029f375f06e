/* Models of the times of the main kernels of the Hopper backward, in steps of the wide one. */
#include "kernels/cuda/flash_backward_choice.h"

#include <math.h>

#include "kernels/cuda/cluster_split.h"

/* What the models know from an H200, in steps of the wide kernel: what starting a job takes, a step, and in turns giving one
 * on: 1.75 us in the wide kernel (one head of S 16384, D 64 and one sum, beside the same without turns); for pairs, with half
 * as many bytes to wait for and the same way through L2, about the same. */
static const double WIDE_START = 3, WIDE_START_FP32 = 2 /* of its longer ones */, WIDE_HAND_OVER = 0.74;
static const double PAIR_START = 3.5, PAIR_HAND_OVER = 0.7;
static const double NARROW_START = 1.3, NARROW_STEP = 0.98, NARROW_HAND_OVER = 0.45;
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

int flash_backward_key_tiles(const sb_attention *a)
{
    return (a->seq_k + FLASH_BACKWARD_KEYS - 1) / FLASH_BACKWARD_KEYS;
}

int flash_backward_most_sums(const sb_attention *a, flash_backward_kernel kernel)
{
    const int key_tiles = flash_backward_key_tiles(a);
    return kernel == FLASH_BACKWARD_NARROW ? 1 : kernel == FLASH_BACKWARD_PAIR ? (key_tiles + 1) / 2 : key_tiles;
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

/* How many others of its head's `adders` (key tiles, or pairs) add to a query block while the first of `at_once` does. */
static int row_behind(int adders, int at_once, int section)
{
    const int row = at_once / section < adders ? at_once / section : adders;
    return row > 1 ? row - 1 : 0;
}

/* 1, 2, 3, 4, 6, 8, 12, 16, ... */
static int next_count(int n)
{
    return n % 3 == 0 ? n / 3 * 4 : n == 1 ? 2 : n / 2 * 3;
}

/* Deterministic: how many sums of dQ are best, and the steps they cost. The adders of a head that run at once add to a query
 * block one after the other, and the last of them is late by a hand-over for each before it. With n sums these rows are n
 * times shorter, and with one for each adder nobody waits. But the pass after reads each of them at about 3 TB/s: in the
 * time of a step 220 query blocks of 32 KB, fp32 660 of 16 KB. When causal, early query blocks have fewer than n. The pass
 * itself, which the narrow kernel does not need in turns, is a step. */
static double choose_sums(const sb_attention *a, const work *w, double hand_over, int at_once,
                          flash_backward_choice *choice)
{
    const double read_in_a_step = a->dtype == SB_FP32 ? 660 : 220;
    const int64_t most_bytes = 64 << 20;
    const int adders = flash_backward_most_sums(a, choice->kernel);
    const int behind = row_behind(adders, at_once, flash_backward_wide_section(a));
    const double blocks = (double)a->batch * a->heads * w->query_blocks;
    const double bytes = blocks * flash_backward_step_rows(a) * flash_backward_padded_dim(a) * 4;
    double best = INFINITY;
    for (int n = 1; n == 1 || n * bytes <= most_bytes; n = next_count(n) < adders ? next_count(n) : adders) {
        const double waits = n == adders ? 0 : hand_over * (behind / n),
                     read = (a->causal ? n - n * (n - 1) / (2.0 * adders) : n) * blocks / read_in_a_step;
        if (waits + read < best)
            best = waits + read, choice->sums = n;
        if (n == adders)
            break;
    }
    return best + 1;
}

static double wide_time(const sb_attention *a, const work *w, const int *clusters, flash_backward_choice *choice)
{
    const double start = a->dtype == SB_FP32 ? WIDE_START_FP32 : WIDE_START;
    choice->split = choose_split((int64_t)w->jobs, (int)w->steps, a->causal, start, clusters);
    const int at_once = clusters[choice->split == 8 ? 3 : choice->split / 2];
    const double time = fmax(start + w->steps / choice->split, (start * w->jobs + w->sum / choice->split) / at_once);
    return a->deterministic ? time + choose_sums(a, w, WIDE_HAND_OVER, at_once, choice) : time;
}

/* When causal and all jobs run at once, nobody waits for a turn at the end: each has one step less than the one before. */
static double narrow_time(const sb_attention *a, const work *w, int sms)
{
    const double time =
        NARROW_START + fmax(NARROW_STEP * w->steps, (NARROW_START * w->jobs + NARROW_STEP * w->sum) / sms);
    if (!a->deterministic || (a->causal && w->jobs <= sms))
        return time;
    return time + NARROW_HAND_OVER * row_behind(w->key_tiles, sms, flash_backward_narrow_section(a, sms, true));
}

/* When causal, the second tile of a pair starts where the first does, two steps before it has a key to see. */
static double pair_time(const sb_attention *a, const work *w, int sms, int pairs, flash_backward_choice *choice)
{
    const double step = pair_step(a->head_dim), wasted = a->causal ? w->jobs * (a->heads / a->heads_kv) : 0;
    const double time = fmax(PAIR_START + step * w->steps, (PAIR_START * w->jobs + step * (w->sum + wasted)) / sms);
    return a->deterministic ? time + choose_sums(a, w, PAIR_HAND_OVER, pairs, choice) : time;
}

/* The narrow kernel: unless jobs are so few that sharing them among several blocks is faster, or one head alone has more of
 * them than there are multiprocessors: all start at its last queries, and add to the same dQ at once (up to 8 % slower there
 * on an H200) or queue up for it (20 %). The pair kernel, if it is faster: not for jobs that several blocks share. */
flash_backward_choice flash_backward_choose(const sb_attention *a, flash_backward_kernel kernel, int sms,
                                            const int *clusters)
{
    flash_backward_choice wide = {FLASH_BACKWARD_WIDE, 1, 1}, pair = {FLASH_BACKWARD_PAIR, 1, 1};
    const flash_backward_choice narrow = {FLASH_BACKWARD_NARROW, 1, 1};
    const work w = measure(a);
    const double wide_steps = wide_time(a, &w, clusters, &wide), pair_steps = pair_time(a, &w, sms, clusters[1], &pair);
    if (kernel == FLASH_BACKWARD_CHOSEN) {
        kernel = FLASH_BACKWARD_WIDE;
        if (a->dtype == SB_FP32)
            return wide;
        if (a->head_dim > 64 && wide.split == 1 && clusters[1] > 0 && pair_steps < wide_steps)
            kernel = FLASH_BACKWARD_PAIR;
        if (a->head_dim <= 64 && w.key_tiles <= sms && narrow_time(a, &w, sms) <= wide_steps)
            kernel = FLASH_BACKWARD_NARROW;
    }
    return kernel == FLASH_BACKWARD_PAIR ? pair : kernel == FLASH_BACKWARD_NARROW ? narrow : wide;
}
