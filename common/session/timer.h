/* SPDX-License-Identifier: MIT */
/* The one place that times. Device events around one call, or a CUDA graph of many calls replayed when one call is
 * short enough that host launches would be measured, or the host's monotonic clock on the CPU. */
#ifndef STEPBENCH_SESSION_TIMER_H
#define STEPBENCH_SESSION_TIMER_H

#include "common/core/stats.h"
#include "common/device/device.h"

typedef enum timer_kind { TIMER_AUTO, TIMER_EVENT, TIMER_GRAPH, TIMER_HOST } timer_kind;

typedef struct timing {
    timer_kind kind; /* AUTO: graph when a call takes under 50 us, else event; host on the CPU */
    int warmup, iters;
    double max_s;     /* stop early after so many seconds of samples (3 at least), or of warm-up; 0: no cap */
    bool cold_l2;     /* flush L2 before every sample (events or host; no graph) */
    double *progress; /* may be NULL */
} timing;

/* Times fn(arg), which enqueues work on device_stream(d) and returns false on failure (then this returns false).
 * Samples are milliseconds of one call. *used says which timer it was: "event", "graph", "host". */
bool timer_measure(device *d, const timing *t, bool (*fn)(void *arg), void *arg, samples *out_ms, const char **used);
timer_kind timer_kind_parse(const char *name);

#endif
