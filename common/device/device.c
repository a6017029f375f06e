/* SPDX-License-Identifier: MIT */
/* The front of the device table: whether there is a GPU, opening one, and calls through the table. */
#include "common/device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/device/cpu_stream.h"
#include "common/device/internal.h"
#include "common/device/visible.h"

#ifdef HAVE_CUDA
const char *device_no_cuda_reason(void)
{
    static char text[256];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *why = "";
    int count = clocks_gpu_count(&why);
    if (clocks_gpus_here() == 0) {
        snprintf(text, sizeof text, "no NVIDIA GPU: %s%s%s",
                 count == 0 ? "the driver reports none" : "there is no NVIDIA driver or device node",
                 *why ? "; NVML says: " : "", why);
        return text;
    }
    if (visible && (!*visible || strncmp(visible, "-1", 2) == 0))
        return "no NVIDIA GPU: CUDA_VISIBLE_DEVICES hides every GPU";
    return NULL;
}
#else
const char *device_no_cuda_reason(void)
{
    return "built without CUDA: " NO_CUDA;
}
#endif

int device_visible_gpus(void)
{
    const int count = device_no_cuda_reason() ? 0 : clocks_gpu_count(NULL);
    return count < 0 ? 0 : visible_count(getenv("CUDA_VISIBLE_DEVICES"), count);
}

device *device_open(device_kind kind, int ordinal)
{
    device *d = NULL;
    phase_set("opening the device");
    if (kind == DEVICE_CPU)
        d = device_cpu_open();
#ifdef HAVE_CUDA
    else
        d = device_cuda_open(ordinal);
#else
    (void)ordinal;
#endif
    if (!d)
        die(EXIT_CODE_FAILURE, "%s", device_no_cuda_reason());
    d->noted_mhz = NAN;
    d->follow = device_event_create(d);
    d->ordinal = kind == DEVICE_CPU ? 0 : ordinal;
    return d;
}

bool device_look(device_kind kind, int ordinal, device_info *out)
{
    if (kind == DEVICE_CPU) {
        device *d = device_cpu_open();
        *out = d->info;
        device_close(d);
        return true;
    }
#ifdef HAVE_CUDA
    return device_cuda_look(ordinal, out);
#else
    (void)ordinal;
    return false;
#endif
}

int device_ordinal(const device *d)
{
    return d->ordinal;
}

void device_close(device *d)
{
    device_event_destroy(d, d->follow);
    device_free(d, d->flush);
    device_host_free(d, d->pieces);
    sampler_stop(d->sampler);
    samples_free(&d->case_mhz);
    samples_free(&d->case_w);
    clocks_close(d->clocks);
    d->ops->close(d);
}

device_kind device_kind_of(const device *d)
{
    return d->kind;
}
const device_info *device_get_info(const device *d)
{
    return &d->info;
}
void *device_stream(device *d)
{
    return d->stream;
}

void *device_malloc(device *d, size_t bytes)
{
    return d->ops->malloc(d, bytes);
}
void device_free(device *d, void *p)
{
    d->ops->free(d, p);
}
void device_upload(device *d, void *dst, const void *src, size_t bytes)
{
    d->ops->upload(d, dst, src, bytes);
}
void device_download(device *d, void *dst, const void *src, size_t bytes)
{
    d->ops->download(d, dst, src, bytes);
}
void device_memset(device *d, void *p, int byte, size_t bytes)
{
    d->ops->memset(d, p, byte, bytes);
}
void *device_host_malloc(device *d, size_t bytes)
{
    return d->ops->host_malloc(d, bytes);
}
void device_host_free(device *d, void *p)
{
    if (p)
        d->ops->host_free(d, p);
}
void device_copy(device *d, void *dst, const void *src, size_t bytes)
{
    d->ops->stream_copy(d, d->stream, dst, src, bytes);
}

void device_stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes)
{
    d->ops->stream_copy(d, stream, dst, src, bytes);
}
void device_l2_flush(device *d)
{
    if (!d->flush) {
        d->flush_bytes = d->info.l2_bytes ? 2 * d->info.l2_bytes : (size_t)64 << 20;
        d->flush = device_malloc(d, d->flush_bytes);
        if (!d->flush)
            die(EXIT_CODE_FAILURE, "no memory for the %zu bytes that flush the L2 cache", d->flush_bytes);
    }
    device_memset(d, d->flush, 0, d->flush_bytes);
}

void device_sync(device *d)
{
    d->ops->sync(d);
}
size_t device_free_bytes(device *d)
{
    return d->ops->free_bytes(d);
}

