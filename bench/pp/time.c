/* SPDX-License-Identifier: MIT */
/* Timing: a sample is a step behind a barrier, as long as the slowest rank takes. A rank's time stands still where no F, B or W is on its
 * stream, between the start of its first action and the end of its last one. The prediction is the schedule's own, with the
 * times that F, B and W of each stage took here, and the last ones with an update beside. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/pp/time.h"
#include "bench/model/timing.h"
#include "bench/pp/stage.h"
#include "bench/pp/verify.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/core/text.h"
#include "common/pipeline/simulate.h"
#include "common/record/nvtx.h"
#include "common/session/measure.h"
#include "common/session/profile.h"

/* What a rank notes of a sample: these, then of each action when it begins, when its last op on the compute stream is over, behind which
 * it gives what it makes, and when it ends, with weight gradients beside. NAN: a W that is part of its B. */
enum { STEP_MS, WAIT_MS, NOTED };
enum { BEGUN, GAVE, ENDED, MOMENTS };
enum { COSTS = 4 };

typedef struct timed {
    pp_case *k;
    pp_stage *s;
    int n, actions; /* samples; of a rank's table */
    double *all;    /* (ranks of the job, n, NOTED + MOMENTS actions) */
    double hop_ms;
    double *f; /* then b, w, and what an update beside adds to the last: (COSTS, stages) */
} timed;

/* ---- samples ---- */

static int noted(const timed *t)
{
    return NOTED + MOMENTS * t->actions;
}

static void take_sample(timed *t, device_event *from, device_event *to, double *out)
{
    pp_stage *s = t->s;
    device *d = t->k->s->dev;
    comm_barrier(edges_all(t->k->edges), device_stream(d));
    device_event_record(d, from);
    pp_stage_step(s);
    device_event_record(d, to);
    out[STEP_MS] = device_event_ms(d, from, to);
    out[WAIT_MS] = 0;
    for (int i = 0; i < s->sent; i++)
        out[WAIT_MS] += device_event_ms(d, s->wait_from[i], s->wait_to[i]);
    for (int i = 0; i < t->actions; i++) {
        double *at = out + NOTED + i;
        at[BEGUN * t->actions] = s->marked[i] ? device_event_ms(d, from, s->begun[i]) : NAN;
        at[GAVE * t->actions] = s->marked[i] ? device_event_ms(d, from, s->ended[i]) : NAN;
        at[ENDED * t->actions] =
            s->shared[i] ? fmax(at[GAVE * t->actions], device_event_ms(d, from, s->beside[i])) : at[GAVE * t->actions];
    }
}

static void take_samples(timed *t, int n, double *out)
{
    device *d = t->k->s->dev;
    device_event **at = marks_begin(d, 1);
    device_sense_begin(d);
    for (int i = 0; i < n; i++)
        take_sample(t, at[0], at[1], out + (size_t)i * (size_t)noted(t));
    device_sense_end(d, true);
    marks_end(d, at, 1, NULL);
}

/* Warms up; then as many samples as --iters and --max-time ask for, the same on all ranks. */
static int samples_of(timed *t)
{
    const timing *how = &t->k->s->timing;
    const int warmup = how->warmup > 0 ? how->warmup : 1;
    double *ignored = xcalloc((size_t)warmup * (size_t)noted(t), sizeof *ignored), each = 0;
    if (t->k->member) {
        pp_stage_step(t->s);
        pp_stage_capture(t->s);
        const double start = host_seconds();
        take_samples(t, warmup, ignored);
        each = (host_seconds() - start) / warmup;
    }
    free(ignored);
    each = launch_most(t->k->l, "estimate", each, launch_size(t->k->l));
    return measure_iters(how, each);
}

static void measure_all(timed *t)
{
    t->n = samples_of(t);
    const size_t mine_n = (size_t)t->n * (size_t)noted(t);
    OWNED double *mine = xcalloc(mine_n, sizeof *mine);
    if (t->k->member) {
        take_samples(t, t->n, mine);
        device_state_note(t->k->s->dev);
    }
    t->all = launch_gathered(t->k->l, "samples", mine, mine_n * sizeof *mine);
}

/* ---- what they say ---- */

