/* SPDX-License-Identifier: MIT */
/* Setting up and putting away; see roofline.h. */
#include "bench/roofline/roofline.h"

#include "common/core/error.h"
#include "common/session/profile.h"

void roofline_start(roofline *r, session *s)
{
    r->s = s;
    r->kernels = session_kernels(s);
    if (r->kernels->create(device_ordinal(s->dev), &r->ctx) != SB_OK)
        die(EXIT_CODE_FAILURE, "cannot set up the %s kernels: %s", r->kernels->name, sb_last_message());
}

void roofline_finish(roofline *r)
{
    roofline_peers_close(r);
    r->kernels->destroy(r->ctx);
}
