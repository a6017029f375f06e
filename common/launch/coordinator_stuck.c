/* SPDX-License-Identifier: MIT */
/* Does the job stand still, and which rank is to blame? See coordinator.h. It does when one rank's process does not run, or when
 * none makes progress but those that wait for the others; a single rank that works for long holds up nobody but itself. Most
 * ranks of a job that stands still wait for one another: to blame is one that does not run, else one that has enqueued
 * less on a communicator than another member, who waits for it there, and that waits for nobody itself. */
#include "common/launch/coordinator.h"

#include <stdio.h>

static bool silent(const rank_view *r, double timeout_s)
{
    return !r->left && r->beat_age_s > (timeout_s < 2 ? timeout_s / 2 : 1);
}

static bool working(const rank_view *r)
{
    return !r->left && !r->s.waiting;
}

static bool stands_still(const rank_view *ranks, int n, double timeout_s)
{
    bool any_works = false, any_moves = false;
    for (int r = 0; r < n; r++) {
        if (!ranks[r].left && ranks[r].beat_age_s > timeout_s)
            return true;
        any_works = any_works || working(&ranks[r]);
        any_moves = any_moves || (working(&ranks[r]) && ranks[r].move_age_s <= timeout_s);
    }
    return any_works && !any_moves;
}

/* ---- who waits for whom ---- */

/* Rank `of`'s side of the communicator, or NULL. */
static const communicator_status *side_of(const rank_view *of, uint32_t tag)
{
    for (int i = 0; i < STATUS_COMMUNICATORS; i++)
        if (of->s.on[i].tag == tag)
            return &of->s.on[i];
    return NULL;
}

/* Whether its ops on the communicator need some that the other has not enqueued. */
static bool behind(const communicator_status *other, const communicator_status *own)
{
    const bool pairs = own->size <= STATUS_PLACES && own->place != other->place;
    return (int32_t)(own->met - other->met) > 0 ||
           (pairs && (int16_t)(own->with[other->place % STATUS_PLACES] - other->with[own->place % STATUS_PLACES]) > 0);
}

/* The communicator on which rank r waits for rank q to enqueue something; NULL: on none. */
static const communicator_status *waits(const rank_view *r, const rank_view *q)
{
    for (int i = 0; i < STATUS_COMMUNICATORS && !r->left; i++) {
        const communicator_status *other = r->s.on[i].tag ? side_of(q, r->s.on[i].tag) : NULL;
        if (other && behind(other, &r->s.on[i]))
            return &r->s.on[i];
    }
    return NULL;
}

static int first_waiting_for(const rank_view *ranks, int n, int q)
{
    for (int r = 0; r < n; r++)
        if (r != q && waits(&ranks[r], &ranks[q]))
            return r;
    return -1;
}

static bool waits_for_any(const rank_view *ranks, int n, int r)
{
    for (int q = 0; q < n; q++)
        if (q != r && waits(&ranks[r], &ranks[q]))
            return true;
    return false;
}

static bool under_way(const rank_view *r)
{
    for (int i = 0; i < STATUS_COMMUNICATORS; i++)
        if (r->s.on[i].enqueued != r->s.on[i].done)
            return true;
    return false;
}

/* ---- blame ---- */

/* A rank that others wait for is the worse the less it waits itself, and the longer it has not moved. */
typedef struct guilt {
    int rank; /* -1: nobody */
    bool innocent, busy;
    double age_s;
} guilt;

static bool worse(guilt a, guilt b)
{
    if (b.rank < 0 || a.innocent != b.innocent)
        return b.rank < 0 || !a.innocent;
    return a.busy != b.busy ? !a.busy : a.age_s > b.age_s;
}

static int to_blame(const rank_view *ranks, int n, double timeout_s)
{
    int quiet = -1, last = -1;
    guilt worst = {.rank = -1};
    for (int r = 0; r < n; r++) {
        if (silent(&ranks[r], timeout_s) && (quiet < 0 || ranks[r].beat_age_s > ranks[quiet].beat_age_s))
            quiet = r;
        if (!working(&ranks[r]))
            continue;
        if (last < 0 || ranks[r].s.enqueued < ranks[last].s.enqueued)
            last = r;
        if (first_waiting_for(ranks, n, r) >= 0) {
            const guilt g = {r, waits_for_any(ranks, n, r), under_way(&ranks[r]), ranks[r].move_age_s};
            worst = worse(g, worst) ? g : worst;
        }
    }
    return quiet >= 0 ? quiet : worst.rank >= 0 ? worst.rank : last;
}

/* Whether two members have entered different collectives at the same place of their order. */
static bool disagree(const rank_view *ranks, int n)
{
    for (int r = 0; r < n; r++)
        for (int i = 0; i < STATUS_COMMUNICATORS; i++)
            for (int q = 0; q < r && ranks[r].s.on[i].tag; q++) {
                const communicator_status *a = &ranks[r].s.on[i], *b = side_of(&ranks[q], a->tag);
                if (b && a->met == b->met && a->what != b->what)
                    return true;
            }
    return false;
}

/* What the rank does, as the others see it. */
static void manner(const rank_view *ranks, int n, int worst, double timeout_s, char *out, size_t out_bytes)
{
    const int waiting = first_waiting_for(ranks, n, worst);
    if (silent(&ranks[worst], timeout_s))
        snprintf(out, out_bytes, "does not run (stopped, or its host hangs)");
    else if (waiting >= 0)
        snprintf(out, out_bytes, "makes no progress, and rank %d waits for it on %s", waiting,
                 waits(&ranks[waiting], &ranks[worst])->name);
    else
        snprintf(out, out_bytes, "makes no progress%s",
                 n == 1               ? ""
                 : disagree(ranks, n) ? ": the ranks disagree about a collective"
                                      : ", nor do the others");
}

bool coordinator_stuck(const rank_view *ranks, int n, double timeout_s, char *out, size_t out_bytes)
{
    if (!stands_still(ranks, n, timeout_s))
        return false;
    const int worst = to_blame(ranks, n, timeout_s);

    char doing[320];
    status_describe(&ranks[worst].s, doing, sizeof doing);
    char how[120];
    manner(ranks, n, worst, timeout_s, how, sizeof how);
    int used = snprintf(out, out_bytes, "no progress for --timeout %g s: rank %d of %d %s, %s", timeout_s, worst, n,
                        how, doing);
    for (int r = 0; r < n && used > 0 && (size_t)used < out_bytes; r++) {
        if (r == worst)
            continue;
        status_describe(&ranks[r].s, doing, sizeof doing);
        used += snprintf(out + used, out_bytes - (size_t)used, "\n  rank %d %s, %s", r,
                         ranks[r].left        ? "has left"
                         : ranks[r].s.waiting ? "waits for the others"
                                              : "is not done",
                         doing);
    }
    return true;
}
