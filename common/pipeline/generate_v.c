/* SPDX-License-Identifier: MIT */
/* The schedule that goes there and back. The order of F and B of a rank is fixed: 2 (p - 1 - r) + 1 F of its first chunk, then r
 * times F of the second and of the first, p - 1 - r times F and B of the second, then F B of the second and the first in
 * turn. W goes where the rank would wait for longer than half of it, or where it holds as much as it may. */
#include <math.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/pipeline/internal.h"

typedef struct v_rank {
    pipeline_action *program; /* (4 m): F and B in their order */
    int next;                 /* of the program */
    pipeline_action *done;    /* the table's, being filled */
    int filled;
    int *waiting;    /* (2 m): places in `program` of B whose W is to come, in their order */
    int first, last; /* of `waiting` */
    int held;
    double clock;
} v_rank;

static void add(v_rank *r, int micros, int *count, pipeline_kind kind, int chunk)
{
    if (*count < micros)
        r->program[r->next++] = (pipeline_action){kind, (*count)++, chunk};
}

static void write_program(v_rank *r, int rank, int p, int m)
{
    int f[2] = {0, 0}, b[2] = {0, 0};
    for (int i = 0; i < 2 * (p - 1 - rank) + 1; i++)
        add(r, m, &f[0], PIPELINE_F, 0);
    for (int i = 0; i < rank; i++) {
        add(r, m, &f[1], PIPELINE_F, 1);
        add(r, m, &f[0], PIPELINE_F, 0);
    }
    for (int i = 0; i < p - 1 - rank; i++) {
        add(r, m, &f[1], PIPELINE_F, 1);
        add(r, m, &b[1], PIPELINE_B, 1);
    }
    while (b[0] < m || b[1] < m)
        for (int chunk = 1; chunk >= 0; chunk--) {
            add(r, m, &f[chunk], PIPELINE_F, chunk);
            add(r, m, &b[chunk], PIPELINE_B, chunk);
        }
    r->next = 0;
}

/* The next action of a rank and its start; NAN where it depends on what has not run. */
static double choose(const pipeline_moments *m, int rank, const v_rank *r, pipeline_action *a)
{
    const int steps = 4 * m->shape->micros;
    const bool has_w = r->first < r->last;
    double start = NAN, slack = INFINITY;
    bool full = false;
    if (r->next < steps) {
        *a = r->program[r->next];
        start = pipeline_ready(m, rank, *a, r->clock);
        slack = isnan(start) ? INFINITY : start - r->clock;
        full = a->kind == PIPELINE_F && r->held >= pipeline_bound(m->shape, rank);
    }
    if (!has_w)
        return full ? NAN : start;
    const pipeline_action b = r->program[r->waiting[r->first]], w = {PIPELINE_W, b.micro, b.chunk};
    if (!full && slack <= 0.5 * pipeline_duration(m->shape, m->costs, rank, w))
        return start;
    *a = w;
    return r->clock;
}

static void take(const pipeline_moments *m, int rank, v_rank *r, pipeline_action a, double start)
{
    r->clock = start + pipeline_duration(m->shape, m->costs, rank, a);
    *pipeline_end(m, a.kind, pipeline_stage(m->shape, rank, a.chunk), a.micro) = r->clock;
    r->done[r->filled++] = a;
    r->held += (a.kind == PIPELINE_F) - (a.kind == PIPELINE_W);
    if (a.kind == PIPELINE_W)
        r->first++;
    else {
        if (a.kind == PIPELINE_B)
            r->waiting[r->last++] = r->next;
        r->next++;
    }
}

/* What a rank would do next, and the order in which ranks go on: one that could only do a W, since it doesn't know yet when its next
 * action can start, lets those go first that start at the same moment. */
typedef struct turn {
    pipeline_action action;
    double start, order;
} turn;

static turn turn_of(const pipeline_moments *m, int rank, const v_rank *r)
{
    turn t = {.order = INFINITY};
    if (r->next == 4 * m->shape->micros && r->first == r->last)
        return t;
    t.start = choose(m, rank, r, &t.action);
    if (!isnan(t.start))
        t.order =
            t.start + (t.action.kind == PIPELINE_W ? 1e-6 * pipeline_duration(m->shape, m->costs, rank, t.action) : 0);
    return t;
}

/* The rank whose turn is first goes on; that changes its own turn and its neighbours'. */
static void run_all(const pipeline_moments *m, v_rank *ranks)
{
    const int p = m->shape->ranks;
    OWNED turn *turns = xmalloc((size_t)p * sizeof *turns);
    for (int r = 0; r < p; r++)
        turns[r] = turn_of(m, r, &ranks[r]);
    for (;;) {
        int at = 0;
        for (int r = 1; r < p; r++)
            if (turns[r].order < turns[at].order)
                at = r;
        if (turns[at].order == INFINITY)
            break;
        take(m, at, &ranks[at], turns[at].action, turns[at].start);
        for (int r = at > 0 ? at - 1 : 0; r <= at + 1 && r < p; r++)
            turns[r] = turn_of(m, r, &ranks[r]);
    }
}

static void generate(pipeline_table *t, const pipeline_costs *costs)
{
    const int p = t->shape.ranks, m = t->shape.micros;
    pipeline_moments moments;
    v_rank *ranks = xcalloc((size_t)p, sizeof *ranks);
    pipeline_moments_create(&moments, &t->shape, costs);
    for (int r = 0; r < p; r++) {
        ranks[r] = (v_rank){.program = xmalloc(4 * (size_t)m * sizeof *ranks->program),
                            .waiting = xmalloc(2 * (size_t)m * sizeof *ranks->waiting),
                            .done = t->actions + (size_t)r * (size_t)t->count};
        write_program(&ranks[r], r, p, m);
    }
    run_all(&moments, ranks);
    for (int r = 0; r < p; r++) {
        free(ranks[r].program);
        free(ranks[r].waiting);
    }
    free(ranks);
    pipeline_moments_free(&moments);
}

void pipeline_generate_v(pipeline_table *t, const pipeline_costs *costs)
{
    if (costs) {
        generate(t, costs);
        return;
    }
    const size_t stages = (size_t)pipeline_stages(&t->shape);
    double *one = xmalloc(2 * stages * sizeof *one), *w = one + stages;
    for (size_t i = 0; i < stages; i++) {
        one[i] = 1;
        w[i] = 0.92;
    }
    generate(t, &(pipeline_costs){.f = one, .b = one, .w = w, .hop = 0.02});
    free(one);
}
