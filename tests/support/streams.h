/* SPDX-License-Identifier: MIT */
/* Waiting for a stream as a program does: by an event. */
#pragma once

#include "common/device/device.h"

static inline void stream_sync(device *d, void *stream)
{
    device_event *e = device_event_create(d);
    device_stream_record(d, stream, e);
    device_event_sync(d, e);
    device_event_destroy(d, e);
}
