/* SPDX-License-Identifier: MIT */
/* The cost of launching an empty kernel; see roofline.h. */
#include "bench/roofline/roofline.h"

enum { LAUNCHES = 100 }; /* empty kernels of one sample */

static bool launch_one(void *arg)
{
    roofline *r = arg;
    return roofline_ok(r, r->kernels->nothing(r->ctx, device_stream(r->s->dev)));
}

static bool launch_many(void *arg)
{
    bool ok = true;
    for (int i = 0; ok && i < LAUNCHES; i++)
        ok = launch_one(arg);
    return ok;
}

typedef struct graph_launch {
    device *dev;
    device_graph *graph;
} graph_launch;

static bool launch_graph(void *arg)
{
    graph_launch *g = arg;
    device_graph_launch(g->dev, g->graph);
    return true;
}

static bool time_graph(roofline *r, const measure_how *how, double *ms)
{
    graph_launch g = {.dev = r->s->dev};
    bool ok = launch_many(r) && device_graph_begin(r->s->dev) && launch_many(r);
    g.graph = ok ? device_graph_end(r->s->dev) : NULL;
    if (!g.graph) {
        if (row_status_get(r->w) == ROW_OK)
            row_status_set(r->w, ROW_SKIP, "an empty kernel cannot be captured in a graph here");
        return false;
    }
    ok = roofline_time(r, how, launch_graph, &g, (roofline_amount){0}, ms);
    device_graph_destroy(r->s->dev, g.graph);
    return ok;
}

bool roofline_launch_time(roofline *r, roofline_launch kind, double *ms)
{
    measure_how how = measure_default(r->s);
    if (device_kind_of(r->s->dev) == DEVICE_CPU) {
        row_status_set(r->w, ROW_SKIP, "the CPU launches no kernels");
        return false;
    }
    if (kind == LAUNCH_WAITED_FOR) {
        how.timing.kind = TIMER_HOST;
        return roofline_time(r, &how, launch_one, r, (roofline_amount){0}, ms);
    }
    how.timing.kind = TIMER_EVENT;
    how.calls = LAUNCHES;
    return kind == LAUNCH_IN_GRAPH ? time_graph(r, &how, ms)
                                   : roofline_time(r, &how, launch_many, r, (roofline_amount){0}, ms);
}
