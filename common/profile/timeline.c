/* SPDX-License-Identifier: MIT */
/* Recording; see timeline.h. Spans of the host are kept in one list under a lock; those of a GPU come from
 * cupti.c. */
#include "common/profile/timeline.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/profile/cupti.h"
#include "common/profile/intervals.h"

enum { RANGES_MAX = 32, RANGE_NAME = 48 };

static enum { OFF, HOST, GPU } source; /* of the recording that goes on; for the thread that starts and stops */
static atomic_uint current_recording;  /* its number while the host is recorded, else 0 */
static unsigned recordings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static span_list host_spans;

/* Ranges that this thread has open. */
static _Thread_local struct {
    unsigned recording; /* in which it began; 0: in none */
    double start_s;
    char name[RANGE_NAME];
} ranges[RANGES_MAX];
static _Thread_local int range_depth;
static _Thread_local int thread_number; /* 0: none yet */
static atomic_int threads;

/* ---- the host's spans ---- */

static void add_host_span(unsigned of, timeline_lane lane, const char *name, double start_s, double end_s)
{
    if (!thread_number)
        thread_number = atomic_fetch_add(&threads, 1) + 1;
    const char *held = timeline_name(name);
    pthread_mutex_lock(&lock);
    if (of == atomic_load(&current_recording)) /* it may have ended meanwhile */
        span_list_add(&host_spans, (timed_span){start_s * 1e6, end_s * 1e6, thread_number, lane, held});
    pthread_mutex_unlock(&lock);
}

void timeline_span(timeline_lane lane, const char *name, double start_s, double end_s)
{
    const unsigned now = atomic_load_explicit(&current_recording, memory_order_relaxed);
    if (now)
        add_host_span(now, lane, name, start_s, end_s);
}

void timeline_range_push(const char *name)
{
    if (range_depth < RANGES_MAX) {
        const unsigned now = atomic_load_explicit(&current_recording, memory_order_relaxed);
        ranges[range_depth].recording = now;
        if (now) {
            snprintf(ranges[range_depth].name, RANGE_NAME, "%s", name);
            ranges[range_depth].start_s = host_seconds();
        }
    }
    range_depth++;
}

void timeline_range_pop(void)
{
    if (range_depth == 0 || --range_depth >= RANGES_MAX || !ranges[range_depth].recording)
        return;
    add_host_span(ranges[range_depth].recording, LANE_COMPUTE, ranges[range_depth].name, ranges[range_depth].start_s,
                  host_seconds());
}

static int by_stream(const void *a, const void *b)
{
    const timed_span *x = a, *y = b;
    return (x->stream > y->stream) - (x->stream < y->stream);
}

/* The list without waits, and its compute without what the same thread communicated or waited. */
static span_list cut_ranges(span_list all)
{
    span_list kept = {0};
    intervals busy = {0};
    if (all.n)
        qsort(all.v, all.n, sizeof *all.v, by_stream);
    for (size_t i = 0; i < all.n; i++) {
        const timed_span *s = &all.v[i];
        if (i == 0 || s->stream != all.v[i - 1].stream) {
            free(busy.v);
            busy = intervals_of(all.v, all.n, 1u << LANE_COMMUNICATION | 1u << LANE_WAIT, s->stream, 0);
        }
        if (s->lane == LANE_COMPUTE) {
            interval one = {s->start_us, s->end_us};
            intervals whole = {&one, 1}, rest = intervals_minus(&whole, &busy);
            for (size_t k = 0; k < rest.n; k++)
                span_list_add(&kept, (timed_span){rest.v[k].start, rest.v[k].end, s->stream, s->lane, s->name});
            free(rest.v);
        } else if (s->lane != LANE_WAIT) {
            span_list_add(&kept, *s);
        }
    }
    free(busy.v);
    free(all.v);
    return kept;
}

static void waited(double start_s, double end_s)
{
    timeline_span(LANE_WAIT, "wait", start_s, end_s);
}

