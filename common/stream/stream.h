/* SPDX-License-Identifier: MIT */
/* Streams and events of data parallelism, alike on both devices: those of device/device.h on a GPU, worker threads
 * (cpu_stream.h) on a CPU, where the device's own stream is NULL: the calling thread. A strategy written against these
 * overlaps on both, with one event for each edge. */
#ifndef STEPBENCH_STREAM_STREAM_H
#define STEPBENCH_STREAM_STREAM_H

#include "common/device/device.h"

typedef struct dist_event dist_event;

/* A stream for comm/comm.h's ops, for device_stream_* on a GPU and for cpu_stream_* on a CPU. */
void *dist_stream_create(device *d, stream_priority p, const char *name);
void dist_stream_destroy(device *d, void *stream);

void dist_stream_copy(device *d, void *stream, void *to, const void *from, size_t bytes);

dist_event *dist_event_create(device *d);
void dist_event_destroy(device *d, dist_event *e);
void dist_event_record(device *d, dist_event *e, void *stream);
void dist_event_wait(device *d, dist_event *e, void *stream); /* what stream runs from here on waits for the record */
void dist_event_sync(device *d, dist_event *e);               /* the host waits for it */
double dist_event_ms(device *d, dist_event *from, dist_event *to); /* waits for `to` */

#endif
