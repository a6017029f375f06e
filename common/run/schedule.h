/* SPDX-License-Identifier: MIT */
/* The learning rate of each step: a linear warm-up, then one of the usual decays. */
#pragma once

#include <stdint.h>

#define SCHEDULE_CHOICES "constant|linear|cosine|wsd"

typedef struct schedule {
    const char *name;      /* of SCHEDULE_CHOICES; wsd: constant, then down as 1 - sqrt over the last fifth */
    double lr, min_lr;     /* after the warm-up, and at the end */
    int64_t warmup, steps; /* the warm-up's, and all of them */
} schedule;

double schedule_rate(const schedule *s, int64_t step); /* step from 0; behind the last one min_lr, with constant lr */
