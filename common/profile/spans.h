/* SPDX-License-Identifier: MIT */
/* A span is something that ran on a lane from one time to another. Lists of spans, and names that stay. */
#ifndef STEPBENCH_PROFILE_SPANS_H
#define STEPBENCH_PROFILE_SPANS_H

#include <stddef.h>

typedef enum timeline_lane {
    LANE_COMPUTE,       /* kernels, and memsets and copies within the GPU */
    LANE_COMMUNICATION, /* kernels of NCCL and our own between GPUs (kernels/cuda/collective), copies between GPUs */
    LANE_COPY,          /* copies between host and GPU */
    LANE_WAIT           /* CPU: the thread stood still. Only for timeline_span: no timeline has such spans */
} timeline_lane;
const char *timeline_lane_name(timeline_lane lane); /* "compute" */

typedef struct timed_span {
    double start_us, end_us; /* since the timeline's origin */
    int stream; /* CUPTI's id of the CUDA stream (in a graph the driver's choice), or a number of the CPU's thread */
    timeline_lane lane;
    const char *name; /* short: "gemm", "flash forward", "all_reduce"; lives as long as the process */
} timed_span;

typedef struct span_list { /* while recording, times are host_seconds() * 1e6 */
    timed_span *v;
    size_t n, room;
} span_list;
void span_list_add(span_list *l, timed_span s);
void span_list_sort(span_list *l); /* by start; of those that start together the longest first */

const char *timeline_name(const char *name); /* a copy that lives as long as the process, the same for equal names */

#endif
