/* SPDX-License-Identifier: MIT */
/* The model of the order of additions in the Hopper backward, in steps of the wide kernel. */
#include "kernels/cuda/attention/hopper/backward/order.h"

#include <math.h>

/* How much longer than a hand-over the distance between adders should be; what an order costs even if no adder waits, when adders
 * start together and when they start apart; what more sums should gain. */
static const double ORDER_JITTER = 0.35, IN_ORDER = 0.8, START_APART = 1.4, WORTH_A_SUM = 0.2;

int flash_backward_first_round(int adders, int at_once, int section)
{
    const int row = at_once / section < adders ? at_once / section : adders;
    return row > 1 ? row : 1;
}

/* 1, 2, 3, 4, 6, 8, 12, 16, ... */
static int next_count(int n)
{
    return n % 3 == 0 ? n / 3 * 4 : n == 1 ? 2 : n / 2 * 3;
}

/* By what the last of `row` adders that follow each other `apart` is late if they share n sums. */
static double late(double hand_over, double apart, int row, int n)
{
    return fmax(hand_over - n * apart, 0) * ((row - 1) / n);
}

/* What the pass after needs for n sums of all adders but the first `before`: when causal, these see no query block before
 * their diagonal, and the first blocks after it have fewer than n. */
static double read_sums(const flash_backward_order *t, int before, int n)
{
    return t->read * (t->apart > 0 ? (double)n * (t->adders - before - (n - 1) / 2.0) / t->adders : n);
}

/* All start at the last query. The last of a row is late by a hand-over for each before it, but if causal also shorter. With a
 * sum for each adder, none waits. */
static double start_together(const flash_backward_order *t, int n)
{
    const double read = read_sums(t, 0, n);
    if (n == t->adders)
        return fmax(t->longest, t->busy) + read;
    return fmax(t->longest + late(t->hand_over + 2 * ORDER_JITTER, t->apart, t->row, n),
                t->busy + late(t->hand_over, 0, t->row, n)) +
           IN_ORDER + read;
}

/* The first row starts at the diagonal, its last adder first, and so each is `apart` after the one before it. The others
 * start as these end, again `apart`. What n sums of the first row add to the time... */
static double start_apart(const flash_backward_order *t, int n)
{
    return late(t->hand_over + ORDER_JITTER, t->apart, t->row, n) + read_sums(t, 0, n);
}
/* ... and n of the others. */
static double follow_apart(const flash_backward_order *t, int n)
{
    return late(t->hand_over + ORDER_JITTER, t->apart, t->adders - t->row, n) + read_sums(t, t->row, n);
}

/* The best number of sums up to `most` for this many adders, of about equal ones the smallest, and its time. */
static double fewest_steps(const flash_backward_order *t, double (*steps)(const flash_backward_order *, int),
                           int adders, int most, int *sums)
{
    double best = INFINITY;
    for (int n = 1; n <= most; n = next_count(n) < adders ? next_count(n) : adders) {
        if (steps(t, n) < best - WORTH_A_SUM)
            best = steps(t, n), *sums = n;
        if (n == adders)
            break;
    }
    return best;
}

/* How many sums the adders of a section may have that start apart. These are at as many different queries, so Q, dO and the
 * sums as a whole have to stay in half of L2; pairs read and add to them half as often. (One head of S 65536, D 64, with
 * 50 MB: 6 to 12 % slower than starting together.) */
static int most_apart(const sb_attention *a, int section, flash_backward_kernel kernel)
{
    const int64_t fit = ((kernel == FLASH_BACKWARD_PAIR ? 32 : 28) << 20) / section,
                  none = flash_backward_query_bytes(a, 0);
    return fit < none ? 0 : (int)((fit - none) / (flash_backward_query_bytes(a, 1) - none));
}

/* The time in order and with the pass after, which is a step and reads at about 3 TB/s: in the time of a step 220 query blocks of
 * 32 KB, fewer of wider ones, fp32 660 of 16 KB. Only problems that would need several sums anyway start apart: one of 16 heads and S 4096 loses 8 %
 * by it. */
double flash_backward_order_additions(const sb_attention *a, flash_backward_order t, int at_once,
                                      flash_backward_choice *choice)
{
    const int64_t most_bytes = 64 << 20;
    const int rows = flash_backward_step_rows(a);
    const double blocks = (double)a->batch * a->heads * ((a->seq_q + rows - 1) / rows);
    const double bytes = blocks * rows * flash_backward_padded_dim(a) * 4;
    const int most = most_bytes / bytes > 1 ? (int)(most_bytes / bytes) : 1;
    t.adders = flash_backward_most_sums(a, choice->kernel);
    t.row = flash_backward_first_round(t.adders, at_once, t.section);
    t.read = blocks / (flash_in_parts(a) ? 660 : 220) * fmax(flash_backward_padded_dim(a) / 128.0, 1);
    const double together = fewest_steps(&t, start_together, t.adders, most, &choice->sums);
    const int rest = t.adders - t.row, in_l2 = most_apart(a, t.section, choice->kernel),
              most_first = in_l2 < most - (rest > 0) ? in_l2 : most - (rest > 0);
    if (t.apart == 0 || choice->sums < 3 || choice->sums == t.adders || most_first < 1)
        return together + 1;
    int first = 1, later = 0;
    double apart = fmax(t.longest, t.busy) + START_APART + fewest_steps(&t, start_apart, t.row, most_first, &first);
    if (rest > 0)
        apart += fewest_steps(&t, follow_apart, rest, most - first, &later);
    if (together <= apart)
        return together + 1;
    choice->sums = first + later, choice->early = t.row, choice->early_sums = first;
    return apart + 1;
}
