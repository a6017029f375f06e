/* SPDX-License-Identifier: MIT */
/* The CPU's part of the stream interface of device.h. A stream runs what is enqueued on it, in order, on a thread of its
 * own. A NULL stream is the calling thread: its work runs at once, a record is passed at once, a wait blocks the caller. */
#pragma once

#include "common/device/device.h"

void *cpu_stream_create(device *d, stream_priority p, const char *name);
void cpu_stream_destroy(device *d, void *stream);
void cpu_stream_run(device *d, void *stream, void (*fn)(void *arg), const void *arg, size_t bytes);
void cpu_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes);
void cpu_stream_record(device *d, void *stream, device_event *e);
void cpu_stream_wait(device *d, void *stream, device_event *e);

device_event *cpu_event_create(device *d);
void cpu_event_destroy(device *d, device_event *e);
double cpu_event_ms(device *d, device_event *from, device_event *to);
void cpu_flag_raise(device *d, void *stream, uint32_t *flag);
void cpu_flag_lower(device *d, void *stream, uint32_t *flag);
