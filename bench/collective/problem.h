/* SPDX-License-Identifier: MIT */
/* One case of bench_allreduce on one rank: its op, its buffers, what is measured. */
#pragma once

#include "common/formulas/collective.h"
#include "common/session/session.h"
#include "common/comm/comm.h"
#include "common/comm/peer.h"

enum { COLLECTIVE_PERIOD = 4099 }; /* elements after which inputs repeat: a prime, so that no slice starts alike */

typedef struct collective {
    session *s;
    launch *l;
    comm *c;
    const bench_case *k;
    row *w;
    collective_op op;
    peers *p; /* NULL: the communicator's own op */
    sb_direct_algorithm algorithm;
    comm_dtype t;
    bool in_place, graph, member;
    bool lead_in;               /* an unmeasured replay before each that is measured */
    size_t count;               /* as in comm/comm.h */
    size_t send_n, recv_n;      /* elements */
    double bytes;               /* of the op: what bandwidth counts */
    void *send, *recv;          /* in place: both in one buffer */
    void *source;               /* of an all-reduce in place, which destroys its input; else NULL */
    device_graph *replay;       /* NULL: eager */
    int calls, samples, warmup; /* of a sample; in all; before */
} collective;