static span_list stop_host(void)
{
    device_tell_waits(NULL);
    pthread_mutex_lock(&lock);
    atomic_store(&current_recording, 0);
    span_list all = host_spans;
    host_spans = (span_list){0};
    pthread_mutex_unlock(&lock);
    return cut_ranges(all);
}

/* ---- recordings ---- */

static bool stop_gpu(span_list *all, char *why, size_t why_bytes)
{
    cupti_records raw;
    const bool ok = cupti_stop(&raw, why, why_bytes);
    for (size_t i = 0; ok && i < raw.span_count; i++) {
        const record_span *s = &raw.spans[i];
        span_list_add(all, (timed_span){s->start_us, s->end_us, s->stream, s->lane, s->name});
    }
    cupti_records_free(&raw);
    return ok;
}

static void shift(stream_timeline *t, double by_us)
{
    for (size_t i = 0; i < t->n; i++) {
        t->spans[i].start_us += by_us;
        t->spans[i].end_us += by_us;
    }
}

static void from_first_span(stream_timeline *t)
{
    const double first_us = t->spans[0].start_us;
    t->origin_s += first_us * 1e-6;
    shift(t, -first_us);
}

bool timeline_start(device *d, char *why, size_t why_bytes)
{
    if (source != OFF) {
        snprintf(why, why_bytes, "a timeline is being recorded already");
        return false;
    }
    if (device_kind_of(d) == DEVICE_CPU) {
        source = HOST;
        device_tell_waits(waited);
        atomic_store(&current_recording, ++recordings);
        return true;
    }
    const char *absent = device_no_cuda_reason();
    if (absent) {
        snprintf(why, why_bytes, "%s", absent);
        return false;
    }
    device_sync(d); /* which also makes d the current device of this thread */
    if (!cupti_start(false, why, why_bytes))
        return false;
    source = GPU;
    return true;
}

stream_timeline *timeline_stop(device *d, char *why, size_t why_bytes)
{
    span_list all = {0};
    if (source == OFF) {
        snprintf(why, why_bytes, "no timeline is being recorded");
        return NULL;
    }
    if (source == GPU) {
        source = OFF;
        device_sync(d);
        if (!stop_gpu(&all, why, why_bytes))
            return NULL;
    } else {
        source = OFF;
        all = stop_host();
    }
    if (all.n == 0) {
        snprintf(why, why_bytes, "nothing ran while the timeline was recorded");
        free(all.v);
        return NULL;
    }
    span_list_sort(&all);
    stream_timeline *t = xcalloc(1, sizeof *t);
    *t = (stream_timeline){.spans = all.v, .n = all.n};
    from_first_span(t);
    return t;
}

void timeline_destroy(stream_timeline *t)
{
    if (!t)
        return;
    free(t->spans);
    free(t);
}

void timeline_rebase(stream_timeline *t, double origin_s)
{
    shift(t, (t->origin_s - origin_s) * 1e6);
    t->origin_s = origin_s;
}

void timeline_to_rank_0(stream_timeline *t, const host_clock *c)
{
    for (size_t i = 0; i < t->n; i++) {
        t->spans[i].start_us *= 1 + c->drift;
        t->spans[i].end_us *= 1 + c->drift;
    }
    t->origin_s = host_clock_rank_0_s(c, t->origin_s);
}

void timeline_keep(stream_timeline *t, double from_s, double to_s)
{
    const double from_us = (from_s - t->origin_s) * 1e6, to_us = (to_s - t->origin_s) * 1e6;
    span_list kept = {.v = t->spans};
    for (size_t i = 0; i < t->n; i++) {
        timed_span s = t->spans[i];
        s.start_us = fmax(s.start_us, from_us);
        s.end_us = fmin(s.end_us, to_us);
        if (s.start_us < s.end_us)
            kept.v[kept.n++] = s;
    }
    span_list_sort(&kept); /* what was cut starts together now */
    t->n = kept.n;
    if (t->n)
        from_first_span(t);
}
