/* SPDX-License-Identifier: MIT */
/* Searches all ways to put a job on a number of GPUs; see mesh.h. */
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/formulas/mesh/mesh.h"

enum { PP_MOST = 64, CP_MOST = 16, SIMULATED_MOST = 200 };

typedef struct candidate {
    mesh_plan plan;
    double step_s; /* by closed forms */
    double bytes;
    bool fits;
} candidate;

typedef struct search {
    const mesh_question *q;
    const mesh_rates *r;
    candidate *all;
    size_t count, room;
} search;

static void consider(search *s, const mesh_plan *p)
{
    char why[256];
    if (mesh_plan_problem(&s->q->job, p, why, sizeof why))
        return;
    const mesh_prediction x = mesh_predict(&s->q->job, p, s->r, false);
    LIST_ADD(s->all, s->count, s->room, (candidate){*p, x.step_s, x.bytes.total, x.bytes.total <= s->q->bytes});
}

static void each_recompute(search *s, mesh_plan p)
{
    static const mesh_recompute ways[] = {MESH_KEEP, MESH_SELECTIVE, MESH_BUT_ATTENTION, MESH_BLOCK};
    for (p.micro_batch = 1; p.micro_batch <= MESH_MICRO_MOST; p.micro_batch *= 2) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            p.recompute = ways[i];
            consider(s, &p);
        }
    }
}

static void each_schedule(search *s, mesh_plan p)
{
    if (p.axes.pp == 1) {
        p.chunks = 1;
        each_recompute(s, p);
        return;
    }
    for (p.schedule = pipeline_schedules; p.schedule->name; p.schedule++)
        for (p.chunks = p.schedule->chunks_least; p.chunks <= p.schedule->chunks_most && p.chunks <= 8; p.chunks *= 2)
            each_recompute(s, p);
}

/* Replicas copy all, or share it among all of them, or within a host and copy between hosts. */
static void each_strategy(search *s, mesh_plan p, int replicas)
{
    const int inner = p.axes.tp * p.axes.cp, within = inner < s->q->job.host ? s->q->job.host / inner : 1;
    p.axes.dp_replicate = replicas;
    p.axes.dp_shard = 1;
    p.strategy = MESH_DDP;
    each_schedule(s, p);
    if (replicas * p.axes.cp == 1)
        return;
    for (int hosts = 0; hosts <= 1; hosts++) {
        if (hosts && (within < 2 || replicas <= within || replicas % within != 0))
            return;
        p.axes.dp_shard = hosts ? within : replicas;
        p.axes.dp_replicate = replicas / p.axes.dp_shard;
        for (p.strategy = hosts ? MESH_FSDP_KEEP : MESH_ZERO1; p.strategy < MESH_STRATEGIES; p.strategy++)
            each_schedule(s, p);
    }
}

static bool wanted(const mesh_question *q, mesh m)
{
    return !q->only.pp || (q->only.pp == m.pp && q->only.cp == m.cp && q->only.tp == m.tp);
}

static void each_mesh(search *s)
{
    const mesh_question *q = s->q;
    for (int tp = 1; tp <= q->job.host; tp++)
        for (int cp = 1; cp <= CP_MOST; cp *= 2)
            for (int pp = 1; pp <= PP_MOST; pp++)
                if (q->gpus % ((int64_t)tp * cp * pp) == 0 && q->job.host % tp == 0 &&
                    wanted(q, (mesh){.pp = pp, .cp = cp, .tp = tp}))
                    each_strategy(s, (mesh_plan){.axes = {.pp = pp, .cp = cp, .tp = tp}, .overlap = q->overlap},
                                  q->gpus / (tp * cp * pp));
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const candidate *)a)->step_s, y = ((const candidate *)b)->step_s;
    return (x > y) - (x < y);
}

static int by_found_time(const void *a, const void *b)
{
    const double x = ((const mesh_found *)a)->p.step_s, y = ((const mesh_found *)b)->p.step_s;
    return (x > y) - (x < y);
}

/* Keeps a plan where it is faster than its mesh's, or that mesh is new; the list stays in order. */
static void keep(mesh_found *list, int *count, const mesh_found *x)
{
    int at = 0;
    while (at < *count && memcmp(&list[at].plan.axes, &x->plan.axes, sizeof x->plan.axes) != 0)
        at++;
    if (at == *count && *count < MESH_FOUND)
        list[(*count)++] = *x;
    else if (at == *count)
        at = *count - 1;
    if (x->p.step_s < list[at].p.step_s)
        list[at] = *x;
    qsort(list, (size_t)*count, sizeof *list, by_found_time);
}

/* In the order of closed forms, which are no longer than what the simulator says, until the list cannot change any more. */
static void fastest(search *s, mesh_found *list, int *count)
{
    int simulated = 0;
    qsort(s->all, s->count, sizeof *s->all, by_time);
    for (size_t i = 0; i < s->count && simulated < SIMULATED_MOST; i++) {
        const candidate *c = &s->all[i];
        if (!c->fits)
            continue;
        if (*count == MESH_FOUND && c->step_s > list[*count - 1].p.step_s)
            return;
        const mesh_found x = {c->plan, mesh_predict(&s->q->job, &c->plan, s->r, true)};
        simulated += c->plan.schedule != NULL;
        keep(list, count, &x);
    }
}

/* Plans of a mesh behind each other, those with room first, then those that lack least. */
static int by_mesh(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    const int order = memcmp(&x->plan.axes, &y->plan.axes, sizeof x->plan.axes);
    return order ? order : x->fits != y->fits ? y->fits - x->fits : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_bytes(const void *a, const void *b)
{
    const candidate *x = *(const candidate *const *)a, *y = *(const candidate *const *)b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Meshes without any plan that has room: those that lack least. */
static void nearest(search *s, mesh_found *list, int *count)
{
    OWNED const candidate **first = xmalloc((s->count + 1) * sizeof *first);
    size_t n = 0;
    qsort(s->all, s->count, sizeof *s->all, by_mesh);
    for (size_t i = 0; i < s->count; i++)
        if (!s->all[i].fits && (i == 0 || memcmp(&s->all[i - 1].plan.axes, &s->all[i].plan.axes, sizeof(mesh)) != 0))
            first[n++] = &s->all[i];
    qsort(first, n, sizeof *first, by_bytes);
    for (*count = 0; *count < MESH_FOUND && (size_t)*count < n; ++*count)
        list[*count] = (mesh_found){first[*count]->plan, mesh_predict(&s->q->job, &first[*count]->plan, s->r, true)};
}

mesh_answer mesh_search(const mesh_question *q, const mesh_rates *r)
{
    search s = {.q = q, .r = r};
    mesh_answer a = {0};
    each_mesh(&s);
    if (s.count) {
        fastest(&s, a.best, &a.best_count);
        nearest(&s, a.lacking, &a.lacking_count);
    }
    a.plans = (int)s.count;
    for (size_t i = 0; i < s.count; i++)
        a.fits += s.all[i].fits;
    while (a.ties < a.best_count && a.best[a.ties].p.step_s <= a.best[0].p.step_s * (1 + q->error_pct / 100))
        a.ties++;
    free(s.all);
    return a;
}
