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
static const double worth = 0.995;      /* medians of the same step differ by as much */
static const double least_share = 0.02; /* of the step: below it no rival can gain what is worth a change */
static const double fresh_s = 3;        /* how long the champion's last block holds */

typedef struct races {
    trainer *t;
    device_graph *champion; /* the step as it is chosen so far */
    double champion_ms, step_ms;
    double measured_at; /* host_seconds of champion_ms */
    const tune_wait *wait;
} races;

static double block_median(races *r, device_graph *graph, double best_ms)
{
    samples ms = {0};
    const double median = steps_block(r->t, graph, r->step_ms, best_ms, &ms) ? stats_of(&ms).median : INFINITY;
    samples_free(&ms);
    return median;
}

static void time_champion(races *r)
{
    r->champion_ms = block_median(r, r->champion, INFINITY);
    r->measured_at = host_seconds();
}

/* Whether the step of `graph` is faster. One block says that it is not; that it is, alternating blocks of both. */
static bool wins(races *r, device_graph *graph)
{
    if (host_seconds() - r->measured_at > fresh_s)
        time_champion(r);
    if (!(block_median(r, graph, r->champion_ms) < r->champion_ms))
        return false;
    samples ms[2] = {{0}};
    bool ok = true;
    for (int i = 0; i < ROUNDS && ok; i++)
        ok = steps_block(r->t, r->champion, r->step_ms, INFINITY, &ms[0]) &&
             steps_block(r->t, graph, r->step_ms, INFINITY, &ms[1]);
    const double champion = ok ? stats_of(&ms[0]).median : 0, rival = ok ? stats_of(&ms[1]).median : INFINITY;
    samples_free(&ms[0]);
    samples_free(&ms[1]);
    r->champion_ms = ok ? champion : r->champion_ms;
    r->measured_at = host_seconds();
    return rival < worth * champion;
}

/* A race that is begun is run to its end. */
static bool has_time(const races *r)
{
    return tune_left(r->t, r->wait) >= tune_race_s(r->step_ms);
}

/* Tries the runners-up of one product, as many as there is time for: what is left of its rivals waits for another row. */
static void contest(races *r, int i)
{
    step *s = &r->t->step;
    tuned_product *p = &s->products.list[i];
    int rival = 0;
    for (; rival < CHOICE_RIVALS && p->rivals[rival].tried && has_time(r); rival++) {
        device_graph *graph = NULL;
        if (s->k->train->matmul_choose(s->ctx, &p->shape, &p->rivals[rival]) == SB_OK && steps_capture(r->t, &graph) &&
            graph && wins(r, graph)) {
            p->choice = p->rivals[rival];
            device_graph_destroy(r->t->step.dev, r->champion);
            r->champion = graph;
            time_champion(r);
        } else {
            device_graph_destroy(r->t->step.dev, graph);
        }
        s->status = SB_OK; /* an algorithm that can't run has lost, no more */
    }
    s->k->train->matmul_choose(s->ctx, &p->shape, &p->choice);
    memmove(p->rivals, p->rivals + rival, (size_t)(CHOICE_RIVALS - rival) * sizeof *p->rivals);
    memset(p->rivals + CHOICE_RIVALS - rival, 0, (size_t)rival * sizeof *p->rivals);
}

static double flops(const sb_matmul *p)
{
    return 2.0 * p->m * p->n * p->k;
}

/* Products on fp32 units are not raced: whole steps with other algorithms were equal within 0.5 % (small, S 1024). */
bool race_matters(const sb_matmul *p)
{
    return flops(p) >= large_flops && (p->dtype != SB_FP32 || p->split);
}

static double share_ms(const tuned_product *p)
{
    return p->uses * (double)p->choice.ms;
}

int race_next(const step_products *products, double step_ms)
{
    int most = -1;
    for (int i = 0; i < products->count; i++) {
        const tuned_product *p = &products->list[i];
        if (race_matters(&p->shape) && p->rivals[0].tried && share_ms(p) >= least_share * step_ms &&
            (most < 0 || share_ms(p) > share_ms(&products->list[most])))
            most = i;
    }
    return most;
}

static bool worth_a_race(double step_ms)
{
    return step_ms >= shortest_step_ms && step_ms <= longest_step_ms;
}

/* What the races have left: the choice as it is now, and rivals that had no time. */
static void remember(choices *known, const tuned_product *p)
{
    kept_choice k = {.shape = p->shape, .choice = p->choice, .source = p->source};
    memcpy(k.rivals, p->rivals, sizeof k.rivals);
    if (known)
        choices_add(known, p->name, &k);
}

bool products_race(trainer *t, tune_wait *w)
{
    step *s = &t->step;
    if (s->o.fusion != FUSION_GRAPH || t->steps > 0 || s->o.mode == STEP_FORWARD || race_next(&s->products, 0) < 0 ||
        tune_left(t, w) <= 0)
        return true;
    sb_optimizer_state kept;
    races r = {.t = t, .wait = w};
    phase_set("warming up, to let algorithms race in whole steps");
    steps_begin(t, &kept);
    bool ok = steps_first(t, w);
    const double ready_s = steps_warm_s(w->step_ms) + tune_block_s(w->step_ms);
    if (ok && worth_a_race(w->step_ms) && tune_left(t, w) >= ready_s + tune_race_s(w->step_ms) &&
        steps_capture(t, &r.champion) && r.champion) {
        ok = steps_warm(t, r.champion, &r.step_ms);
        if (ok)
            time_champion(&r);
        for (int i; ok && has_time(&r) && (i = race_next(&s->products, r.step_ms)) >= 0;) {
            phase_set("choosing an algorithm for %s in whole steps", s->products.list[i].name);
            contest(&r, i);
            remember(w->known, &s->products.list[i]);
        }
    }
    device_graph_destroy(s->dev, r.champion);
    steps_end(t, &kept);
    return ok;
}
