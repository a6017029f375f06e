/* SPDX-License-Identifier: MIT */
/* The arithmetic of waiting; see budget.h. A first row costs its set-up, its check, the timing of products, and then its
 * own warm-up and samples, about 30 steps and half a second; whole-step choices may take what is left. */
#include "common/train/tune/budget.h"

#include <math.h>

static const double own_steps = 30, own_s = 0.5; /* of the row that waits */
static const double later_s = 5, anew_s = 12;    /* for each later row; with --retune */
static const double far =
    1.03;                 /* times the best: a hungry kernel can look 2 % faster at a clock that it has not settled */
enum { RACE_BLOCKS = 5 }; /* a rival's, then two of each */

static double target_s(int64_t parameters)
{
    static const struct {
        int64_t below;
        double s;
    } targets[] = {{200000000, 4}, {2200000000, 8}, {4000000000, 15}};
    for (int i = 0; i < 3; i++)
        if (parameters < targets[i].below)
            return targets[i].s;
    return 30;
}

double tune_budget(int64_t parameters, bool first, bool anew, double since_start, double spent, double step_s)
{
    const double whole = anew ? anew_s : later_s;
    if (first && !anew)
        return fmin(target_s(parameters) - since_start - own_s - own_steps * step_s, whole - spent);
    return whole - spent;
}

bool tune_lost(const samples *so_far, double best_ms)
{
    return so_far->n > 1 && stats_of(so_far).min > far * best_ms;
}

double tune_block_s(double step_ms)
{
    return fmax(fmin(fmax(40 * step_ms * 1e-3, 0.05), 0.3), step_ms * 1e-3);
}

double tune_race_s(double step_ms)
{
    return RACE_BLOCKS * tune_block_s(step_ms);
}
