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
    return ms;
}

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

typedef struct mixture {
    int layers;
    recompute less, more; /* what blocks that are not, and that are, moved on do */
    recompute_bytes bytes;
    void *user;
} mixture;

/* The first `moved` blocks are moved on: backward comes to them last, when others have given up their memory. */
static recompute_schedule mixed(const mixture *m, int moved)
{
    recompute_schedule s = recompute_uniform(m->layers, m->less, 1);
    if (moved)
        recompute_set(&s, 0, moved, m->more, 1);
    return s;
}

/* The fewest blocks to move on so that the step fits; all of them do. */
static int fewest(const mixture *m, int64_t budget)
{
    int low = 0, high = m->layers; /* low does not fit, high does */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        const recompute_schedule s = mixed(m, middle);
        *(m->bytes(m->user, &s) <= budget ? &high : &low) = middle;
    }
    return high;
}

static recompute_plan plan_of(const recompute_schedule *s, const recompute_costs *costs, int64_t budget,
                              recompute_bytes bytes, void *user)
{
    recompute_plan p = {.schedule = *s, .bytes = bytes(user, s), .ms = recompute_cost_ms(costs, s)};
    p.fits = p.bytes >= 0 && p.bytes <= budget;
    return p;
}

recompute_plan recompute_plan_for(int layers, const recompute_costs *costs, int64_t budget, recompute_bytes bytes,
                                  void *user)
{
    corner hull[RECOMPUTE_KINDS];
    const int n = hull_of(layers, costs, bytes, user, hull);
    recompute_schedule s = recompute_uniform(layers, n ? hull[0].what : RECOMPUTE_NONE, 1);
    recompute_plan best = plan_of(&s, costs, budget, bytes, user);
    for (int i = 1; i < n && !best.fits; i++) {
        const mixture m = {layers, hull[i - 1].what, hull[i].what, bytes, user};
        s = mixed(&m, hull[i].bytes <= budget ? fewest(&m, budget) : layers);
        best = plan_of(&s, costs, budget, bytes, user);
    }
    if (best.fits)
        return best;
    s = recompute_uniform(layers, RECOMPUTE_NESTED, 1);
    const recompute_plan nested = plan_of(&s, costs, budget, bytes, user);
    return nested.bytes >= 0 && (nested.bytes < best.bytes || best.bytes < 0) ? nested : best;
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
