/* SPDX-License-Identifier: MIT */
/* One device behind one table: CUDA or the CPU. Knows memory, streams, events and clocks, no numerics.
 * On the CPU the device's own stream is NULL, the calling thread; what is enqueued there has run when the call returns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum device_kind { DEVICE_CPU, DEVICE_CUDA } device_kind;

typedef struct device_info {
    char name[128]; /* "NVIDIA H200" or the CPU's model name */
    int count;      /* visible GPUs, or 1 */
    int compute_major, compute_minor, sm_count;
    size_t memory_bytes, l2_bytes;
    char uuid[64];
    int driver_version, runtime_version; /* 13000 = 13.0 */
} device_info;

typedef struct device device;
typedef struct device_event device_event;
typedef struct device_graph device_graph;

/* NULL when CUDA is usable here; else one sentence why not ("built without CUDA: ...", "no NVIDIA GPU: ..."). Cheap:
 * asks NVML, else the device nodes, before any CUDA context exists. */
const char *device_no_cuda_reason(void);
int device_visible_gpus(void); /* as cheaply: how many device_open would find; 0 none or unknown */

device *device_open(device_kind kind, int ordinal); /* dies with a clear message */
/* What device_open would find, without opening it; false when there is no such device. Dies as it does when
 * CUDA_VISIBLE_DEVICES leaves no GPU. */
bool device_look(device_kind kind, int ordinal, device_info *out);
/* NULL when code that was built for these architectures runs on this GPU; else a sentence why not and what to do. archs
 * is as CUDA_ARCH, "80,90a"; PTX has "+ptx" behind its architecture. */
const char *device_misfit(const device_info *gpu, const char *archs);
const char *device_archs(void); /* those of this build; empty without CUDA */
void device_close(device *d);
device_kind device_kind_of(const device *d);
int device_ordinal(const device *d); /* as given to device_open; a rank's is not the one of --gpu */
const device_info *device_get_info(const device *d);
void *device_stream(device *d); /* the one compute stream (cudaStream_t, non-blocking); NULL on the CPU */

/* Raw memory; NULL when there is none left (never dies for that). Tensors go through memory.h. To free or destroy NULL is fine,
 * here and below. */
void *device_malloc(device *d, size_t bytes);
void device_free(device *d, void *p);
void device_upload(device *d, void *dst, const void *host_src, size_t bytes);   /* synchronous */
void device_download(device *d, void *host_dst, const void *src, size_t bytes); /* synchronous */
/* Host memory that a GPU copies from and to by itself (pinned); NULL when there is none left. */
void *device_host_malloc(device *d, size_t bytes);
void device_host_free(device *d, void *p);
void device_memset(device *d, void *p, int byte, size_t bytes);        /* on the stream */
void device_copy(device *d, void *dst, const void *src, size_t bytes); /* as device_stream_copy, on the stream */
void device_l2_flush(device *d); /* on the stream: writes twice the L2; the first call makes the buffer, or dies */
void device_sync(device *d);     /* waits for the stream; dies on an asynchronous error, naming the phase */
size_t device_free_bytes(device *d);

device_event *device_event_create(device *d);
void device_event_destroy(device *d, device_event *e);
void device_event_record(device *d, device_event *e);
void device_event_wait(device *d, device_event *e); /* what d enqueues from here on waits for e, of any device */
void device_event_sync(device *d, device_event *e); /* the host waits for the latest record */
double device_event_ms(device *d, device_event *from, device_event *to); /* waits for `to` */

/* More streams, for work beside the compute stream; all calls on one stream run in order, an event joins streams. Of two
 * ready kernels the one of the more urgent stream goes first; the compute stream is STREAM_NORMAL. On the CPU a stream is
 * a thread with this name, of at most 15 bytes: what overlaps on a GPU overlaps there, too, and a missing event is a data
 * race that a tool can see. While a graph is captured, a stream joins the capture by waiting for an event of a stream
 * that is in it, and must be waited for before its end. */
