/* SPDX-License-Identifier: MIT */
/* Setting up and putting away; see roofline.h. */
#include "bench/roofline/roofline.h"

#include "common/session/profile.h"

void roofline_start(roofline *r, session *s)
{
    r->s = s;
    r->kernels = session_kernels(s, &r->ctx);
}

void roofline_finish(roofline *r)
{
    roofline_peers_close(r);
    r->kernels->destroy(r->ctx);
}
