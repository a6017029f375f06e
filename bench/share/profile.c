/* SPDX-License-Identifier: MIT */
/* The profile of a case: its steps, and its twin's, the same walk with nothing sent. */
#include "bench/share/share.h"

#include "common/core/error.h"
#include "common/session/profile.h"

static bool step(void *arg)
{
    team_step(arg);
    return true;
}

static void settle(void *arg)
{
    team_settle(arg);
}

void share_profile(share_case *k, team *x)
{
    replica_problem problem;
    profile_result own, twin;
    profile_how how = {
        .dev = x->at.d, .together = true, .member = x->member, .silent = true, .settle = x->member ? settle : NULL};
    phase_set("first step of %s", case_name(k->c));
    team_step(x); /* loads kernels and connects ranks */
    team_settle(x);
    if (k->graph && !team_capture(x, &problem)) {
        share_problem(k, &problem);
        return;
    }
    team_communicate(x, false);
    session_profile(k->s, "compute-only steps", &how, step, x, &twin);
    team_communicate(x, true);
    how.silent = false;
    how.twin = &twin;
    session_profile(k->s, "steps", &how, step, x, &own);
}
