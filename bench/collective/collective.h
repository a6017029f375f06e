/* SPDX-License-Identifier: MIT */
/* A case of bench_allreduce: its op, its buffers, what is measured; its data, its clock, and what all ranks do about it. */
#pragma once

#include "common/comm/comm.h"
#include "common/comm/peer.h"
#include "common/core/stats.h"
#include "common/formulas/collective.h"
#include "common/session/session.h"

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

/* The data: whole numbers, exact in 8 bits of mantissa also when summed over all ranks. */
bool collective_allocate(collective *k, size_t *asked_bytes); /* false: no memory for so much */
void collective_fill(collective *k);                          /* this rank's input; NaN or nonsense elsewhere */
size_t collective_wrong(collective *k, int calls);            /* elements that are not right after `calls` calls */

/* The clock on one rank. */
void collective_enqueue(collective *k, int calls);
void collective_wait(collective *k);                    /* until all that is enqueued is done */
double collective_estimate(collective *k);              /* ms of a call that is waited for, after the warm-up */
double collective_burst(collective *k, int calls);      /* ms of each of calls back to back */
bool collective_capture(collective *k);                 /* the calls of a sample as a graph; false: can't be */
void collective_sample(collective *k, samples *out_ms); /* k->samples of them, each the mean of its calls */

/* Runs the case and fills the row; every rank of the job calls it, members or not. */
void collective_run(collective *k);
