/* SPDX-License-Identifier: MIT */
/* Taking samples; see measure_internal.h. They are queued ahead of the device, so that the host's launch of one sample
 * hides behind the run of the one before; a call too short for that is captured many times into a graph. */
#include <math.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/session/measure_internal.h"
#include "common/session/watchdog.h"

enum { QUEUE_MAX = 16, GRAPH_CALLS_MIN = 10, GRAPH_CALLS_MAX = 200 };
static const double graph_below_ms = 1, graph_replay_ms = 1, lead_below_ms = 10;

static const device_window nothing_read = {NAN, NAN, NAN};

int measure_iters(const timing *t, double each_s)
{
    if (!(t->max_s > 0) || t->iters <= SAMPLES_MIN || each_s * t->iters <= t->max_s)
        return t->iters;
    return (int)fmax(SAMPLES_MIN, t->max_s / each_s);
}

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
    if (ok)
        return g;
    device_graph_destroy(m->d, g);
    return NULL;
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

bool sampling_run(measurement *m, const char **used)
{
    const bool host = m->t->kind == TIMER_HOST || device_kind_of(m->d) == DEVICE_CPU;
    *used = "host";
    m->window = nothing_read;
    return warm_up(m) && (host ? settle(m, m->fn, m->arg, 0, true) && time_host(m) : time_device(m, m->t->kind, used));
}

bool measure_samples(device *d, const timing *t, bool (*fn)(void *arg), void *arg, samples *out_ms, const char **used)
{
    measurement m = {.d = d, .t = t, .fn = fn, .arg = arg, .out = out_ms};
    return sampling_run(&m, used);
}
