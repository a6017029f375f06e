/* SPDX-License-Identifier: MIT */
/* Timing; see measure.h. Samples are queued ahead of the device, so that the host's launch of one sample hides behind
 * the run of the one before; a call too short for that is captured many times into a graph. */
#include "common/session/measure.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/record/nvtx.h"
#include "common/session/profile.h"
#include "common/session/watchdog.h"

enum { QUEUE_MAX = 16, GRAPH_CALLS_MIN = 10, GRAPH_CALLS_MAX = 200, SAMPLES_MIN = 3 };
static const double graph_below_ms = 1, graph_replay_ms = 1, lead_below_ms = 10;

typedef bool enqueue(void *arg);

typedef struct measurement {
    device *d;
    const timing *t;
    enqueue *fn;
    void *arg;
    samples *out;
    bool sensed;     /* the session reads clocks and power of d meanwhile */
    bool counts;     /* as part of the case's conditions */
    bool settling;   /* these calls only bring the device to the state in which it is measured */
    double since_s;  /* when these calls began */
    double warm_s;   /* how long the warm-up took */
    double total_ms; /* of the samples so far, as the device spent it */
    device_window window;
} measurement;

static const device_window nothing_read = {NAN, NAN, NAN};

static void keep(measurement *m, double ms, double scale)
{
    samples_add(m->out, ms * scale);
    m->total_ms += ms;
    watchdog_beat();
}

/* A GPU reaches its power limit within some 50 ms, goes below it, and comes back: 20 calls of 1 ms took a tenth more or less
 * from one run to the next, and what follows them began at a clock that they had left. */
static bool enough(const measurement *m, size_t started)
{
    const double settle_s = m->t->settle_s, max_s = m->t->max_s;
    const double least_s = max_s > 0 && max_s < settle_s ? max_s : settle_s;
    const bool long_enough = host_seconds() - m->since_s >= least_s;
    if (m->settling)
        return long_enough;
    return (started >= (size_t)m->t->iters && long_enough) ||
           (m->t->max_s > 0 && m->total_ms > m->t->max_s * 1e3 && m->out->n >= SAMPLES_MIN);
}

static bool warm_up(measurement *m)
{
    const double start = host_seconds();
    for (int i = 0; i < m->t->warmup; i++) {
        if (!m->fn(m->arg))
            return false;
        device_sync(m->d);
        watchdog_beat();
        if (m->t->max_s > 0 && host_seconds() - start > m->t->max_s)
            break;
    }
    m->warm_s = host_seconds() - start;
    return true;
}

static void sense_begin(const measurement *m)
{
    if (m->sensed)
        device_sense_begin(m->d);
}

static void sense_end(measurement *m)
{
    if (m->sensed)
        m->window = device_sense_end(m->d, m->counts);
}

static bool time_host(measurement *m)
{
    bool ok = true;
    m->since_s = host_seconds();
    sense_begin(m);
    for (size_t i = 0; ok && !enough(m, i); i++) {
        if (m->t->cold_l2)
            device_l2_flush(m->d);
        device_sync(m->d);
        double start = host_seconds();
        ok = m->fn(m->arg);
        device_sync(m->d);
        if (ok)
            keep(m, (host_seconds() - start) * 1e3, 1);
    }
    sense_end(m);
    return ok;
}