device_event *device_event_create(device *d)
{
    return d->ops->event_create(d);
}
void device_event_destroy(device *d, device_event *e)
{
    if (e)
        d->ops->event_destroy(d, e);
}
void device_event_record(device *d, device_event *e)
{
    d->ops->stream_record(d, d->stream, e);
}
void device_event_wait(device *d, device_event *e)
{
    d->ops->stream_wait(d, d->stream, e);
}
void *device_stream_create(device *d, stream_priority p, const char *name)
{
    return d->ops->stream_create(d, p, name);
}
void device_stream_destroy(device *d, void *stream)
{
    if (stream)
        d->ops->stream_destroy(d, stream);
}
void device_stream_run(device *d, void *stream, void (*fn)(void *arg), const void *arg, size_t bytes)
{
    cpu_stream_run(d, stream, fn, arg, bytes);
}
void device_stream_record(device *d, void *stream, device_event *e)
{
    d->ops->stream_record(d, stream, e);
}
void device_stream_wait(device *d, void *stream, device_event *e)
{
    d->ops->stream_wait(d, stream, e);
}
void device_stream_follow(device *d, void *to, void *from)
{
    if (to == from)
        return;
    device_stream_record(d, from, d->follow);
    device_stream_wait(d, to, d->follow);
}
void device_event_mark(device *d, device_event *e)
{
    d->ops->event_mark(d, d->stream, e);
}
void device_stream_mark(device *d, void *stream, device_event *e)
{
    d->ops->event_mark(d, stream, e);
}
void device_flag_raise(device *d, void *stream, uint32_t *flag)
{
    d->ops->flag_raise(d, stream, flag);
}
void device_flag_lower(device *d, void *stream, uint32_t *flag)
{
    d->ops->flag_lower(d, stream, flag);
}
void device_event_sync(device *d, device_event *e)
{
    d->ops->event_ms(d, e, e);
}
double device_event_ms(device *d, device_event *from, device_event *to)
{
    return d->ops->event_ms(d, from, to);
}

bool device_has_graphs(const device *d)
{
    return d->ops->graph_begin;
}

bool device_graph_begin(device *d)
{
    return d->ops->graph_begin && d->ops->graph_begin(d);
}
device_graph *device_graph_end(device *d)
{
    return d->ops->graph_end(d);
}
void device_graph_launch(device *d, device_graph *g)
{
    d->ops->graph_launch(d, g);
}
void device_graph_destroy(device *d, device_graph *g)
{
    if (g)
        d->ops->graph_destroy(d, g);
}

bool device_peer_enable(device *a, device *b)
{
    return a->ops->peer_enable(a, b);
}
void device_peer_copy(device *to, void *dst, device *from, const void *src, size_t bytes)
{
    from->ops->peer_copy(to, dst, from, src, bytes);
}

/* ---- conditions ---- */

void device_sense(device *d, double every_s)
{
    sampler_stop(d->sampler);
    d->sampler = sampler_start(d->clocks, every_s);
}

void device_sense_begin(device *d)
{
    sampler_begin(d->sampler);
}

static void add_all(samples *to, const samples *from)
{
    for (size_t i = 0; i < from->n; i++)
        samples_add(to, from->x[i]);
}

device_window device_sense_end(device *d, bool counts)
{
    sampled seen = sampler_end(d->sampler);
    const device_window w = {stats_of(&seen.sm_mhz).median, stats_of(&seen.power_w).median, seen.energy_w};
    if (counts && !d->held && seen.sm_mhz.n > 0) {
        const double before = (double)d->case_mhz.n, now = (double)seen.sm_mhz.n;
        d->case_energy_w = ((before > 0 ? before * d->case_energy_w : 0) + now * seen.energy_w) / (before + now);
    }
    if (counts && !d->held) {
        add_all(&d->case_mhz, &seen.sm_mhz);
        add_all(&d->case_w, &seen.power_w);
        d->noted_throttle |= seen.throttle;
    }
    sampled_free(&seen);
    return w;
}

void device_sense_lately(device *d, double *sm_mhz, double *power_w)
{
    sampler_lately(d->sampler, sm_mhz, power_w);
}

double device_idle_w(device *d)
{
    if (!d->sampler)
        return NAN;
    device_sync(d);
    device_sense_begin(d);
    usleep(200 * 1000);
    return device_sense_end(d, false).power_w;
}

void device_state_note(device *d)
{
    if (d->held)
        return;
    d->noted_mhz = clocks_sm_mhz(d->clocks);
    d->noted_throttle |= clocks_throttle(d->clocks);
}

void device_state_hold(device *d)
{
    if (isnan(d->noted_mhz))
        device_state_note(d);
    d->held = true;
}

/* The limiter lets a GPU draw more than its limit for some tenths of a second. What was measured then is no steady state. */
static bool above_cap(const device *d, double power_w)
{
    return power_w > 1.02 * clocks_power_limit_w(d->clocks);
}

device_conditions device_state(device *d)
{
    const stats mhz = stats_of(&d->case_mhz), w = stats_of(&d->case_w);
    if (isnan(d->noted_mhz))
        device_state_note(d);
    device_conditions c = {.sm_mhz = mhz.n > 0 ? mhz.median : d->noted_mhz,
                           .sm_min_mhz = mhz.min,
                           .sm_median_mhz = mhz.median,
                           .power_w = mhz.n > 0 && isfinite(d->case_energy_w) ? d->case_energy_w : w.median,
                           .readings = (int)mhz.n};
    clocks_throttle_words(d->noted_throttle | (d->held ? 0 : clocks_throttle(d->clocks)), c.throttle,
                          sizeof c.throttle);
    if (above_cap(d, c.power_w)) {
        const size_t used = strlen(c.throttle);
        snprintf(c.throttle + used, sizeof c.throttle - used, "%sabove_cap", used ? "+" : "");
    }
    d->noted_mhz = NAN;
    d->noted_throttle = 0;
    d->held = false;
    samples_clear(&d->case_mhz);
    samples_clear(&d->case_w);
    return c;
}
