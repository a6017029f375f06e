/* SPDX-License-Identifier: MIT */
/* Warm-up and decay; see schedule.h. Formulas of torch.optim.lr_scheduler (LinearLR, CosineAnnealingLR) and, for wsd, of
 * llm.c's scheduler: each decay is the share of lr - min_lr that is left, by the share of its steps that is over. */
#include "common/run/schedule.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const double pi = 3.14159265358979323846, wsd_share = 0.2;

static double left_constant(double over)
{
    (void)over;
    return 1;
}

static double left_linear(double over)
{
    return 1 - over;
}

static double left_cosine(double over)
{
    return (1 + cos(pi * over)) / 2;
}

static double left_wsd(double over)
{
    return over <= 1 - wsd_share ? 1 : 1 - sqrt((over - (1 - wsd_share)) / wsd_share);
}

static const struct {
    const char *name;
    double (*left)(double over);
} decays[] = {{"constant", left_constant}, {"linear", left_linear}, {"cosine", left_cosine}, {"wsd", left_wsd}};

double schedule_rate(const schedule *s, int64_t step)
{
    if (step < s->warmup)
        return s->lr * (double)(step + 1) / (double)s->warmup;
    const int64_t decaying = s->steps - s->warmup;
    const double over = step >= s->steps || decaying < 1 ? 1 : (double)(step - s->warmup) / (double)decaying;
    for (size_t i = 0; i < sizeof decays / sizeof *decays; i++)
        if (strcmp(decays[i].name, s->name) == 0)
            return s->min_lr + (s->lr - s->min_lr) * decays[i].left(over);
    return NAN;
}
