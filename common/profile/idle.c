/* SPDX-License-Identifier: MIT */
/* Gaps of a device and their parts; see idle.h. */
#include "common/profile/idle.h"

#include <math.h>
#include <stdlib.h>

#include "common/core/error.h"

typedef struct parts {
    const recording *r;
    idle_limits limits;
    idle_part *v;
    size_t n, room;
} parts;

const char *idle_class_name(idle_class c)
{
    static const char *const names[] = {"profiler", "host", "launch", "node", "graph", "dependency", "unknown"};
    return names[c];
}

static void add(parts *p, idle_part part)
{
    if (part.start_us < part.end_us)
        LIST_ADD(p->v, p->n, p->room, part);
}

/* The part, but for what the profiler cost in it, which is a part of its own. Costs are by start. */
static void add_without_costs(parts *p, idle_part part)
{
    for (size_t i = 0; i < p->r->cost_count && part.start_us < part.end_us; i++) {
        const double start = fmax(p->r->costs[i].start_us, part.start_us);
        const double end = fmin(p->r->costs[i].end_us, part.end_us);
        if (start >= end)
            continue;
        idle_part before = part, cost = part;
        before.end_us = cost.start_us = start;
        cost.end_us = part.start_us = end;
        cost.class = IDLE_PROFILER;
        cost.host_in = p->r->costs[i].name;
        add(p, before);
        add(p, cost);
    }
    add(p, part);
}

/* What the host did: the call that took most of the time if it took half of it, else the innermost range around it. */
static const char *host_in(const recording *r, double start_us, double end_us)
{
    double most = 0.5 * (end_us - start_us), shortest = INFINITY;
    const char *name = NULL;
    for (size_t i = 0; i < r->call_count && r->calls[i].start_us < end_us; i++) {
        const double shared = fmin(r->calls[i].end_us, end_us) - fmax(r->calls[i].start_us, start_us);
        if (shared > most)
            most = shared, name = r->calls[i].name;
    }
    if (name)
        return name;
    const double middle = (start_us + end_us) / 2;
    for (size_t i = 0; i < r->range_count; i++) {
        const record_range *range = &r->ranges[i];
        const double length = range->end_us - range->start_us; /* NAN: still open */
        if (range->start_us <= middle && !(range->end_us < middle) && (isnan(length) ? 1e18 : length) < shortest)
            shortest = isnan(length) ? 1e18 : length, name = range->name;
    }
    return name ? name : "";
}

/* The gap between two spans (NULL: none). */
static void add_gap(parts *p, double start_us, double end_us, const record_span *before, const record_span *next)
{
    const record_call *call = next && next->call >= 0 ? &p->r->calls[next->call] : NULL;
    idle_part part = {.host_in = "", .after = before ? before->name : "", .before = next ? next->name : ""};
    double at = start_us, asked = call ? call->start_us : p->r->host_spans ? end_us : start_us;
    const bool known = call || p->r->host_spans;
    if (known && asked > at) {
        part.class = IDLE_HOST, part.start_us = at, part.end_us = fmin(asked, end_us);
        part.host_in = host_in(p->r, part.start_us, part.end_us);
        add_without_costs(p, part);
        at = part.end_us;
    }
    const double ready = call ? call->end_us + p->limits.launch_us : at;
    part.host_in = "";
    if (ready > at) {
        part.class = IDLE_LAUNCH, part.start_us = at, part.end_us = fmin(ready, end_us);
        add_without_costs(p, part);
        at = part.end_us;
    }
    part.start_us = at, part.end_us = end_us;
    const double pause_us = next && next->node ? p->limits.node_us : p->limits.kernel_us;
    const bool in_time = call && asked < start_us && before;
    part.class = end_us - at <= pause_us                                                    ? IDLE_NODE
                 : in_time && next->node && before->call >= 0 && before->call != next->call ? IDLE_GRAPH
                 : in_time && before->stream != next->stream                                ? IDLE_DEPENDENCY
                                                                                            : IDLE_UNKNOWN;
    add_without_costs(p, part);
}

idle_part *idle_parts(const recording *r, record_window w, idle_limits limits, size_t *n)
{
    parts p = {.r = r, .limits = limits};
    const record_span *last = NULL; /* the one that ended last */
    double at = w.from_us;
    for (size_t i = 0; i < r->span_count; i++) {
        const record_span *s = &r->spans[i];
        if (s->start_us > at && at < w.to_us && s->end_us > w.from_us)
            add_gap(&p, at, fmin(s->start_us, w.to_us), last, s);
        if (!last || s->end_us > last->end_us)
            last = s;
        at = fmax(at, s->end_us);
    }
    if (at < w.to_us)
        add_gap(&p, at, w.to_us, last, NULL);
    *n = p.n;
    return p.v;
}