static const double *noted_by(const timed *t, int rank, int sample)
{
    return t->all + ((size_t)rank * (size_t)t->n + (size_t)sample) * (size_t)noted(t);
}

static double moment_of(const timed *t, int rank, int sample, int moment, int action)
{
    return noted_by(t, rank, sample)[NOTED + moment * t->actions + action];
}

static double most_of(const timed *t, int sample, int what)
{
    double most = 0;
    for (int r = 0; r < t->k->ranks; r++)
        most = fmax(most, noted_by(t, r, sample)[what]);
    return most;
}

/* 1 - the ranks' mean of their spans over the longest of any: the definition of pipeline_times. */
static double bubble_of(const timed *t, int sample)
{
    double busy = 0, longest = 0;
    for (int r = 0; r < t->k->ranks; r++) {
        double first = INFINITY, last = 0;
        for (int i = 0; i < t->actions; i++) {
            const double begun = moment_of(t, r, sample, BEGUN, i), ended = moment_of(t, r, sample, ENDED, i);
            if (isnan(begun))
                continue;
            busy += ended - begun;
            first = fmin(first, begun);
            last = fmax(last, ended);
        }
        longest = fmax(longest, last - first);
    }
    return 1 - busy / t->k->ranks / longest;
}

/* Whether updates beside the actions that end this stage's gradients make them longer than the others. */
static bool last_is_apart(const timed *t, int stage)
{
    return t->k->shape.micros > 1 && pp_updates_beside(t->k, pipeline_rank(&t->k->shape, stage));
}

static double median_of(const timed *t, int rank, int action, int from, int to)
{
    samples of = {0};
    for (int k = 0; k < t->n; k++)
        samples_add(&of, moment_of(t, rank, k, to, action) - moment_of(t, rank, k, from, action));
    const double median = stats_of(&of).median;
    samples_free(&of);
    return median;
}

/* From one moment to another of a stage's actions of a kind: the median of the samples, and of these the mean over micro-batches, so that all
 * of them together are as busy as they were. Where some W are parts of their B, these B are no measure of a B, and those of the last
 * micro-batch are none with an update beside. */
static double span_of(const timed *t, int stage, pipeline_kind kind, int from, int to, bool split)
{
    const pipeline_shape *s = &t->k->shape;
    const int place = pipeline_rank(s, stage), rank = pp_rank_at(t->k, place), chunk = pipeline_chunk(s, stage);
    const pipeline_action *a = pipeline_actions(t->k->table, place);
    const int most = s->micros - (kind != PIPELINE_F && last_is_apart(t, stage));
    double sum = 0;
    int n = 0;
    for (int i = 0; i < t->actions; i++) {
        const bool merged =
            kind == PIPELINE_B && split && i + 1 < t->actions && isnan(moment_of(t, rank, 0, BEGUN, i + 1));
        if (a[i].kind != kind || a[i].chunk != chunk || a[i].micro >= most || merged ||
            isnan(moment_of(t, rank, 0, BEGUN, i)))
            continue;
        sum += median_of(t, rank, i, from, to);
        n++;
    }
    return n ? sum / n : NAN;
}

/* B and W of the last micro-batch of a stage. */
static double last_of(const timed *t, int stage)
{
    const pipeline_shape *s = &t->k->shape;
    const int place = pipeline_rank(s, stage), rank = pp_rank_at(t->k, place), chunk = pipeline_chunk(s, stage);
    const pipeline_action *a = pipeline_actions(t->k->table, place);
    double sum = 0;
    for (int i = 0; i < t->actions; i++)
        if (a[i].kind != PIPELINE_F && a[i].chunk == chunk && a[i].micro == s->micros - 1 &&
            !isnan(moment_of(t, rank, 0, BEGUN, i)))
            sum += median_of(t, rank, i, BEGUN, ENDED);
    return sum;
}

