/* SPDX-License-Identifier: MIT */
/* Why a device stood still. A gap ends with a span, and its parts add up to it: what the profiler itself cost; the host,
 * until it asked for the span; the launch, from there until the device could have begun; and the rest, which is the
 * device's own pause between two kernels where it is as short as those are, a graph that is launched behind another, a dependency where the span had been asked for
 * in time and waited for another stream, and else unknown. */
#pragma once

#include "common/profile/sweep.h"

typedef enum idle_class {
    IDLE_PROFILER,
    IDLE_HOST,
    IDLE_LAUNCH,
    IDLE_NODE,
    IDLE_GRAPH,
    IDLE_DEPENDENCY,
    IDLE_UNKNOWN
} idle_class;
enum { IDLE_CLASSES = IDLE_UNKNOWN + 1 };
const char *idle_class_name(idle_class c); /* "host" */

typedef struct idle_limits { /* of this device, calibrated */
    double launch_us;        /* from the return of a launch to the start of its kernel, where nothing runs */
    double node_us;          /* between two kernels of a graph that follow each other in a stream */
    double kernel_us;        /* the same for kernels that were launched one by one, in time */
} idle_limits;

typedef struct idle_part {
    idle_class class;
    double start_us, end_us;
    const char *host_in;        /* of IDLE_HOST: the call that held it up, else the innermost range; "": unknown */
    const char *after, *before; /* the spans around the gap; "": none */
} idle_part;

/* All parts of all gaps of the window, by start. Caller frees. */
idle_part *idle_parts(const recording *r, record_window w, idle_limits limits, size_t *n);
