/* SPDX-License-Identifier: MIT */
/* A recording: everything that ran on a device, who asked for it, and what the host did meanwhile, on one clock.
 *
 * A range is an interval of one host thread with a name (nvtx.h). A span is a kernel, copy or memset; it belongs to the
 * innermost range that enqueued it. What a CUDA graph runs belongs to the range that was open when it was captured, so
 * a recorder is armed before anything is captured. An op is a range with its work: what it computes and moves.
 *
 *   recorder_arm(d, ...)        ranges are kept from here on
 *   recorder_start(d, ...)      spans are recorded from here on
 *   recorder_step(0), work, recorder_step(1), work, recorder_step(-1)
 *   r = recorder_stop(d, ...)   waits for the device; recordings of one arming share its ranges
 *   recorder_disarm()
 *
 * Where only spans matter, recorder_start_spans alone will do. On the CPU an op is a span itself, on the thread that ran
 * it. One thread arms, starts and stops. Record after everything that is timed: CUPTI is loaded by the first recording
 * and stays, and launches that it watches are slower. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/device/device.h"
#include "common/record/host_clock.h"
#include "common/record/names.h"

typedef struct record_work {
    const char *op;      /* "matmul"; NULL: the range is no op. A literal */
    const char *dtype;   /* of its products: "bf16"; NULL: none */
    double flops, bytes; /* NAN: unknown */
    bool part;           /* of an op that people want to see apart, such as the softmax of an attention */
    bool elsewhere;      /* a collective: on the CPU another thread runs it, and says so itself */
} record_work;

typedef struct record_range {
    const char *name, *path; /* path: names from the outermost in, "forward/block forward/qkv"; ops left out */
    int parent;              /* -1: none */
    int thread, step;        /* step -1: in none */
    double start_us, end_us; /* NAN end: still open */
    record_work work;
    bool divided; /* ops lie inside it */
} record_range;

typedef enum record_kind { RECORD_KERNEL, RECORD_COPY, RECORD_SET } record_kind;

typedef struct record_span {
    double start_us, end_us;
    record_kind kind;
    record_lane lane;
    int stream;
    int range;          /* innermost, -1: not attributed */
    int step, call;     /* -1: none */
    const char *name;   /* short: "gemm" */
    const char *kernel; /* as the device has it */
    int grid[3], block[3];
    double bytes; /* of a copy or memset */
    uint32_t correlation;
    uint64_t node; /* of a graph; 0: none */
} record_span;

typedef struct record_call { /* of the host to the driver */
    double start_us, end_us;
    const char *name;
    uint32_t correlation, thread; /* of the system, by its own number */
    int range;                    /* -1: none */
} record_call;

typedef struct record_cost { /* of the recording itself */
    double start_us, end_us;
    const char *name;
} record_cost;

/* Times are host_seconds() * 1e6. */
typedef struct recording {
    record_span *spans; /* by start */
    record_call *calls; /* by start */
    record_cost *costs; /* by start */
    record_range *ranges;
    size_t span_count, call_count, cost_count, range_count;
    bool host_spans; /* of the CPU: calls are unknown, and a span starts when its thread gets there */
} recording;

/* False with a sentence: no CUPTI here, or another tool uses it. */
bool recorder_arm(device *d, char *why, size_t why_bytes);
void recorder_disarm(void);
bool recorder_start(device *d, char *why, size_t why_bytes);
/* Without arming. On a GPU nothing is recorded of the host, which is slowed less, and spans belong to no range. */
bool recorder_start_spans(device *d, char *why, size_t why_bytes);
/* NULL with a sentence when nothing ran or records were lost: a recording with holes proves nothing. Room is for some
 * 100,000 kernels. */
recording *recorder_stop(device *d, char *why, size_t why_bytes);
void recording_free(recording *r);
void recording_move(recording *r, const host_clock *c); /* to the clock of rank 0's host */

/* What this thread enqueues from here on belongs to step i; -1: to none. Only between ranges. */
void recorder_step(int i);
/* For nvtx.c and ops.c. Cost a load when nothing is armed. */
void recorder_push(const char *name, const record_work *work); /* work NULL: a range */
void recorder_pop(void);
/* What a thread of the CPU communicated, for the range that had asked for it. */
void recorder_communicated(const char *name, int range, double start_s, double end_s);
/* The range that this thread has open; -1: none. For graphs, whose nodes are made on the thread that captures. */
int recorder_open_range(void);

/* The innermost op that the range is or lies in; NULL: none. */
const record_work *record_op(const recording *r, int range);
/* The instance of that op, which may have run many kernels; -1: none. */
int record_op_range(const recording *r, int range);
