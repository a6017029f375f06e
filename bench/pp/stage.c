/* SPDX-License-Identifier: MIT */
/* The trainer of a rank's stages: its table, its hops with a mark around each action, its update; and planted errors. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/pp/stage.h"
#include "bench/model/timing.h"
#include "common/core/error.h"
#include "common/session/watchdog.h"

/* ---- hops: those of the edges, with marks ---- */

static step_hop to_open(pp_stage *s, const step_hop *h)
{
    step_hop to = *h;
    if (s->k->plant == PLANT_EARLY && s->k->stage == s->k->shape.ranks - 1 && !h->backward && h->micro > 0 && s->last)
        to.at = s->last;
    if (!h->backward)
        s->last = h->at;
    return to;
}

static void on_place(void *user, const step_hop *h)
{
    pp_stage *s = user;
    const step_hop to = to_open(s, h);
    if (s->wire.place)
        s->wire.place(s->wire.user, &to);
}

static void on_open(void *user, const step_hop *h)
{
    pp_stage *s = user;
    const step_hop to = to_open(s, h);
    s->wire.open(s->wire.user, &to);
}

static void on_receive(void *user, const step_hop *h)
{
    pp_stage *s = user;
    s->wire.receive(s->wire.user, h);
}

static void on_send(void *user, const step_hop *h)
{
    pp_stage *s = user;
    s->wire.send(s->wire.user, h);
}

static void on_sent(void *user, const step_hop *h)
{
    pp_stage *s = user;
    device *d = s->k->s->dev;
    device_event_mark(d, s->wait_from[s->sent]);
    s->wire.sent(s->wire.user, h);
    device_event_mark(d, s->wait_to[s->sent++]);
}

static void on_begun(void *user, int action)
{
    pp_stage *s = user;
    device_event_mark(s->k->s->dev, s->begun[action]);
}

static void on_ended(void *user, int action)
{
    pp_stage *s = user;
    device_event_mark(s->k->s->dev, s->ended[action]);
    s->marked[action] = true;
}

static void on_beside(void *user, int action, void *stream)
{
    pp_stage *s = user;
    device_stream_mark(s->k->s->dev, stream, s->beside[action]);
    s->shared[action] = true;
}

/* ---- planted errors ---- */

static void plant_actions(const pp_stage *s)
{
    const pp_case *k = s->k;
    step_action *a = (step_action *)s->table->actions;
    const int loss_chunk = k->shape.schedule->there_and_back ? 1 : k->shape.chunks - 1;
    const bool loss = k->stage == pipeline_loss_rank(&k->shape), last = k->stage == k->shape.ranks - 1;
    for (int i = 0; i < s->table->action_count; i++)
        if (k->plant == PLANT_SWAP && loss && a[i].part == loss_chunk && a[i].micro < 2)
            a[i].micro = 1 - a[i].micro;
    int w = s->table->action_count - 1;
    while (w >= 0 && a[w].work != STEP_W)
        w--;
    if (k->plant != PLANT_NO_W || !last || w < 0)
        return;
    for (int i = w; i + 1 < s->table->action_count; i++)
        a[i] = a[i + 1];
    s->table->action_count--;
}

static void plant_stage(pp_stage *s, step_options *o)
{
    const pp_case *k = s->k;
    const int n = pipeline_stages(&k->shape);
    if (k->stage != pipeline_loss_rank(&k->shape))
        return;
    if (k->plant == PLANT_SCALE)
        o->ranks = k->shape.micros;
    if (k->plant != PLANT_BOUNDARY)
        return;
    s->own_ends = xcalloc((size_t)n, sizeof *s->own_ends);
    for (int i = 0; i < n; i++)
        s->own_ends[i] = s->ends[i] + (i == n - 2);
    s->ends = s->own_ends;
}

/* ---- making ---- */

enum { MARKS = 5 }; /* around an action, and what it waits for */