/* Costs by stage. A row that is not split has a W where weight gradients went on beside main. */
static void find_costs(timed *t)
{
    const int stages = pipeline_stages(&t->k->shape);
    t->f = xcalloc(COSTS * (size_t)stages, sizeof *t->f);
    for (int stage = 0; stage < stages; stage++) {
        const double w = span_of(t, stage, PIPELINE_W, BEGUN, ENDED, true);
        double *b = &t->f[stages + stage], *rest = &t->f[2 * stages + stage];
        t->f[stage] = span_of(t, stage, PIPELINE_F, BEGUN, ENDED, false);
        *b = span_of(t, stage, PIPELINE_B, BEGUN, GAVE, !isnan(w));
        *rest = isnan(w) ? span_of(t, stage, PIPELINE_B, GAVE, ENDED, false) : w;
        if (isnan(*b)) /* no B was apart from its W */
            *b = span_of(t, stage, PIPELINE_B, BEGUN, ENDED, false) - w;
        if (last_is_apart(t, stage))
            t->f[3 * stages + stage] = fmax(0, last_of(t, stage) - *b - *rest);
    }
}

static pipeline_costs costs_of(const timed *t)
{
    const int stages = pipeline_stages(&t->k->shape);
    return (pipeline_costs){t->f, t->f + stages,    t->f + 2 * stages, isnan(t->hop_ms) ? 0 : t->hop_ms,
                            true, t->f + 3 * stages};
}

/* ---- the row ---- */

static int middle_sample(const timed *t, double median)
{
    int best = 0;
    for (int n = 1; n < t->n; n++)
        if (fabs(most_of(t, n, STEP_MS) - median) < fabs(most_of(t, best, STEP_MS) - median))
            best = n;
    return best;
}

static void fill_timeline(timed *t, double median)
{
    const int n = middle_sample(t, median), ranks = t->k->shape.ranks;
    double *spans = xcalloc(2 * (size_t)(t->actions * ranks), sizeof *spans), *at = spans;
    const pipeline_costs costs = costs_of(t);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 2 * t->actions; i++)
            *at++ = moment_of(t, pp_rank_at(t->k, r), n, i < t->actions ? BEGUN : ENDED, i % t->actions);
    pp_timeline(t->k, &(pp_spans){t->k->table, spans}, &costs);
    free(spans);
}

static void fill_stages(timed *t)
{
    const pipeline_shape *s = &t->k->shape;
    const int stages = pipeline_stages(s);
    char cut[256];
    int at = 0;
    double least = INFINITY, most = 0;
    for (int i = 0; i < stages; i++) {
        const double ms = t->f[i] + t->f[stages + i] + t->f[2 * stages + i];
        least = fmin(least, ms);
        most = fmax(most, ms);
        if (at < (int)sizeof cut - 8)
            at += snprintf(cut + at, sizeof cut - (size_t)at, i ? ",%d" : "%d",
                           t->k->ends[i] - (i ? t->k->ends[i - 1] : 0));
    }
    row_real(t->k->w, "stage_min_ms", least);
    row_real(t->k->w, "stage_max_ms", most);
    row_text(t->k->w, "cut", cut);
}

static void fill_memory(timed *t)
{
    const double mine = t->s->t ? (double)trainer_memory_of(t->s->t).allocated : 0;
    OWNED double *all = launch_gathered(t->k->l, "memory", &mine, sizeof mine);
    double most = 0;
    for (int r = 0; r < t->k->ranks; r++)
        most = fmax(most, all[r]);
    row_int(t->k->w, "peak_bytes", (int64_t)most);
    row_int(t->k->w, "peak_bytes_first", (int64_t)all[0]);
    row_int(t->k->w, "peak_bytes_last", (int64_t)all[pp_rank_at(t->k, pipeline_loss_rank(&t->k->shape))]);
}

static void fill_mfu(const pp_case *k, double step_ms)
{
    const double causal = model_flops(&k->o, FLOPS_CAUSAL), tflops = k->on.data * causal / k->ranks / (step_ms * 1e9);
    row_real(k->w, "mfu_causal_pct", 100 * tflops / model_peak_of(k->s, &k->o));
    model_fill_float8(k->s, k->c, k->w, &k->o, causal, tflops, step_ms);
}

