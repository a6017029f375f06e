/* SPDX-License-Identifier: MIT */
/* Stands in for gloo.cc in a build without Gloo, where comm_create opens no group that has a link. */
#include "common/comm/internal.h"

#include <stdio.h>

void gloo_link_idle(launch *l)
{
    (void)l;
}

gloo_link *gloo_link_open(launch *l, int group, int rank, int size, char *why, size_t why_bytes)
{
    (void)l, (void)group, (void)rank, (void)size;
    snprintf(why, why_bytes, "built without Gloo");
    return NULL;
}

void gloo_link_close(gloo_link *g)
{
    (void)g;
}

bool gloo_link_run(gloo_link *g, const comm_call *call, char *why, size_t why_bytes)
{
    (void)g, (void)call, (void)why, (void)why_bytes;
    return false;
}

bool gloo_link_exchange(gloo_link *g, const comm_call *calls, int n, char *why, size_t why_bytes)
{
    (void)g, (void)calls, (void)n, (void)why, (void)why_bytes;
    return false;
}