/* All ranks of the job; of its marks a member's. */
static bool make_trainer(pp_stage *s, step_options *o)
{
    static const team_fault faults[] = {
        [PLANT_NORM] = TEAM_NORM, [PLANT_GROUPS] = TEAM_GROUPS, [PLANT_ORDER] = TEAM_ORDER};
    pp_case *k = s->k;
    replica_problem problem;
    const team_options how = {.m = k->on.m,
                              .way = team_way_find("nccl"),
                              .strategy = k->on.strategy,
                              .join = k->graph,
                              .fault = faults[k->plant]};
    o->table = s->table;
    s->x = team_create(&k->at, o, &how, &problem);
    if (!s->x) {
        const row_status failed = problem.no_memory ? ROW_OOM : ROW_SKIP;
        k->wrong = WRONG_SETUP;
        row_status_set(k->w, k->plant == PLANT_NONE ? failed : ROW_FAIL, "%s", problem.text);
        return false;
    }
    s->t = s->x->t;
    if (!s->t)
        return true;
    s->actions = s->table->action_count;
    s->marked = xcalloc((size_t)s->actions, sizeof *s->marked);
    s->shared = xcalloc((size_t)s->actions, sizeof *s->shared);
    s->begun = marks_begin(k->s->dev, MARKS * s->actions);
    s->ended = s->begun + s->actions;
    s->beside = s->ended + s->actions;
    s->wait_from = s->beside + s->actions;
    s->wait_to = s->wait_from + s->actions;
    s->wire = edges_hops(k->edges, &k->shape, s->ends);
    trainer_set_hops(s->t,
                     &(step_hops){s, on_place, on_open, on_receive, on_send, on_sent, on_begun, on_ended, on_beside});
    return true;
}

/* Where others put what comes; every rank finds the same. */
static bool connect(pp_stage *s)
{
    char why[400] = "";
    if (edges_connect(s->k->edges, s->t, &s->k->shape, why, sizeof why))
        return true;
    row_status_set(s->k->w, ROW_SKIP, "%s", why);
    return false;
}

/* A gradient that another rank waits for does not share the device with an update; that rank works on while this one's is done. */
bool pp_updates_beside(const pp_case *k, int place)
{
    const pipeline_action last = pipeline_actions(k->table, place)[k->table->count - 1];
    return k->o.update_units && !(k->o.clip_norm > 0) &&
           (last.kind != PIPELINE_B || pipeline_stage(&k->shape, place, last.chunk) == 0);
}

bool pp_stage_open(pp_case *k, const step_options *options, const int *ends, pp_stage *s)
{
    step_options o = *options;
    *s = (pp_stage){.k = k, .ends = ends};
    plant_stage(s, &o);
    s->table = stages_table(k->table, s->ends, k->stage);
    plant_actions(s);
    o.update_units = pp_updates_beside(k, k->stage);
    if (make_trainer(s, &o) && connect(s))
        return true;
    pp_stage_close(s);
    return false;
}

void pp_stage_close(pp_stage *s)
{
    device *d = s->k->s->dev;
    edges_disconnect(s->k->edges);
    if (s->x)
        team_settle(s->x);
    if (s->graph)
        device_graph_destroy(d, s->graph);
    team_free(s->x);
    if (s->begun)
        marks_end(d, s->begun, MARKS * s->actions, NULL);
    stages_table_free(s->table);
    free(s->own_ends);
    free(s->marked);
    free(s->shared);
    *s = (pp_stage){.k = s->k};
}

/* ---- steps ---- */

void pp_stage_step(pp_stage *s)
{
    watchdog_beat();
    if (s->graph) {
        device_graph_launch(s->k->s->dev, s->graph);
        return;
    }
    s->sent = 0;
    team_step(s->x);
}

void pp_stage_capture(pp_stage *s)
{
    device *d = s->k->s->dev;
    if (!s->t || !s->k->graph)
        return;
    team_settle(s->x); /* a graph cannot wait for work that was enqueued before it */
    if (!device_graph_begin(d))
        return;
    s->sent = 0;
    team_step(s->x);
    s->graph = device_graph_end(d);
}

/* ---- the bound ---- */

step_table *pp_bound_table(const pp_case *k, const int *ends, int rank)
{
    const int v = k->shape.chunks, m = k->shape.micros;
    const int held = (pipeline_bound(&k->shape, rank) + v - 1) / v;
    step_table *t = stages_table(k->table, ends, rank);
    step_action *a = (step_action *)t->actions;
    t->action_count = 0;
    for (int i = 0; i < m + held; i++) {
        for (int part = v - 1; part >= 0 && i >= held && i - held < m; part--)
            a[t->action_count++] = (step_action){STEP_B, i - held, part};
        for (int part = 0; part < v && i < m; part++)
            a[t->action_count++] = (step_action){STEP_F, i, part};
    }
    return t;
}
