/* SPDX-License-Identifier: MIT */
/* The trainer around a step, for this room and its tuner. */
#pragma once

#include "common/step/step.h"
#include "common/train/trainer.h"

struct trainer {
    step step;
    memory *mem;
    int64_t resident[MEMORY_KINDS];
    int64_t skipped;       /* bytes in front of them */
    device_event *mark[4]; /* start, after forward, after backward, end */
    device_graph *graph;
    int steps;
    int sums;      /* micro-batches of this step whose gradients are made */
    bool summing;  /* the hooks know that the next one has begun */
    bool updating; /* an update that overlaps has begun */
};

void trainer_walk(trainer *t);            /* plans, or launches */
void trainer_walk_begin(trainer *t);      /* its beginning */
bool trainer_launch(trainer *t);          /* one step, launched op by op (or into a capture) */
sb_status trainer_initialize(trainer *t); /* parameters, tables, tokens, the optimizer's state */
void trainer_zero_moments(trainer *t);
bool trainer_plan_apart(trainer *t); /* a new plan, without overlap; false: no memory */
