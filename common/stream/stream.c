/* SPDX-License-Identifier: MIT */
/* Either kind of stream behind one name; see stream.h. */
#include "common/stream/stream.h"

#include <string.h>

#include "common/stream/cpu_stream.h"

static bool on_cpu(const device *d)
{
    return device_kind_of(d) == DEVICE_CPU;
}

static cpu_event *of_cpu(dist_event *e)
{
    return (cpu_event *)e;
}
static device_event *of_device(dist_event *e)
{
    return (device_event *)e;
}

void *dist_stream_create(device *d, stream_priority p, const char *name)
{
    return on_cpu(d) ? (void *)cpu_stream_create(name) : device_stream_create(d, p);
}

void dist_stream_destroy(device *d, void *stream)
{
    if (on_cpu(d))
        cpu_stream_destroy(stream);
    else
        device_stream_destroy(d, stream);
}

typedef struct copy_task {
    void *to;
    const void *from;
    size_t bytes;
} copy_task;

static void copy(void *arg)
{
    const copy_task *t = arg;
    memcpy(t->to, t->from, t->bytes);
}

void dist_stream_copy(device *d, void *stream, void *to, const void *from, size_t bytes)
{
    if (on_cpu(d))
        cpu_stream_run(stream, copy, &(copy_task){to, from, bytes}, sizeof(copy_task));
    else
        device_stream_copy(d, stream, to, from, bytes);
}

dist_event *dist_event_create(device *d)
{
    return on_cpu(d) ? (dist_event *)cpu_event_create() : (dist_event *)device_event_create(d);
}

void dist_event_destroy(device *d, dist_event *e)
{
    if (on_cpu(d))
        cpu_event_destroy(of_cpu(e));
    else
        device_event_destroy(d, of_device(e));
}

void dist_event_record(device *d, dist_event *e, void *stream)
{
    if (on_cpu(d))
        cpu_stream_record(stream, of_cpu(e));
    else
        device_stream_record(d, stream, of_device(e));
}

void dist_event_wait(device *d, dist_event *e, void *stream)
{
    if (on_cpu(d))
        cpu_stream_wait(stream, of_cpu(e));
    else
        device_stream_wait(d, stream, of_device(e));
}

void dist_event_sync(device *d, dist_event *e)
{
    if (on_cpu(d))
        cpu_event_sync(of_cpu(e));
    else
        device_event_ms(d, of_device(e), of_device(e)); /* waits for it */
}

double dist_event_ms(device *d, dist_event *from, dist_event *to)
{
    return on_cpu(d) ? cpu_event_ms(of_cpu(from), of_cpu(to)) : device_event_ms(d, of_device(from), of_device(to));
}
