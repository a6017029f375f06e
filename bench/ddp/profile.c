/* SPDX-License-Identifier: MIT */
/* The profile of a case of data parallelism: its steps, and its twin's, the same steps without communication, so that
 * what a step loses is explained: communication without compute, slower compute, idleness. */
#include "bench/ddp/time.h"

#include "common/core/error.h"
#include "common/session/profile.h"

static bool step(void *arg)
{
    replica_step(arg);
    return true;
}

static void settle(void *arg)
{
    replica_settle(arg);
}

void ddp_profile(ddp_case *k, replica *r)
{
    profile_result own, twin;
    profile_how how = {
        .dev = r->at.d, .together = true, .member = r->member, .silent = true, .settle = r->member ? settle : NULL};
    phase_set("first step of %s", case_name(k->c));
    replica_step(r); /* loads kernels and connects ranks */
    replica_settle(r);
    if (k->graph && !ddp_capture(k, r))
        return;
    replica_communicate(r, false);
    session_profile(k->s, "compute-only steps", &how, step, r, &twin);
    replica_communicate(r, true);
    how.silent = false;
    how.twin = &twin;
    session_profile(k->s, "steps", &how, step, r, &own);
}
