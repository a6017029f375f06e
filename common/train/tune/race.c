/* SPDX-License-Identifier: MIT */
/* Choices that only the step itself can make, because at a GPU's power limit time is energy, and a kernel's energy does
 * not show when it runs alone: the way of overlap (overlap.c) and, here, the algorithms of large products. The
 * tuner's choice for each races against its runners-up, one product at a time, in whole steps on a warm GPU. */
#include <math.h>
#include <string.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/train/tune/internal.h"

enum { ROUNDS = 2 };
static const double shortest_step_ms = 15,
                    longest_step_ms = 400; /* shorter ones do not heat; longer ones cost minutes */
static const double large_flops = 30e9;
static const double worth = 0.995;             /* medians of the same step differ by as much */
static const double least_share = 0.02;        /* of the step: below it no rival can gain what is worth a change */
static const double budget_s = 6, fresh_s = 3; /* for all races; for so long the champion's last block holds */

typedef struct races {
    trainer *t;
    device_graph *champion; /* the step as it is chosen so far */
    double champion_ms, step_ms;
    double measured_at, until; /* host_seconds of champion_ms, and when the budget ends */
} races;

static double block_median(races *r, device_graph *graph)
{
    samples ms = {0};
    const double median = steps_block(r->t, graph, r->step_ms, &ms) ? stats_of(&ms).median : INFINITY;
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
        device_graph_destroy(r->t->step.dev, graph);
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
        ok = steps_block(r->t, r->champion, r->step_ms, &ms[0]) && steps_block(r->t, graph, r->step_ms, &ms[1]);
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
    step *s = &r->t->step;
    tuned_product *p = &s->products.list[i];
    bool changed = false;
    for (int rival = 0; rival < CHOICE_RIVALS && p->rivals[rival].tried && host_seconds() < r->until; rival++) {
        device_graph *graph = NULL;
        if (s->k->train->matmul_choose(s->ctx, &p->shape, &p->rivals[rival]) == SB_OK && steps_capture(r->t, &graph) &&
            graph && wins(r, graph)) {
            p->choice = p->rivals[rival];
            drop(r, r->champion);
            r->champion = graph;
            time_champion(r);
            changed = true;
        } else {
            drop(r, graph);
        }
        s->status = SB_OK; /* an algorithm that can't run has lost, no more */
    }
    s->k->train->matmul_choose(s->ctx, &p->shape, &p->choice);
    memset(p->rivals, 0, sizeof p->rivals);
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
    const step *s = &t->step;
    int most = -1;
    for (int i = 0; i < s->products.count; i++) {
        const tuned_product *p = &s->products.list[i];
        if (heats(&p->shape) && p->rivals[0].tried && share_ms(p) >= least_share * step_ms &&
            (most < 0 || share_ms(p) > share_ms(&s->products.list[most])))
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
    step *s = &t->step;
    if (s->o.fusion != FUSION_GRAPH || t->steps > 0 || s->o.mode == STEP_FORWARD || next_product(t, 0) < 0)
        return true;
    sb_optimizer_state kept;
    races r = {.t = t};
    phase_set("warming up, to let algorithms race in whole steps");
    steps_begin(t, &kept);
    bool ok = steps_run(t, NULL, &r.step_ms) && steps_run(t, NULL, &r.step_ms); /* the first loads kernels */
    if (ok && worth_a_race(r.step_ms) && steps_capture(t, &r.champion) && r.champion) {
        ok = steps_warm(t, r.champion, &r.step_ms);
        if (ok)
            time_champion(&r);
        r.until = host_seconds() + budget_s;
        for (int i; ok && host_seconds() < r.until && (i = next_product(t, r.step_ms)) >= 0;) {
            phase_set("choosing an algorithm for %s in whole steps", s->products.list[i].name);
            remember(known, &s->products.list[i], contest(&r, i));
        }
    }
    drop(&r, r.champion);
    steps_end(t, &kept);
    return ok;
}