static void fill(timed *t, double one_ms)
{
    row *w = t->k->w;
    const pipeline_shape *shape = &t->k->shape;
    samples steps = {0}, bubbles = {0}, waits = {0};
    for (int n = 0; n < t->n; n++) {
        samples_add(&steps, most_of(t, n, STEP_MS));
        samples_add(&waits, most_of(t, n, WAIT_MS));
        samples_add(&bubbles, 100 * bubble_of(t, n));
    }
    const stats step = stats_of(&steps);
    const double bubble = stats_of(&bubbles).median;
    find_costs(t);
    const pipeline_costs costs = costs_of(t);
    const pipeline_times times = pipeline_simulate(t->k->table, &costs, NULL);
    row_real(w, "step_ms", step.median);
    row_real(w, "step_p10_ms", step.p10);
    row_real(w, "step_p90_ms", step.p90);
    row_int(w, "n_steps", t->n);
    row_real(w, "bubble_pct", bubble);
    row_real(w, "predicted_bubble_pct", 100 * times.bubble);
    row_real(w, "err_points", bubble - 100 * times.bubble);
    row_real(w, "hop_us", 1e3 * t->hop_ms);
    row_real(w, "send_wait_ms", stats_of(&waits).median);
    row_real(w, "in_flight", (double)times.peak / shape->chunks);
    row_real(w, "tokens_per_s", 1e3 * t->k->on.data * shape->micros * t->k->o.batch * t->k->o.seq / step.median);
    row_real(w, "one_rank_ms", one_ms);
    row_real(w, "speedup", t->k->on.data * one_ms / step.median);
    fill_mfu(t->k, step.median);
    fill_stages(t);
    fill_memory(t);
    fill_timeline(t, step.median);
    samples_free(&steps);
    samples_free(&waits);
    samples_free(&bubbles);
}

/* ---- a case ---- */

static double hop_alone(pp_case *k)
{
    const size_t bytes = (size_t)k->o.batch * (size_t)k->o.seq * (size_t)k->o.config.d_model *
                         (size_t)sb_dtype_bytes(k->o.precision->activations) / (size_t)k->on.m.tp;
    double ms = NAN;
    void *at = k->member && k->shape.ranks > 1 ? memory_alloc(k->s->mem, bytes, "hop") : NULL;
    if (at)
        ms = edges_hop_ms(k->edges, at, bytes);
    memory_release(k->s->mem, at);
    launch_share(k->l, "hop", &ms, sizeof ms, 0);
    return ms;
}

static bool once(void *arg)
{
    pp_stage_step(arg);
    return true;
}

static bool cut(pp_case *k)
{
    stage_costs costs;
    const bool measured = text_is(case_text(k->c, "balance"), "measured");
    if (!measured) {
        stages_even(&k->shape, k->o.config.layers, k->ends);
        return true;
    }
    if (!pp_costs(k, &costs))
        return false;
    stages_balanced(&k->shape, k->o.config.layers, &costs, k->ends);
    return true;
}

void pp_time(pp_case *k)
{
    pp_stage s = {.k = k};
    timed t = {.k = k, .s = &s, .actions = k->table->count, .hop_ms = NAN};
    if (!option_flag(k->s->opt, "check") && !pp_tune(k))
        return;
    const double one_ms = session_profiling(k->s) ? NAN : pp_one_rank_ms(k);
    if (!pp_agree(k, "one rank") || !cut(k))
        return;
    phase_set("setup of %s", case_name(k->c));
    if (!pp_stage_open(k, &k->o, k->ends, &s))
        return;
    team_set_tokens(s.x, k->o.seed);
    phase_set("timing of %s", case_name(k->c));
    scope_push("timing");
    if (session_profiling(k->s)) {
        profile_result ignored;
        const profile_how how = {.dev = k->s->dev, .together = true, .member = k->member};
        session_profile(k->s, "steps", &how, once, &s, &ignored);
    } else {
        t.hop_ms = hop_alone(k);
        measure_all(&t);
        row_text(k->w, "launched", s.graph ? "graph" : "eager");
        row_text(k->w, "updated", k->o.clip_norm > 0 ? "norm" : k->o.update_units ? "units" : "after");
        row_text(k->w, "backend", comm_backend(edges_all(k->edges)));
        row_int(k->w, "hosts", launch_hosts(k->l));
        row_int(k->w, "plan_chunks", k->shape.chunks);
        fill(&t, one_ms);
        if (k->member)
            measure_again(k->s, "steps", once, &s);
    }
    scope_pop();
    pp_stage_close(&s);
    free(t.all);
    free(t.f);
}