/* One sample is one call of fn between two events; up to `depth` of them are in flight. */
static bool time_queued(measurement *m, enqueue *fn, void *arg, int depth, double scale)
{
    device_event *from[QUEUE_MAX], *to[QUEUE_MAX];
    for (int i = 0; i < depth; i++) {
        from[i] = device_event_create(m->d);
        to[i] = device_event_create(m->d);
    }
    bool ok = true;
    size_t started = 0, done = 0;
    m->since_s = host_seconds();
    sense_begin(m);
    for (; ok && !enough(m, started); started++) {
        if (started - done == (size_t)depth) {
            keep(m, device_event_ms(m->d, from[done % (size_t)depth], to[done % (size_t)depth]), scale);
            done++;
        }
        if (m->t->cold_l2)
            device_l2_flush(m->d);
        device_event_record(m->d, from[started % (size_t)depth]);
        ok = fn(arg);
        device_event_record(m->d, to[started % (size_t)depth]);
    }
    device_state_note(m->d);
    for (; ok && done < started; done++)
        keep(m, device_event_ms(m->d, from[done % (size_t)depth], to[done % (size_t)depth]), scale);
    device_sync(m->d);
    sense_end(m);
    for (int i = 0; i < depth; i++) {
        device_event_destroy(m->d, from[i]);
        device_event_destroy(m->d, to[i]);
    }
    return ok;
}

/* The same calls without a sample, unless the warm-up has taken as long. */
static bool settle(const measurement *m, enqueue *fn, void *arg, int depth, bool host)
{
    samples unused = {0};
    measurement s = *m;
    if (m->warm_s >= m->t->settle_s)
        return true;
    s.settling = true;
    s.sensed = false;
    s.out = &unused;
    const bool ok = host ? time_host(&s) : time_queued(&s, fn, arg, depth, 1);
    samples_free(&unused);
    return ok;
}

/* Milliseconds of one call, the best of a few: enough to choose a timer and a queue. */
static bool estimate(const measurement *m, double *ms)
{
    device_event *from = device_event_create(m->d), *to = device_event_create(m->d);
    bool ok = true;
    *ms = INFINITY;
    for (int i = 0; ok && i < 3 && !(*ms > 1 && i > 0); i++) {
        device_event_record(m->d, from);
        ok = m->fn(m->arg);
        device_event_record(m->d, to);
        *ms = fmin(*ms, device_event_ms(m->d, from, to));
        watchdog_beat();
    }
    device_event_destroy(m->d, from);
    device_event_destroy(m->d, to);
    return ok;
}

typedef struct replay {
    device *d;
    device_graph *graph;
} replay;

static bool replay_enqueue(void *arg)
{
    replay *r = arg;
    device_graph_launch(r->d, r->graph);
    return true;
}

/* NULL when the calls cannot be captured. */
static device_graph *capture(const measurement *m, int calls)
{
    bool ok = true;
    if (!device_graph_begin(m->d))
        return NULL;
    for (int i = 0; ok && i < calls; i++)
        ok = m->fn(m->arg);
    device_graph *g = device_graph_end(m->d);
    if (!ok && g) {
        device_graph_destroy(m->d, g);
        g = NULL;
    }
    return g;
}

static int queue_depth(double ms)
{
    return ms < 0.5 ? QUEUE_MAX : 2;
}

static bool time_graph(measurement *m, device_graph *graph, int calls, double call_ms)
{
    replay r = {m->d, graph};
    replay_enqueue(&r); /* a graph's first run is slower; also the lead that the first sample hides behind */
    const int depth = queue_depth(call_ms * calls);
    const bool ok =
        settle(m, replay_enqueue, &r, depth, false) && time_queued(m, replay_enqueue, &r, depth, 1.0 / calls);
    device_graph_destroy(m->d, graph);
    return ok;
}

static bool time_device(measurement *m, timer_kind kind, const char **used)
{
    double ms;
    if (!estimate(m, &ms))
        return false;
    if (!m->t->cold_l2 && (kind == TIMER_GRAPH || (kind == TIMER_AUTO && ms < graph_below_ms))) {
        int calls = (int)fmin(GRAPH_CALLS_MAX, fmax(GRAPH_CALLS_MIN, ceil(graph_replay_ms / fmax(ms, 1e-6))));
        device_graph *graph = capture(m, calls);
        if (graph) {
            *used = "graph";
            return time_graph(m, graph, calls, ms);
        }
        if (kind == TIMER_GRAPH)
            warn("the call cannot be captured in a graph; timing it with events");
    }
    *used = "event";
    const int depth = queue_depth(ms);
    if (!settle(m, m->fn, m->arg, depth, false))
        return false;
    if (ms < lead_below_ms && m->t->warmup > 0 && !m->fn(m->arg)) /* the first sample's launch hides behind this */
        return false;
    return time_queued(m, m->fn, m->arg, depth, 1);
}

