/* SPDX-License-Identifier: MIT */
/* Choices that only the step itself can make, because at a GPU's power limit time is energy, and a kernel's energy does
 * not show when it runs alone: the way of overlap (overlap_tune.c) and, here, the algorithms of large products. Of each
 * one the tuner's choice races against its runners-up, one product at a time, in whole steps on a warm GPU.
 *
 * With a learning rate of 0 a step leaves the parameters as they are; what else it changes is put back at the end. */
#include <string.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/train/step_internal.h"

enum { ROUNDS = 2 };
static const double shortest_step_ms = 15,
                    longest_step_ms = 400; /* shorter ones do not heat; longer ones cost minutes */
static const double large_flops = 30e9, worth = 0.997, budget_s = 40, warm_s = 1;
static const double block_s = 0.4; /* the first half of it is at the clock that the contestant before it left */

/* ---- what the tuners of a step share ---- */

void step_tune_begin(trainer *t, sb_optimizer_state *kept)
{
    trainer_optimizer_state(t, kept);
    sb_optimizer_state still = *kept;
    still.lr = 0;
    device_upload(t->dev, t->state, &still, sizeof still);
}

void step_tune_end(trainer *t, const sb_optimizer_state *kept)
{
    device_sync(t->dev);
    device_upload(t->dev, t->state, kept, sizeof *kept);
    trainer_zero_moments(t);
}

bool step_tune_capture(trainer *t, device_graph **graph)
{
    *graph = NULL;
    t->status = SB_OK;
    if (t->o.fusion != FUSION_GRAPH || !device_graph_begin(t->dev))
        return true;
    const bool ok = step_launch(t);
    *graph = device_graph_end(t->dev);
    return ok;
}

bool step_tune_run(trainer *t, device_graph *graph, double *ms)
{
    t->status = SB_OK;
    if (graph)
        device_graph_launch(t->dev, graph);
    else if (!step_launch(t))
        return false;
    *ms = trainer_times(t).step;
    return true;
}

/* The time of a step follows the clock, and that the power of the steps before it: contestants that took turns step by step
 * would all run at the clock that their mean power allows, and the hungriest would win. */
bool step_tune_block(trainer *t, device_graph *graph, samples *ms)
{
    const double start = host_seconds();
    bool ok = true;
    for (double passed = 0, one; ok && passed < block_s; passed = host_seconds() - start) {
        ok = step_tune_run(t, graph, &one);
        if (ok && host_seconds() - start > block_s / 2)
            samples_add(ms, one);
    }
    return ok;
}

/* ---- products ---- */

/* Medians of the step with each of two algorithms for a product. */
static bool race(trainer *t, const tuned_product *p, const sb_matmul_choice *const two[2], double ms[2])
{
    device_graph *graphs[2] = {0};
    samples times[2] = {{0}};
    bool ok = true;
    for (int i = 0; i < 2 && ok; i++)
        ok = t->k->train->matmul_choose(t->ctx, &p->shape, two[i]) == SB_OK && step_tune_capture(t, &graphs[i]) &&
             graphs[i];
    for (int r = 0; r < ROUNDS && ok; r++)
        for (int i = 0; i < 2 && ok; i++)
            ok = step_tune_block(t, graphs[i], &times[i]);
    for (int i = 0; i < 2; i++) {
        ms[i] = ok ? stats_of(&times[i]).median : 0;
        samples_free(&times[i]);
        if (graphs[i])
            device_graph_destroy(t->dev, graphs[i]);
    }
    return ok;
}

static double flops(const sb_matmul *p)
{
    return 2.0 * p->m * p->n * p->k;
}

/* Tries the runners-up of one product; true when one of them took its place. */
static bool contest(trainer *t, int i)
{
    tuned_product *p = &t->products[i];
    const sb_matmul_choice first = p->choice;
    for (int r = 0; r < RIVALS && t->rivals[i][r].tried; r++) {
        const sb_matmul_choice *const two[2] = {&p->choice, &t->rivals[i][r]};
        double ms[2];
        if (race(t, p, two, ms) && ms[1] < worth * ms[0])
            p->choice = t->rivals[i][r];
        t->status = SB_OK; /* an algorithm that can't run has lost, no more */
    }
    t->k->train->matmul_choose(t->ctx, &p->shape, &p->choice);
    return memcmp(first.algorithm, p->choice.algorithm, sizeof first.algorithm) != 0;
}

static bool worth_a_race(double step_ms)
{
    return step_ms >= shortest_step_ms && step_ms <= longest_step_ms;
}

bool products_race(trainer *t, void (*changed)(void *user, const tuned_product *p), void *user)
{
    if (t->o.fusion != FUSION_GRAPH || t->steps > 0 || t->o.mode == STEP_FORWARD)
        return true;
    bool any = false;
    for (int i = 0; i < t->product_count; i++)
        any = any || (flops(&t->products[i].shape) >= large_flops && t->rivals[i][0].tried);
    if (!any)
        return true;
    sb_optimizer_state kept;
    double ms = 0;
    step_tune_begin(t, &kept);
    bool ok = step_tune_run(t, NULL, &ms) && step_tune_run(t, NULL, &ms); /* the first loads kernels */
    double start = host_seconds();
    while (ok && worth_a_race(ms) && host_seconds() - start < warm_s)
        ok = step_tune_run(t, NULL, &ms);
    start = host_seconds();
    bool raced[PRODUCTS_MAX] = {false};
    while (ok && worth_a_race(ms) && host_seconds() - start < budget_s) {
        int most = -1; /* the largest product that is left */
        for (int i = 0; i < t->product_count; i++)
            if (!raced[i] && flops(&t->products[i].shape) >= large_flops && t->rivals[i][0].tried &&
                (most < 0 || flops(&t->products[i].shape) > flops(&t->products[most].shape)))
                most = i;
        if (most < 0)
            break;
        phase_set("choosing an algorithm for %s within the step", t->products[most].name);
        raced[most] = true;
        if (contest(t, most))
            changed(user, &t->products[most]);
    }
    step_tune_end(t, &kept);
    return ok;
}
