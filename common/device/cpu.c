/* SPDX-License-Identifier: MIT */
/* The CPU as a device: host memory, and threads for streams (cpu_stream.h); its own stream is the calling thread. */
#include "common/device/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/device/cpu_stream.h"
#include "common/device/host.h"

static void close_cpu(device *d)
{
    free(d);
}

static size_t free_bytes(device *d)
{
    (void)d;
    size_t available = host_available_bytes();
    return available - available / 16; /* the rest is for the program itself and its neighbours */
}

/* Pages are touched here: an overcommitting kernel would otherwise grant anything and kill the process in the middle
 * of a case, and the first timed call would pay for the page faults. */
static void *malloc_cpu(device *d, size_t bytes)
{
    enum { ALIGNMENT = 256 };
    if (bytes > free_bytes(d))
        return NULL;
    void *p = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (p)
        memset(p, 0, bytes);
    return p;
}

static void free_cpu(device *d, void *p)
{
    (void)d;
    free(p);
}

static void copy_cpu(device *d, void *dst, const void *src, size_t bytes)
{
    (void)d;
    memcpy(dst, src, bytes);
}

static void memset_cpu(device *d, void *p, int byte, size_t bytes)
{
    (void)d;
    memset(p, byte, bytes);
}

static void sync_cpu(device *d)
{
    (void)d;
}

device *device_cpu_open(void)
{
    static const device_ops ops = {
        .close = close_cpu,
        .malloc = malloc_cpu,
        .free = free_cpu,
        .upload = copy_cpu,
        .download = copy_cpu,
        .host_malloc = malloc_cpu,
        .host_free = free_cpu,
        .memset = memset_cpu,
        .stream_copy = cpu_stream_copy,
        .sync = sync_cpu,
        .free_bytes = free_bytes,
        .event_create = cpu_event_create,
        .event_destroy = cpu_event_destroy,
        .stream_create = cpu_stream_create,
        .stream_destroy = cpu_stream_destroy,
        .stream_record = cpu_stream_record,
        .stream_wait = cpu_stream_wait,
        .event_mark = cpu_stream_record,
        .flag_raise = cpu_flag_raise,
        .flag_lower = cpu_flag_lower,
        .event_ms = cpu_event_ms,
    };
    device *d = xcalloc(1, sizeof *d);
    d->kind = DEVICE_CPU;
    d->ops = &ops;
    d->info.count = 1;
    d->info.sm_count = host_cores();
    d->info.memory_bytes = host_memory_bytes();
    long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE), middle = sysconf(_SC_LEVEL2_CACHE_SIZE);
    d->info.l2_bytes = last_level > 0 ? (size_t)last_level : middle > 0 ? (size_t)middle : 0;
    host_cpu_model(d->info.name, sizeof d->info.name);
    return d;
}