static bool take_samples(measurement *m, const char **used)
{
    const bool host = m->t->kind == TIMER_HOST || device_kind_of(m->d) == DEVICE_CPU;
    *used = "host";
    m->window = nothing_read;
    return warm_up(m) && (host ? settle(m, m->fn, m->arg, 0, true) && time_host(m) : time_device(m, m->t->kind, used));
}

bool measure_samples(device *d, const timing *t, bool (*fn)(void *arg), void *arg, samples *out_ms, const char **used)
{
    measurement m = {.d = d, .t = t, .fn = fn, .arg = arg, .out = out_ms};
    return take_samples(&m, used);
}

/* ---- columns ---- */

static void fill_real(row *w, const char *name, const char *suffix, double value)
{
    char column[64];
    snprintf(column, sizeof column, "%s%s", name, suffix);
    if (row_has(w, column))
        row_real(w, column, value);
}

static void fill_times(row *w, const char *name, const stats *ms, int calls)
{
    const struct {
        const char *suffix_ms, *suffix_us;
        double value;
    } of[] = {{"_ms", "_us", ms->median},
              {"_mean_ms", "_mean_us", ms->mean},
              {"_std_ms", "_std_us", ms->stdev},
              {"_p10_ms", "_p10_us", ms->p10},
              {"_p90_ms", "_p90_us", ms->p90}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        fill_real(w, name, of[i].suffix_ms, of[i].value / calls);
        fill_real(w, name, of[i].suffix_us, of[i].value * (1e3 / calls));
    }
}

/* The column of this name, or the one that a bench with a single measurement has. */
static const char *column_of(const row *w, const char *prefix, const char *name, const char *single, char *out,
                             size_t out_bytes)
{
    snprintf(out, out_bytes, "%s%s", prefix, name);
    return row_has(w, out) ? out : row_has(w, single) ? single : NULL;
}

static void fill_count(row *w, const char *name, size_t n)
{
    char text[64];
    const char *column = column_of(w, "n_", name, "n_samples", text, sizeof text);
    if (column)
        row_int(w, column, (int64_t)n);
}

static void fill_timer(row *w, const char *name, const char *used)
{
    char text[64];
    const char *column = column_of(w, "timer_", name, "timer", text, sizeof text);
    if (column)
        row_text(w, column, used);
}

/* Calls follow each other without a gap, so one takes its time at the mean power: nothing else was running. */
static double joules_of(const device_window *window, double mean_ms)
{
    return window->energy_w * mean_ms * 1e-3;
}

static void fill_either(row *w, const char *name, const char *suffix, const char *single, double value)
{
    char text[64];
    snprintf(text, sizeof text, "%s%s", name, suffix);
    const char *column = row_has(w, text) ? text : single;
    if (row_has(w, column))
        row_real(w, column, value);
}

static void fill_energy(row *w, const char *name, const measure_how *how, double joules)
{
    joules = how->timing.cold_l2 ? NAN : joules; /* the flushes take energy, too */
    fill_either(w, name, "_j", "energy_j", joules);
    if (how->flops > 0)
        fill_either(w, name, "_tflop_per_j", "tflop_per_j", how->flops / (joules * 1e12));
}

/* ---- measuring for a row ---- */

static void begin(const row *w, const char *name)
{
    if (w)
        phase_set("timing %s of %s", name, row_case_key(w));
    else
        phase_set("timing %s", name);
    scope_push(name);
}

void measure_again(session *s, const char *name, enqueue *fn, void *arg)
{
    if (s->after_measure)
        s->after_measure(s, name, fn, arg);
}

