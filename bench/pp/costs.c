/* SPDX-License-Identifier: MIT */
/* What stages are balanced by, and what a pipeline is compared with: parts of the model alone, and all of it, on rank 0 while the others
 * wait. A share of each piece is measured where it runs: in one step, as parts of one rank. */
#include <math.h>
#include <stdio.h>

#include "bench/model/context.h"
#include "bench/model/timing.h"
#include "bench/pp/verify.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/session/watchdog.h"

enum { PIECES = 3, BLOCKS = 4, MICROS = 2, ACTIONS = 2 * PIECES * MICROS, COST_STEPS = 5 };

typedef struct piece_marks {
    device *d;
    device_event **begun, **ended; /* [ACTIONS] */
} piece_marks;

static void on_begun(void *user, int action)
{
    piece_marks *m = user;
    device_event_mark(m->d, m->begun[action]);
}

static void on_ended(void *user, int action)
{
    piece_marks *m = user;
    device_event_mark(m->d, m->ended[action]);
}

/* Forward and backward of each piece, of the second micro-batch. */
static bool time_pieces(trainer *t, piece_marks *m, const step_action *actions, double out[PIECES])
{
    samples of[PIECES] = {{0}};
    for (int step = 0; step < COST_STEPS + 1; step++) {
        double ms[PIECES] = {0};
        if (!trainer_step(t))
            return false;
        for (int i = 0; i < ACTIONS; i++)
            if (actions[i].micro == MICROS - 1)
                ms[actions[i].part] += device_event_ms(m->d, m->begun[i], m->ended[i]);
        for (int k = 0; k < PIECES && step > 0; k++)
            samples_add(&of[k], ms[k]);
    }
    for (int k = 0; k < PIECES; k++) {
        out[k] = stats_of(&of[k]).median;
        samples_free(&of[k]);
    }
    return true;
}

static void costs_here(pp_case *k, stage_costs *out)
{
    const model_part parts[PIECES] = {{0, 0, true, false}, {0, BLOCKS, false, false}, {BLOCKS, BLOCKS, false, true}};
    step_action actions[ACTIONS];
    piece_marks m = {.d = k->s->dev};
    double ms[PIECES] = {NAN, NAN, NAN};
    for (int i = 0, n = 0; i < MICROS; i++) {
        for (int p = 0; p < PIECES; p++)
            actions[n++] = (step_action){STEP_F, i, p};
        for (int p = PIECES - 1; p >= 0; p--)
            actions[n++] = (step_action){STEP_B, i, p};
    }
    const step_table table = {parts, PIECES, actions, ACTIONS};
    step_options o = k->o;
    o.config.layers = BLOCKS;
    o.micro_batches = MICROS;
    o.update_units = false;
    o.table = &table;
    trainer *t = model_trainer_untimed(k->s, &o, k->w);
    if (!t)
        return;
    m.begun = marks_begin(m.d, 2 * ACTIONS);
    m.ended = m.begun + ACTIONS;
    trainer_set_hops(t, &(step_hops){.user = &m, .begun = on_begun, .ended = on_ended});
    replica_set_tokens(t, o.seed, 0);
    if (!time_pieces(t, &m, actions, ms))
        row_status_set(k->w, ROW_FAIL, "timing pieces of the model: %s", sb_last_message());
    device_sync(m.d);
    marks_end(m.d, m.begun, 2 * ACTIONS, NULL);
    trainer_free(t);
    *out = (stage_costs){.block = ms[1] / BLOCKS, .embedding = ms[0], .head = ms[2]};
}

bool pp_costs(pp_case *k, stage_costs *out)
{
    *out = (stage_costs){NAN, NAN, NAN};
    phase_set("timing of a block and the ends, for %s", case_name(k->c));
    if (k->rank == 0)
        costs_here(k, out);
    launch_share(k->l, "costs", out, sizeof *out, 0);
    return pp_agree(k, "costs of pieces");
}

/* ---- the whole model on one rank ---- */

/* The time of a step, launched as the ranks' are; NAN after a failure. */
static double time_whole(pp_case *k, trainer *t)
{
    device *d = k->s->dev;
    device_event **at = marks_begin(d, 1);
    device_graph *graph = NULL;
    samples ms = {0};
    bool ok = trainer_step(t);
    device_sync(d);
    if (ok && k->graph && device_graph_begin(d)) {
        ok = trainer_step(t);
        graph = device_graph_end(d);
    }
    for (int i = 0; i < k->s->timing.warmup + k->s->timing.iters && ok; i++) {
        watchdog_beat();
        device_event_record(d, at[0]);
        if (graph)
            device_graph_launch(d, graph);
        else
            ok = trainer_step(t);
        device_event_record(d, at[1]);
        const double took = device_event_ms(d, at[0], at[1]);
        if (i >= k->s->timing.warmup)
            samples_add(&ms, took);
    }
    const double median = stats_of(&ms).median;
    if (graph)
        device_graph_destroy(d, graph);
    samples_free(&ms);
    marks_end(d, at, 1, NULL);
    return ok ? median : NAN;
}

static double one_rank_here(pp_case *k)
{
    const int64_t bytes = trainer_planned_bytes(k->s->dev, k->at.kernels, k->at.ctx, &k->o);
    const size_t room = device_free_bytes(k->s->dev);
    if (bytes < 0 || (double)bytes > 0.97 * (double)room)
        return NAN;
    trainer *t = model_trainer_untimed(k->s, &k->o, k->w);
    if (!t)
        return NAN;
    replica_set_tokens(t, k->o.seed, 0);
    const double ms = time_whole(k, t);
    trainer_free(t);
    memory_trim(k->s->mem);
    return ms;
}

double pp_one_rank_ms(pp_case *k)
{
    const step_options *o = &k->o;
    const model_config *c = &o->config;
    char key[256];
    snprintf(key, sizeof key, "%d %d %d %d %d %d x %d %d %d %s %d %d %d %d %d %d %g %d", c->layers, c->vocab,
             c->d_model, c->d_ff, c->heads, c->heads_kv, o->batch, o->seq, o->micro_batches, o->precision->name,
             o->grad_fp32, o->moments, o->recompute, o->loss_chunk, o->overlap, o->update_units, o->clip_norm,
             k->graph);
    double *known = cache_find(k->s->kept, "one rank", key);
    if (!known) {
        known = cache_add(k->s->kept, "one rank", key, sizeof *known, NULL);
        phase_set("timing of one rank, for %s", case_name(k->c));
        *known = k->rank == 0 ? one_rank_here(k) : NAN;
        launch_share(k->l, "one rank", known, sizeof *known, 0);
    }
    return *known;
}
