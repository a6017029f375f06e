/* SPDX-License-Identifier: MIT */
/* What ran when on which stream: the proof that communication is hidden behind compute. On a GPU every kernel, copy
 * and memset of this process is recorded by CUPTI's activity interface, CUDA graphs included, so no profiler and
 * none of its permissions are needed. On the CPU the ranges of nvtx.h are compute and the ops of comm/comm.h are
 * communication.
 *
 *   timeline_start(d, why, sizeof why)      one or two warm-up steps, from = host_seconds(), the step, wait for it
 *   t = timeline_stop(d, why, sizeof why)
 *   timeline_keep(t, from, INFINITY)        the last step alone
 *
 * Record after everything that is timed: CUPTI is loaded by the first recording and stays, and launches that it
 * watches are slower. GPUs stamp the times; CUPTI interpolates them to CLOCK_MONOTONIC, the clock of host_seconds(),
 * which all processes of a host share. So the timelines of its ranks line up by timeline_rebase with one time, as well
 * as CUPTI interpolates; within a GPU the order is the GPU's own. */
#ifndef STEPBENCH_PROFILE_TIMELINE_H
#define STEPBENCH_PROFILE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/device/device.h"
#include "common/profile/host_clock.h"
#include "common/profile/spans.h"

typedef struct stream_timeline {
    timed_span *spans; /* by start; of those that start together the longest first */
    size_t n;
    double origin_s; /* host_seconds() at time 0, which is the start of the first span until timeline_rebase */
} stream_timeline;

/* Starts recording; waits for the device first. False with a sentence if that is not possible: no CUPTI in this build
 * or on this machine, another profiler in this process, a recording that goes on. One thread calls start and stop. */
bool timeline_start(device *d, char *why, size_t why_bytes);
/* Ends the recording, waits for the device (on the CPU the caller has waited for its streams). NULL with a sentence
 * when nothing ran, or when CUPTI lost records: a timeline with holes proves nothing. Room is for some 100,000
 * kernels. */
stream_timeline *timeline_stop(device *d, char *why, size_t why_bytes);
void timeline_destroy(stream_timeline *t);

/* The CPU's spans: by whoever ran the work, on its thread, in host_seconds(). A thread does one thing at a time, so
 * what it communicated or waited inside a range is taken out of that range. Costs a load when nothing is recorded. */
void timeline_span(timeline_lane lane, const char *name, double start_s, double end_s);
/* For nvtx.c: a range that begins and ends inside a recording on the CPU becomes a span of compute. */
void timeline_range_push(const char *name);
void timeline_range_pop(void);

/* Cuts the timeline to what ran between the two times (host_seconds(); infinity: no limit) and moves time 0 to its
 * first span. */
void timeline_keep(stream_timeline *t, double from_s, double to_s);
/* Moves time 0. All ranks take the same time, such as rank 0's origin_s; those of other hosts than rank 0's move their
 * times to its clock first. */
void timeline_rebase(stream_timeline *t, double origin_s);

/* Moves the times of this host to the clock of rank 0's host, before timeline_rebase. */
void timeline_to_rank_0(stream_timeline *t, const host_clock *c);

/* By the union of the spans of a lane: what runs twice at a time counts once. */
typedef struct timeline_sums {
    double total_us; /* from the first start to the last end */
    double compute_us, communication_us, copy_us;
    double hidden_us;  /* communication while compute ran */
    double exposed_us; /* and while none ran: the two add to communication_us */
    double idle_us;    /* nothing ran */
} timeline_sums;
timeline_sums timeline_sum(const stream_timeline *t);

/* The files: each call adds one rank to the file, and makes it when it is absent, so the caller removes an earlier
 * recording first. Ranks that share the file system may call at the same time. False with errno.
 *
 * CSV: label,rank,lane,stream,name,start_us,end_us, after a comment with the sums. A fourth lane, "exposed", repeats
 * the parts of communication beside which no compute ran. Of more than 2000 rows the file keeps what a figure can show:
 * spans of one lane and stream that lie within some microseconds become one row, as long as they are together and named
 * after what took the most time, and gaps in compute shorter than that expose nothing. The comment says how many
 * microseconds; its sums are those of all spans. */
bool timeline_write_csv(const char *path, const char *label, int rank, const stream_timeline *t);
/* Chrome's trace format for chrome://tracing and ui.perfetto.dev, every span: a process per rank, a thread per stream and
 * lane. One file per recording. */
bool timeline_write_chrome(const char *path, const char *label, int rank, const stream_timeline *t);

#endif