measure_how measure_default(const session *s)
{
    return (measure_how){.dev = s->dev, .timing = s->timing, .calls = 1};
}

bool measure_with(session *s, row *w, const char *name, const measure_how *how, enqueue *fn, void *arg,
                  double *median_ms)
{
    samples x = {0};
    const char *used;
    measurement m = {.d = how->dev,
                     .t = &how->timing,
                     .fn = fn,
                     .arg = arg,
                     .out = &x,
                     .sensed = how->dev == s->dev,
                     .counts = true};
    begin(w, name);
    const bool ok = take_samples(&m, &used);
    scope_pop();
    if (ok) {
        const stats ms = stats_of(&x);
        *median_ms = ms.median / how->calls;
        if (w) {
            fill_times(w, name, &ms, how->calls);
            fill_count(w, name, ms.n);
            fill_timer(w, name, used);
            profile_note(s, row_case_key(w), name, ms.median);
            fill_energy(w, name, how, joules_of(&m.window, ms.mean) / how->calls);
        }
        measure_again(s, name, fn, arg);
    }
    samples_free(&x);
    return ok;
}

bool measure(session *s, row *w, const char *name, enqueue *fn, void *arg, double *median_ms)
{
    const measure_how how = measure_default(s);
    return measure_with(s, w, name, &how, fn, arg, median_ms);
}

/* ---- the steady state ---- */

/* Half of the time for the GPU to settle, half to measure. */
static timing half_of(const session *s, const timing *t)
{
    timing half = *t;
    half.iters = INT_MAX;
    half.max_s = s->sustain_s / 2;
    half.warmup = 0;
    half.settle_s = 0; /* the first half does that */
    return half;
}

/* By how much the second half of the samples is slower than the first. */
static double drift_pct(const samples *x)
{
    const samples first = {x->x, x->n / 2, 0}, second = {x->x + x->n / 2, x->n - x->n / 2, 0};
    return 100 * (stats_of(&second).median / stats_of(&first).median - 1);
}

static void fill_sustained(row *w, const char *name, const samples *x, int calls, const device_window *window)
{
    const stats ms = stats_of(x);
    fill_real(w, name, "_ms", ms.median / calls);
    fill_real(w, name, "_us", ms.median * (1e3 / calls));
    fill_real(w, name, "_drift_pct", drift_pct(x));
    fill_real(w, name, "_sm_mhz", window->sm_mhz);
    fill_real(w, name, "_power_w", window->power_w);
}

bool measure_sustained(session *s, row *w, const char *name, const measure_how *how, enqueue *fn, void *arg,
                       double *median_ms)
{
    const timing half = half_of(s, &how->timing);
    samples x = {0};
    const char *used;
    measurement m = {.d = how->dev, .t = &half, .fn = fn, .arg = arg, .out = &x, .sensed = how->dev == s->dev};
    *median_ms = NAN;
    if (!(s->sustain_s > 0))
        return true;
    device_state_hold(s->dev);
    begin(w, name);
    bool ok = take_samples(&m, &used);
    samples_clear(&x);
    m.total_ms = 0;
    ok = ok && take_samples(&m, &used);
    scope_pop();
    if (ok) {
        *median_ms = stats_of(&x).median / how->calls;
        fill_sustained(w, name, &x, how->calls, &m.window);
        fill_energy(w, name, how, joules_of(&m.window, stats_of(&x).mean) / how->calls);
        if (how->flops > 0)
            fill_real(w, name, "_tflops", how->flops / (*median_ms * 1e9));
    }
    samples_free(&x);
    return ok;
}

/* ---- steps that time their parts ---- */

enum { HOST = MEASURE_PARTS }; /* of the samples */

typedef struct step_limit {
    int warmup, iters;
    double max_s; /* 0: none */
    bool counts;  /* in the case's conditions */
} step_limit;

