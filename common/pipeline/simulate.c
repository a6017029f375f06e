/* SPDX-License-Identifier: MIT */
/* Runs a table with given times; see simulate.h. */
#include "common/pipeline/simulate.h"

#include <math.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/pipeline/internal.h"

typedef struct rank_run {
    int next, held;
    double first, clock, busy;
} rank_run;

/* Runs a rank until it waits for another; returns how many actions it ran. */
static int run_rank(const pipeline_table *t, const pipeline_moments *m, int rank, rank_run *r, double *starts,
                    int *peak)
{
    const pipeline_action *actions = pipeline_actions(t, rank);
    const pipeline_kind last = t->shape.schedule->split ? PIPELINE_W : PIPELINE_B;
    const int before = r->next;
    for (; r->next < t->count; r->next++) {
        const pipeline_action a = actions[r->next];
        const double start = pipeline_ready(m, rank, a, r->clock),
                     takes = pipeline_duration(m->shape, m->costs, rank, a);
        if (isnan(start))
            break;
        if (r->next == 0)
            r->first = start;
        if (starts)
            starts[(size_t)rank * (size_t)t->count + (size_t)r->next] = start;
        r->clock = start + takes;
        r->busy += takes;
        *pipeline_end(m, a.kind, pipeline_stage(&t->shape, rank, a.chunk), a.micro) =
            pipeline_given(m, rank, a, r->clock);
        r->held += (a.kind == PIPELINE_F) - (a.kind == last);
        if (r->held > *peak)
            *peak = r->held;
    }
    return r->next - before;
}

pipeline_times pipeline_simulate(const pipeline_table *t, const pipeline_costs *costs, double *starts)
{
    const int p = t->shape.ranks;
    pipeline_times out = {0};
    pipeline_moments m;
    rank_run *ranks = xcalloc((size_t)p, sizeof *ranks);
    bool complete = true;
    pipeline_moments_create(&m, &t->shape, costs);
    for (int ran = 1; ran;) {
        ran = 0;
        for (int r = 0; r < p; r++)
            ran += run_rank(t, &m, r, &ranks[r], starts, &out.peak);
    }
    for (int r = 0; r < p; r++) {
        complete = complete && ranks[r].next == t->count;
        out.makespan = fmax(out.makespan, ranks[r].clock);
        out.longest = fmax(out.longest, ranks[r].clock - ranks[r].first);
        out.busy += ranks[r].busy / p;
    }
    out.bubble = 1 - out.busy / out.longest;
    if (!complete)
        out.makespan = out.longest = out.bubble = NAN;
    pipeline_moments_free(&m);
    free(ranks);
    return out;
}

double pipeline_closed_form(const pipeline_shape *s, double f, double b, double w, double hop)
{
    const pipeline_schedule *row = s->schedule;
    const double all = f + b + w, hops = 2 * hop * (s->ranks - 1);
    double bubble = all / s->chunks;
    if (row->there_and_back)
        bubble = fmax(0, f + b - 2 * w) / 2 + w / (2 * s->ranks);
    else if (row->split)
        bubble = fmax(0, f + b - w);
    return s->micros * all + (s->ranks - 1) * bubble + hops;
}
