/* SPDX-License-Identifier: MIT */
/* Watching the ranks of a job: what each is doing, since when it makes no progress, and whether the job stands still. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/launch/coordinator_internal.h"

static void coordinator_look(coordinator *h, int rank)
{
    member *m = &h->ranks[rank];
    const double now = host_seconds();
    rank_status s = m->view.s;
    if (h->o.board)
        status_read(&h->o.board[rank], &s);
    if (s.beats != m->view.s.beats)
        m->beat_at = now;
    if (s.moves != m->view.s.moves || s.waiting != m->view.s.waiting)
        m->move_at = now;
    m->view.s = s;
}

void coordinator_take_status(member *m, const void *data, size_t bytes)
{
    rank_status s;
    if (bytes != sizeof s)
        return;
    memcpy(&s, data, sizeof s);
    s.phase[sizeof s.phase - 1] = s.last[sizeof s.last - 1] = 0;
    for (int i = 0; i < STATUS_COMMUNICATORS; i++)
        s.on[i].name[sizeof s.on[i].name - 1] = 0;
    const double now = host_seconds();
    m->beat_at = now;
    if (s.moves != m->view.s.moves || s.waiting != m->view.s.waiting)
        m->move_at = now;
    m->view.s = s;
}

void coordinator_check_stuck(coordinator *h, double now)
{
    char text[TEXT_BYTES];
    if (!h->welcomed || h->ending || !(h->o.timeout_s > 0))
        return;
    OWNED rank_view *views = xcalloc((unsigned long)h->o.ranks, sizeof *views);
    for (int r = 0; r < h->o.ranks; r++) {
        member *m = &h->ranks[r];
        coordinator_look(h, r);
        views[r] = m->view;
        views[r].left = m->left || m->gone;
        views[r].beat_age_s = now - m->beat_at;
        views[r].move_age_s = now - m->move_at;
    }
    if (coordinator_stuck(views, h->o.ranks, h->o.timeout_s, text, sizeof text))
        coordinator_end(h, EXIT_CODE_TIMEOUT, "%s", text);
}

/* The coordinator itself was stopped (Ctrl-Z, a suspended machine), and the ranks may have been with it: that counts for none. */
void coordinator_forgive_gap(coordinator *h, double now, double expected_s)
{
    const double gap = now - h->stepped - expected_s;
    h->stepped = now;
    if (gap < 1)
        return;
    h->since += gap;
    h->suspicion.until += gap;
    for (int i = 0; i < h->places; i++)
        h->strangers[i].since += gap;
    for (int r = 0; r < h->o.ranks; r++) {
        h->ranks[r].beat_at += gap;
        h->ranks[r].move_at += gap;
    }
}

const char *coordinator_doing(coordinator *h, int rank)
{
    static _Thread_local char text[320];
    coordinator_look(h, rank);
    status_describe(&h->ranks[rank].view.s, text, sizeof text);
    return text;
}
