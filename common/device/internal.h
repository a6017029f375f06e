/* SPDX-License-Identifier: MIT */
/* What a kind of device fills in. Only this folder and session/machine.c include it. */
#pragma once

#include "common/device/clocks.h"
#include "common/device/device.h"
#include "common/device/sampler.h"

typedef struct device_ops {
    void (*close)(device *d);
    void *(*malloc)(device *d, size_t bytes);
    void (*free)(device *d, void *p);
    void (*upload)(device *d, void *dst, const void *host_src, size_t bytes);
    void (*download)(device *d, void *host_dst, const void *src, size_t bytes);
    void *(*host_malloc)(device *d, size_t bytes);
    void (*host_free)(device *d, void *p);
    void (*memset)(device *d, void *p, int byte, size_t bytes);
    void (*stream_copy)(device *d, void *stream, void *dst, const void *src, size_t bytes);
    void (*sync)(device *d);
    size_t (*free_bytes)(device *d);
    device_event *(*event_create)(device *d);
    void (*event_destroy)(device *d, device_event *e);
    void *(*stream_create)(device *d, stream_priority p, const char *name);
    void (*stream_destroy)(device *d, void *stream);
    void (*stream_record)(device *d, void *stream, device_event *e);
    void (*stream_wait)(device *d, void *stream, device_event *e);
    void (*event_mark)(device *d, void *stream, device_event *e);
    void (*flag_raise)(device *d, void *stream, uint32_t *flag);
    void (*flag_lower)(device *d, void *stream, uint32_t *flag);
    double (*event_ms)(device *d, device_event *from, device_event *to);
    bool (*graph_begin)(device *d); /* of these and peers the CPU has none: NULL */
    device_graph *(*graph_end)(device *d);
    void (*graph_launch)(device *d, device_graph *g);
    void (*graph_destroy)(device *d, device_graph *g);
    bool (*peer_enable)(device *a, device *b);
    void (*peer_copy)(device *to, void *dst, device *from, const void *src, size_t bytes);
} device_ops;

struct device { /* the first member of what device_<kind>.c allocates */
    device_kind kind;
    const device_ops *ops;
    int ordinal;
    device_info info;
    void *stream;
    device_event *follow; /* of device_stream_follow */
    void *flush;          /* device_l2_flush's buffer; NULL until it is wanted */
    size_t flush_bytes;
    void *pieces;     /* pinned, of pieces.c; NULL until they are wanted */
    clocks *clocks;   /* NULL: no sensors */
    sampler *sampler; /* NULL: nobody reads them */
    double noted_mhz; /* NAN: nothing noted */
    unsigned long long noted_throttle;
    bool held;                /* since device_state_hold */
    samples case_mhz, case_w; /* of the windows that count, since the last device_state */
    double case_energy_w;     /* their power by the energy counter, each weighed by its readings; NAN: one has none */
};

device *device_cpu_open(void);
#ifdef HAVE_CUDA
device *device_cuda_open(int ordinal);
bool device_cuda_look(int ordinal, device_info *out);
#endif
