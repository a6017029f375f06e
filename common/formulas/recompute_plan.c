/* SPDX-License-Identifier: MIT */
/* Plans of recomputation for a memory budget; see recompute_plan.h. */
#include "common/formulas/recompute_plan.h"

#include <math.h>

double recompute_cost_ms(const recompute_costs *costs, const recompute_schedule *s)
{
    const recompute_work work = recompute_work_of(s);
    double ms = work.kept * costs->again_ms[RECOMPUTE_BLOCK] + work.passed * costs->pass_ms;
    for (int l = 0; l < s->layers; l++)
        ms += recompute_whole(s, l) ? 0 : costs->again_ms[s->what[l]];
    return ms + offload_exposed_ms(&costs->offload, s, costs->again_ms);
}

enum { OFFLOAD_TRIES = 64 };

/* All blocks alike: a corner that mixtures lie between. */
typedef struct corner {
    recompute what;
    int64_t bytes;
    double ms;
} corner;

static bool beats(const corner *a, const corner *b)
{
    return a->bytes <= b->bytes && a->ms <= b->ms;
}

/* Bytes saved per millisecond from a to b. */
static double slope(const corner *a, const corner *b)
{
    return (double)(a->bytes - b->bytes) / (b->ms - a->ms);
}

/* Adds a corner of more cost than those before it, and drops those that it makes superfluous. */
static int hull_add(corner *hull, int n, corner next)
{
    if (n && next.bytes >= hull[n - 1].bytes)
        return n;
    while (n > 1 && slope(&hull[n - 2], &hull[n - 1]) <= slope(&hull[n - 2], &next))
        n--;
    hull[n] = next;
    return n + 1;
}

/* The kinds that are worth mixing, from the one that costs nothing on. */
static int hull_of(int layers, const recompute_costs *costs, recompute_bytes bytes, void *user, corner *hull)
{
    corner all[RECOMPUTE_KINDS];
    int count = 0, n = 0;
    for (int what = RECOMPUTE_NONE; what <= RECOMPUTE_BLOCK; what++) {
        const recompute_schedule s = recompute_uniform(layers, (recompute)what, 1);
        corner c = {(recompute)what, bytes(user, &s), recompute_cost_ms(costs, &s)};
        c.ms = what == RECOMPUTE_NONE ? 0 : fmax(c.ms, 0);
        int at = count++;
        for (; at > 0 && (c.ms < all[at - 1].ms || (c.ms == all[at - 1].ms && c.bytes < all[at - 1].bytes)); at--)
            all[at] = all[at - 1];
        all[at] = c;
    }
    for (int i = 0; i < count; i++)
        if (all[i].bytes >= 0 && !(n && beats(&hull[n - 1], &all[i])))
            n = hull_add(hull, n, all[i]);
    return n;
}

/* A way between two corners, and blocks that are offloaded whatever the others do. */
typedef struct mixture {
    int layers;
    recompute less, more; /* what blocks that are not, and that are, moved on do */
    int moved;            /* the first ones: backward comes to them last, when others have given up their memory */
    int away;             /* offloaded blocks */
    bool inputs;          /* those that are computed again from their input give that away, too */
    const recompute_costs *costs;
    recompute_bytes bytes;
    void *user;
} mixture;

static recompute_schedule mixed(const mixture *m)
{
    recompute_schedule s = recompute_uniform(m->layers, m->less, 1);
    if (m->moved)
        recompute_set(&s, 0, m->moved, m->more, 1);
    offload_spread(&s, &m->costs->offload, m->away);
    for (int l = 0; l < m->layers - 1 && m->inputs; l++)
        if (recompute_whole(&s, l))
            s.away[l] = OFFLOAD_RESIDUAL;
    return s;
}

static bool fits(const mixture *m, int64_t budget)
{
    const recompute_schedule s = mixed(m);
    const int64_t bytes = m->bytes(m->user, &s);
    return bytes >= 0 && bytes <= budget;
}

/* The fewest blocks to move on so that the step fits; m->moved does. */
static void fewest(mixture *m, int64_t budget)
{
    int low = 0, high = m->moved; /* low does not fit, high does */
    while (high - low > 1) {
        m->moved = (low + high) / 2;
        *(fits(m, budget) ? &high : &low) = m->moved;
    }
    m->moved = high;
}

static recompute_plan plan_of(const recompute_schedule *s, const recompute_costs *costs, int64_t budget,
                              recompute_bytes bytes, void *user)
{
    recompute_plan p = {.schedule = *s, .bytes = bytes(user, s), .ms = recompute_cost_ms(costs, s)};
    p.fits = p.bytes >= 0 && p.bytes <= budget;
    return p;
}

/* Less of what saves little for its time, more of what saves much, until it fits; whatever `away` blocks do. */
static recompute_plan greedy(mixture m, const corner *hull, int n, int64_t budget)
{
    bool done = m.away ? fits(&m, budget) : n && hull[0].bytes <= budget;
    for (int i = 1; i < n && !done; i++) {
        m.less = m.more;
        m.more = hull[i].what;
        m.moved = m.layers;
        done = m.away || m.inputs ? fits(&m, budget) : hull[i].bytes <= budget;
        if (done)
            fewest(&m, budget);
    }
    const recompute_schedule s = mixed(&m);
    return plan_of(&s, m.costs, budget, m.bytes, m.user);
}

/* One that fits before one that does not; then the cheaper; of two that do not fit, the smaller. */
static bool better(const recompute_plan *a, const recompute_plan *b)
{
    if (a->fits != b->fits)
        return a->fits;
    return a->fits ? a->ms < b->ms : a->bytes >= 0 && (a->bytes < b->bytes || b->bytes < 0);
}

static void try(recompute_plan *best, recompute_plan p)
{
    if (better(&p, best))
        *best = p;
}

recompute_plan recompute_plan_for(int layers, const recompute_costs *costs, int64_t budget, recompute_bytes bytes,
                                  void *user)
{
    corner hull[RECOMPUTE_KINDS];
    const int n = hull_of(layers, costs, bytes, user, hull);
    const recompute first = n ? hull[0].what : RECOMPUTE_NONE;
    mixture m = {.layers = layers, .less = first, .more = first, .costs = costs, .bytes = bytes, .user = user};
    recompute_plan best = greedy(m, hull, n, budget);
    if (!best.fits) {
        const recompute_schedule s = recompute_uniform(layers, RECOMPUTE_NESTED, 1);
        try(&best, plan_of(&s, costs, budget, bytes, user));
    }
    const int most = costs->offload.kinds ? offload_most(layers) : -1, step = most / OFFLOAD_TRIES + 1;
    for (m.away = 0; m.away <= most; m.away += step)
        for (int inputs = 0; inputs < (costs->offload.kinds & OFFLOAD_RESIDUAL ? 2 : 1); inputs++) {
            m.inputs = inputs;
            try(&best, greedy(m, hull, n, budget));
        }
    return best;
}

int recompute_best_group(int layers, recompute_bytes bytes, void *user)
{
    int best = 0;
    int64_t least = INT64_MAX;
    for (int every = 1; every <= layers; every++) {
        const recompute_schedule s = recompute_uniform(layers, RECOMPUTE_BLOCK, every);
        const int64_t taken = bytes(user, &s);
        if (taken >= 0 && taken < least) {
            least = taken;
            best = every;
        }
    }
    return best;
}
