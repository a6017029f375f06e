/* SPDX-License-Identifier: MIT */
/* A checker of traces in chrome's format, without a viewer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { TRACE_RANKS = 8 };
typedef struct trace_summary {
    int events, spans, ranges, calls, arrows, counters; /* of all ranks */
    int ranks;
    double span_us[TRACE_RANKS]; /* sum over what ran on the device: kernels, copies, memsets */
    double first_us, last_us;    /* of spans */
} trace_summary;

/* True when the text is JSON, every event has the fields of its kind and none is negative, the X events of a thread nest
 * or lie apart, every arrow has both ends in order, every thread with X events is named. Else false with a sentence. */
bool trace_check(const char *text, trace_summary *out, char *why, size_t why_bytes);