typedef enum stream_priority { STREAM_BACKGROUND, STREAM_NORMAL, STREAM_URGENT } stream_priority;
void *device_stream_create(device *d, stream_priority p, const char *name);
void device_stream_destroy(device *d, void *stream); /* on the CPU after all that is enqueued has run */
/* Only on the CPU: enqueues fn on a copy of the `bytes` at arg. */
void device_stream_run(device *d, void *stream, void (*fn)(void *arg), const void *arg, size_t bytes);
void device_stream_record(device *d, void *stream, device_event *e);
/* What is enqueued there from here on waits for the latest record of e, as of this call; one never recorded is no wait. */
void device_stream_wait(device *d, void *stream, device_event *e);
/* What is enqueued on `to` from here on waits for all that `from` has by now. They may be one. */
void device_stream_follow(device *d, void *to, void *from);
/* Either end may also be of device_host_malloc. */
void device_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes);
/* Words of device memory by which streams of several processes wait for each other, 0 in the beginning. Raise: behind all that is
 * enqueued there, which whoever has lowered the word sees; the word may lie in another GPU's memory, as it is reached
 * here. Lower: waits until the word, in this device's own memory, is raised, and makes it 0 again. No kernel waits. */
void device_flag_raise(device *d, void *stream, uint32_t *flag);
void device_flag_lower(device *d, void *stream, uint32_t *flag);
/* Like device_event_record, but while a graph is captured the event becomes a node of it: after each launch it holds
 * the time at which the graph passed that point. It orders nothing. */
void device_event_mark(device *d, device_event *e);
void device_stream_mark(device *d, void *stream, device_event *e);

/* Peers: two GPUs opened by this process. Enable is true when they reach each other's memory directly; a copy works
 * without that too, through the host. */
bool device_peer_enable(device *a, device *b);
void device_peer_copy(device *to, void *dst, device *from, const void *src, size_t bytes); /* on from's stream */

/* Stream capture; begin returns false where graphs don't exist (CPU). */
bool device_has_graphs(const device *d);
bool device_graph_begin(device *d);
device_graph *device_graph_end(device *d); /* NULL when what was captured can't be a graph */
void device_graph_launch(device *d, device_graph *g);
void device_graph_destroy(device *d, device_graph *g);

/* Under what conditions a case ran: clocks, power and energy while it was timed, read by a thread (sampler.h). The clock
 * and the throttle reasons are also noted once by whoever calls device_state_note, with its last work queued. Of a
 * device without sensors, such as the CPU, everything is unknown. */
typedef struct device_window { /* one measurement: between sense_begin and sense_end */
    double sm_mhz, power_w;    /* medians; NAN: unknown, or shorter than the sensors tell (sampler.h) */
    double energy_w;           /* mean power by the energy counter; NAN: unknown, or shorter than the counter tells */
} device_window;
typedef struct device_conditions {    /* of a case: of all its windows that count, and of what was noted */
    double sm_mhz;                    /* sm_median_mhz; else noted, else the clock of now; NAN unknown */
    double sm_min_mhz, sm_median_mhz; /* NAN: nothing was read */
    double power_w;     /* mean by the energy counter; where a window was too short for it, median of readings */
    int readings;       /* that these are of */
    char throttle[128]; /* reasons as short words joined by '+', and above_cap; "" none */
} device_conditions;
void device_sense(device *d, double every_s); /* from here on, by a thread; 0: never */
double device_idle_w(device *d);              /* median power of the next 0.2 s, in which it waits; NAN unknown */
void device_sense_begin(device *d);
device_window device_sense_end(device *d, bool counts); /* whether it is part of the case's conditions */
/* Without a wait; see sampler_lately. */
void device_sense_lately(device *d, double *sm_mhz, double *power_w);
void device_state_note(device *d);
void device_state_hold(device *d); /* what runs from here on, such as the steady state, is no part of the case's */
device_conditions device_state(device *d); /* since the last call */
