/* SPDX-License-Identifier: MIT */
/* Does the job stand still, and which rank is to blame? See coordinator.h. It does when one rank's process does not run, or when
 * none makes progress but those that wait for the others; a single rank that works for long holds up nobody but itself. Most
 * ranks of a job that stands still wait for one another: to blame is one that does not run, else the one that has
 * enqueued the fewest collectives, for the others are in the next one. */
#include "common/launch/coordinator.h"

#include <stdio.h>
#include <string.h>

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

static int to_blame(const rank_view *ranks, int n, double timeout_s)
{
    int quiet = -1, behind = -1;
    for (int r = 0; r < n; r++) {
        if (silent(&ranks[r], timeout_s) && (quiet < 0 || ranks[r].beat_age_s > ranks[quiet].beat_age_s))
            quiet = r;
        if (working(&ranks[r]) && (behind < 0 || ranks[r].s.enqueued < ranks[behind].s.enqueued))
            behind = r;
    }
    return quiet >= 0 ? quiet : behind;
}

/* Where the ranks are, to one another. */
static const char *manner(const rank_view *ranks, int n, int worst)
{
    bool same_number = true, same_text = true;
    for (int r = 0; r < n; r++) {
        same_number = same_number && ranks[r].s.enqueued == ranks[worst].s.enqueued;
        same_text = same_text && strcmp(ranks[r].s.last, ranks[worst].s.last) == 0;
    }
    if (n == 1 || !same_number)
        return "makes no progress";
    return same_text ? "makes no progress, nor do the others"
                     : "makes no progress: the ranks disagree about a collective";
}

bool coordinator_stuck(const rank_view *ranks, int n, double timeout_s, char *out, size_t out_bytes)
{
    if (!stands_still(ranks, n, timeout_s))
        return false;
    const int worst = to_blame(ranks, n, timeout_s);

    char doing[320];
    status_describe(&ranks[worst].s, doing, sizeof doing);
    const char *how =
        silent(&ranks[worst], timeout_s) ? "does not run (stopped, or its host hangs)" : manner(ranks, n, worst);
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
