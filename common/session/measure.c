/* SPDX-License-Identifier: MIT */
/* Timing; see measure.h. Samples are queued ahead of the device, so that the host's launch of one sample hides behind
 * the run of the one before; a call too short for that is captured many times into a graph. */
#include "common/session/measure.h"

#include <math.h>
#include <stdio.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/profile/nvtx.h"
#include "common/session/profile.h"
#include "common/session/watchdog.h"

enum { QUEUE_MAX = 16, GRAPH_CALLS_MIN = 10, GRAPH_CALLS_MAX = 200, SAMPLES_MIN = 3 };
static const double graph_below_ms = 0.05, graph_replay_ms = 1, lead_below_ms = 10;

typedef bool enqueue(void *arg);

typedef struct measurement {
    device *d;
    const timing *t;
    enqueue *fn;
    void *arg;
    samples *out;
    double total_ms; /* of the samples so far, as the device spent it */
} measurement;

static void keep(measurement *m, double ms, double scale)
{
    samples_add(m->out, ms * scale);
    m->total_ms += ms;
    watchdog_beat();
}

static bool enough(const measurement *m, size_t started)
{
    return started >= (size_t)m->t->iters ||
           (m->t->max_s > 0 && m->total_ms > m->t->max_s * 1e3 && m->out->n >= SAMPLES_MIN);
}

static bool warm_up(const measurement *m)
{
    double start = host_seconds();
    for (int i = 0; i < m->t->warmup; i++) {
        if (!m->fn(m->arg))
            return false;
        device_sync(m->d);
        watchdog_beat();
        if (m->t->max_s > 0 && host_seconds() - start > m->t->max_s)
            break;
    }
    return true;
}

static bool time_host(measurement *m)
{
    for (size_t i = 0; !enough(m, i); i++) {
        if (m->t->cold_l2)
            device_l2_flush(m->d);
        device_sync(m->d);
        double start = host_seconds();
        if (!m->fn(m->arg))
            return false;
        device_sync(m->d);
        keep(m, (host_seconds() - start) * 1e3, 1);
    }
    return true;
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
    for (int i = 0; i < depth; i++) {
        device_event_destroy(m->d, from[i]);
        device_event_destroy(m->d, to[i]);
    }
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
    bool ok = time_queued(m, replay_enqueue, &r, queue_depth(call_ms * calls), 1.0 / calls);
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
    if (ms < lead_below_ms && m->t->warmup > 0 && !m->fn(m->arg)) /* the first sample's launch hides behind this */
        return false;
    return time_queued(m, m->fn, m->arg, queue_depth(ms), 1);
}

bool measure_samples(device *d, const timing *t, bool (*fn)(void *arg), void *arg, samples *out_ms, const char **used)
{
    measurement m = {.d = d, .t = t, .fn = fn, .arg = arg, .out = out_ms};
    bool host = t->kind == TIMER_HOST || device_kind_of(d) == DEVICE_CPU;
    *used = "host";
    return warm_up(&m) && (host ? time_host(&m) : time_device(&m, t->kind, used));
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
    begin(w, name);
    const bool ok = measure_samples(how->dev, &how->timing, fn, arg, &x, &used);
    scope_pop();
    if (ok) {
        const stats ms = stats_of(&x);
        *median_ms = ms.median / how->calls;
        if (w) {
            fill_times(w, name, &ms, how->calls);
            fill_count(w, name, ms.n);
            fill_timer(w, name, used);
            profile_note(s, row_case_key(w), name, ms.median);
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

/* ---- steps that time their parts ---- */

enum { HOST = MEASURE_PARTS }; /* of the samples */

static bool take_steps(session *s, const measure_step *step, void *arg, samples x[MEASURE_PARTS + 1])
{
    const int most = step->warmup + s->timing.iters;
    double measured_ms = 0;
    for (int i = 0; i < most; i++) {
        double ms[MEASURE_PARTS] = {0};
        const double start = host_seconds();
        if (!step->enqueue(arg))
            return false;
        if (i == step->warmup - 1)
            device_state_note(s->dev); /* while a step runs, but none that is measured: asking takes the host time */
        step->wait(arg, ms);
        const double host_ms = (host_seconds() - start) * 1e3;
        watchdog_beat();
        if (i == 0 && step->first)
            step->first(arg, host_ms);
        if (i < step->warmup)
            continue;
        for (int p = 0; p < step->parts; p++)
            samples_add(&x[p], ms[p]);
        samples_add(&x[HOST], host_ms);
        measured_ms += host_ms;
        if (s->timing.max_s > 0 && measured_ms > s->timing.max_s * 1e3 && x[HOST].n >= SAMPLES_MIN)
            break;
    }
    return true;
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
    begin(w, "steps");
    const bool ok = take_steps(s, step, arg, x);
    scope_pop();
    if (ok) {
        fill_steps(w, step, x, out);
        profile_note(s, row_case_key(w), "steps", out->median_ms[step->parts - 1]);
        measure_again(s, "steps", step->enqueue, arg);
    }
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        samples_free(&x[i]);
    return ok;
}