static bool take_steps(session *s, const measure_step *step, void *arg, const step_limit *limit,
                       samples x[MEASURE_PARTS + 1], device_window *window)
{
    double measured_ms = 0;
    bool ok = true;
    for (int64_t i = 0; ok && i < (int64_t)limit->warmup + limit->iters; i++) {
        double ms[MEASURE_PARTS] = {0};
        if (i == limit->warmup)
            device_sense_begin(s->dev);
        const double start = host_seconds();
        ok = step->enqueue(arg);
        if (!ok)
            break;
        if (i == limit->warmup - 1)
            device_state_note(s->dev); /* while a step runs, but none that is measured: asking takes the host time */
        step->wait(arg, ms);
        const double host_ms = (host_seconds() - start) * 1e3;
        watchdog_beat();
        if (i == 0 && step->first && limit->counts)
            step->first(arg, host_ms);
        if (i < limit->warmup)
            continue;
        for (int p = 0; p < step->parts; p++)
            samples_add(&x[p], ms[p]);
        samples_add(&x[HOST], host_ms);
        measured_ms += host_ms;
        if (limit->max_s > 0 && measured_ms > limit->max_s * 1e3 && x[HOST].n >= SAMPLES_MIN)
            break;
    }
    *window = device_sense_end(s->dev, limit->counts);
    return ok;
}

static void free_steps(samples x[MEASURE_PARTS + 1])
{
    for (int i = 0; i <= HOST; i++)
        samples_free(&x[i]);
}

static void fill_steps(row *w, const measure_step *step, const samples x[MEASURE_PARTS + 1], measured_steps *out)
{
    out->n = (int64_t)x[HOST].n;
    for (int p = 0; p < step->parts; p++) {
        const stats ms = stats_of(&x[p]);
        out->median_ms[p] = step->names[p] ? ms.median : NAN;
        if (step->names[p])
            fill_times(w, step->names[p], &ms, 1);
    }
    if (step->host_name) {
        const stats host = stats_of(&x[HOST]);
        fill_times(w, step->host_name, &host, 1);
    }
    fill_count(w, "steps", x[HOST].n);
}

bool measure_steps(session *s, row *w, const measure_step *step, void *arg, measured_steps *out)
{
    samples x[MEASURE_PARTS + 1] = {0};
    device_window window;
    begin(w, "steps");
    const bool ok =
        take_steps(s, step, arg, &(step_limit){step->warmup, s->timing.iters, s->timing.max_s, true}, x, &window);
    scope_pop();
    if (ok) {
        fill_steps(w, step, x, out);
        profile_note(s, row_case_key(w), "steps", out->median_ms[step->parts - 1]);
        out->step_j = joules_of(&window, stats_of(&x[HOST]).mean);
        fill_real(w, "step", "_j", out->step_j);
        measure_again(s, "steps", step->enqueue, arg);
    }
    free_steps(x);
    return ok;
}

bool measure_steps_sustained(session *s, row *w, const measure_step *step, int part, void *arg, measured_steps *out)
{
    const step_limit half = {0, INT_MAX, s->sustain_s / 2, false};
    samples x[MEASURE_PARTS + 1] = {0};
    device_window window;
    *out = (measured_steps){.step_j = NAN};
    out->median_ms[part] = NAN;
    if (!(s->sustain_s > 0))
        return true;
    device_state_hold(s->dev);
    begin(w, "sustained steps");
    bool ok = take_steps(s, step, arg, &half, x, &window);
    free_steps(x);
    ok = ok && take_steps(s, step, arg, &half, x, &window);
    scope_pop();
    if (ok) {
        out->median_ms[part] = stats_of(&x[part]).median;
        out->n = (int64_t)x[part].n;
        out->step_j = joules_of(&window, stats_of(&x[HOST]).mean);
        fill_sustained(w, "sustained_step", &x[part], 1, &window);
        fill_real(w, "sustained_step", "_j", out->step_j);
    }
    free_steps(x);
    return ok;
}
