/* SPDX-License-Identifier: MIT */
/* What the files of timeline.h share; nothing else includes it. */
#ifndef STEPBENCH_PROFILE_INTERNAL_H
#define STEPBENCH_PROFILE_INTERNAL_H

#include "common/profile/timeline.h"

typedef struct span_list { /* while recording, times are host_seconds() * 1e6 */
    timed_span *v;
    size_t n, room;
} span_list;
void span_list_add(span_list *l, timed_span s);
void span_list_sort(span_list *l); /* as in stream_timeline */

const char *timeline_name(const char *name); /* a copy that lives as long as the process, the same for equal names */

/* The lane and the short name of a kernel, by its name as CUPTI has it: mangled C++, C, or readable C++. */
timeline_lane timeline_classify(const char *kernel, const char **name);

/* Sorted, apart from one another, none empty. */
typedef struct interval {
    double start, end;
} interval;
typedef struct intervals {
    interval *v;
    size_t n;
} intervals;
enum { ANY_STREAM = -1 };
/* The union of the spans of some lanes (bits 1 << lane) and of one stream; gaps of at most close_us are closed. */
intervals intervals_of(const timed_span *s, size_t n, unsigned lanes, int stream, double close_us);
intervals intervals_minus(const intervals *a, const intervals *b);
double intervals_length(const intervals *a);

/* Adds text to a file that other processes may be adding to. A new file becomes head, text, tail; in one that is there
 * and ends in tail, joint and text go before the tail. False with errno; EINVAL: the file is something else. */
bool timeline_append(const char *path, const char *head, const char *joint, const char *text, const char *tail);

/* The GPU's recording. The list is in no order. */
bool timeline_cupti_start(char *why, size_t why_bytes);
bool timeline_cupti_stop(span_list *out, char *why, size_t why_bytes);

#endif
