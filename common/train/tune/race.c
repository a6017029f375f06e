/* SPDX-License-Identifier: MIT */
/* Choices that only the step itself can make, because at a GPU's power limit time is energy, and a kernel's energy does
 * not show when it runs alone: the way of overlap (overlap_tune.c) and, here, the algorithms of large products. Of each
 * one the tuner's choice races against its runners-up, one product at a time, in whole steps on a warm GPU.
 *
 * With a learning rate of 0 a step leaves the parameters as they are; what else it changes is put back at the end. */
#include <math.h>
#include <string.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/step/step.h"

enum { ROUNDS = 2 };
static const double shortest_step_ms = 15,
                    longest_step_ms = 400; /* shorter ones do not heat; longer ones cost minutes */
static const double large_flops = 30e9;
static const double worth = 0.995;             /* medians of the same step differ by as much */
static const double least_share = 0.02;        /* of the step: below it no rival can gain what is worth a change */
static const double budget_s = 6, fresh_s = 3; /* for all races; for so long the champion's last block holds */

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

/* So many steps of step_ms, within bounds: short steps neither heat a GPU nor want as long for as many samples. */
static double seconds_for(double steps, double step_ms, double least, double most)
{
    return fmin(fmax(steps * step_ms * 1e-3, least), most);
}

bool step_tune_warm(trainer *t, device_graph *graph, double *step_ms)
{
    double once = 0;
    bool ok = step_tune_run(t, graph, &once) && step_tune_run(t, graph, &once); /* the first run is slower */
    const double start = host_seconds(), end = start + seconds_for(100, once, 0.1, 0.5);
    while (ok && host_seconds() < end)
        ok = step_tune_run(t, graph, &once);
    *step_ms = once;
    return ok;
}

/* The time of a step follows the clock, and that the power of the steps before it: contestants that took turns step by
 * step would all run at the clock that their mean power allows, and the hungriest would win. The first half of a block is
 * at the clock that the contestant before it left. */
bool step_tune_block(trainer *t, device_graph *graph, double step_ms, samples *ms)
{
    const double start = host_seconds(), block_s = seconds_for(40, step_ms, 0.05, 0.3);
    bool ok = true;
    for (double passed = 0, one; ok && passed < block_s; passed = host_seconds() - start) {
        ok = step_tune_run(t, graph, &one);
        if (ok && host_seconds() - start > block_s / 2)
            samples_add(ms, one);
    }
    return ok;
}

/* ---- products ---- */

typedef struct races {
    trainer *t;
    device_graph *champion; /* the step as it is chosen so far */
    double champion_ms, step_ms;
    double measured_at, until; /* host_seconds of champion_ms, and when the budget ends */
} races;

static double block_median(races *r, device_graph *graph)
{
    samples ms = {0};
    const double median = step_tune_block(r->t, graph, r->step_ms, &ms) ? stats_of(&ms).median : INFINITY;
    samples_free(&ms);
    return median;
}

static void time_champion(races *r)
{
    r->champion_ms = block_median(r, r->champion);
    r->measured_at = host_seconds();
}

static void drop(races *r, device_graph *graph)
{
    if (graph)
        device_graph_destroy(r->t->dev, graph);
}

/* Whether the step of `graph` is faster. One block says that it is not; that it is, alternating blocks of both. */
static bool wins(races *r, device_graph *graph)
{
    if (host_seconds() - r->measured_at > fresh_s)
        time_champion(r);
    if (!(block_median(r, graph) < r->champion_ms))
        return false;
    samples ms[2] = {{0}};
    bool ok = true;
    for (int i = 0; i < ROUNDS && ok; i++)
        ok = step_tune_block(r->t, r->champion, r->step_ms, &ms[0]) && step_tune_block(r->t, graph, r->step_ms, &ms[1]);
    const double champion = ok ? stats_of(&ms[0]).median : 0, rival = ok ? stats_of(&ms[1]).median : INFINITY;
    samples_free(&ms[0]);
    samples_free(&ms[1]);
    r->champion_ms = ok ? champion : r->champion_ms;
    r->measured_at = host_seconds();
    return rival < worth * champion;
}

/* Tries the runners-up of one product; true when one of them took its place. */
static bool contest(races *r, int i)
{
    trainer *t = r->t;
    tuned_product *p = &t->products[i];
    bool changed = false;
    for (int rival = 0; rival < CHOICE_RIVALS && t->rivals[i][rival].tried && host_seconds() < r->until; rival++) {
        device_graph *graph = NULL;
        if (t->k->train->matmul_choose(t->ctx, &p->shape, &t->rivals[i][rival]) == SB_OK &&
            step_tune_capture(t, &graph) && graph && wins(r, graph)) {
            p->choice = t->rivals[i][rival];
            drop(r, r->champion);
            r->champion = graph;
            time_champion(r);
            changed = true;
        } else {
            drop(r, graph);
        }
        t->status = SB_OK; /* an algorithm that can't run has lost, no more */
    }
    t->k->train->matmul_choose(t->ctx, &p->shape, &p->choice);
    memset(t->rivals[i], 0, sizeof t->rivals[i]);
    return changed;
}

static double flops(const sb_matmul *p)
{
    return 2.0 * p->m * p->n * p->k;
}

/* Products on fp32 units are not raced: whole steps with other algorithms were equal within 0.5 % (small, S 1024). */
static bool heats(const sb_matmul *p)
{
    return flops(p) >= large_flops && (p->dtype != SB_FP32 || p->split);
}

static double share_ms(const tuned_product *p)
{
    return p->uses * (double)p->choice.ms;
}

/* The product with rivals that takes most of the step; -1: none is left that could matter. */
static int next_product(const trainer *t, double step_ms)
{
    int most = -1;
    for (int i = 0; i < t->product_count; i++) {
        const tuned_product *p = &t->products[i];
        if (heats(&p->shape) && t->rivals[i][0].tried && share_ms(p) >= least_share * step_ms &&
            (most < 0 || share_ms(p) > share_ms(&t->products[most])))
            most = i;
    }
    return most;
}

static bool worth_a_race(double step_ms)
{
    return step_ms >= shortest_step_ms && step_ms <= longest_step_ms;
}

static void remember(choices *known, const tuned_product *p, bool changed)
{
    if (!known)
        return;
    choices_settle(known, &p->shape);
    if (changed)
        choices_add(known, p->name, &(kept_choice){.shape = p->shape, .choice = p->choice, .source = CHOICE_TIMED});
}

bool products_race(trainer *t, choices *known)
{
    if (t->o.fusion != FUSION_GRAPH || t->steps > 0 || t->o.mode == STEP_FORWARD || next_product(t, 0) < 0)
        return true;
    sb_optimizer_state kept;
    races r = {.t = t};
    phase_set("warming up, to let algorithms race in whole steps");
    step_tune_begin(t, &kept);
    bool ok = step_tune_run(t, NULL, &r.step_ms) && step_tune_run(t, NULL, &r.step_ms); /* the first loads kernels */
    if (ok && worth_a_race(r.step_ms) && step_tune_capture(t, &r.champion) && r.champion) {
        ok = step_tune_warm(t, r.champion, &r.step_ms);
        if (ok)
            time_champion(&r);
        r.until = host_seconds() + budget_s;
        for (int i; ok && host_seconds() < r.until && (i = next_product(t, r.step_ms)) >= 0;) {
            phase_set("choosing an algorithm for %s in whole steps", t->products[i].name);
            remember(known, &t->products[i], contest(&r, i));
        }
    }
    drop(&r, r.champion);
    step_tune_end(t, &kept);
    return ok;
}
