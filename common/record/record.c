/* SPDX-License-Identifier: MIT */
/* The recorder; see record.h. Ranges of all threads are kept in one list under a lock, so that a record can name its
 * range by a number; the device's part is cupti.c's. */
#include "common/record/record.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/record/cupti.h"

enum { DEPTH_MAX = 48, PATH_BYTES = 512 };
enum { ARMED = 1, ON_GPU = 2, RECORDING = 4, SPANS_ALONE = 8 }; /* bits of `state`; 0: off */

static atomic_uint state;
static atomic_uint generation;                           /* of arming: what a thread has open from before is useless */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static record_range *ranges;
static size_t range_count, range_room;
static record_span *host_spans;
static size_t host_span_count, host_span_room;
static atomic_int threads;

static _Thread_local struct {
    unsigned generation;
    int depth, number, step_range;
    int open[DEPTH_MAX]; /* ranges, the innermost last */
} mine;

static double now_us(void)
{
    return host_seconds() * 1e6;
}

/* ---- ranges ---- */

static void begin_thread(void)
{
    const unsigned now = atomic_load(&generation);
    if (mine.generation == now)
        return;
    if (!mine.number)
        mine.number = atomic_fetch_add(&threads, 1) + 1;
    mine.generation = now;
    mine.depth = 0;
    mine.step_range = -1;
}

int recorder_open_range(void)
{
    if (!(atomic_load_explicit(&state, memory_order_relaxed) & ARMED) || mine.generation != atomic_load(&generation))
        return -1;
    const int depth = mine.depth < DEPTH_MAX ? mine.depth : DEPTH_MAX;
    return depth > 0 ? mine.open[depth - 1] : mine.step_range;
}

/* Steps and ops leave the path as it is; a part of an op has its name in it. */
static const char *path_of(const record_range *parent, const char *name, const record_work *work)
{
    const char *outer = parent ? parent->path : "";
    char path[PATH_BYTES];
    if (work && work->op && !work->part)
        return outer;
    snprintf(path, sizeof path, "%s%s%s", outer, *outer ? "/" : "", name);
    return record_name(path);
}

/* With the lock. */
static int add_range(record_range r)
{
    LIST_ADD(ranges, range_count, range_room, r);
    return (int)range_count - 1;
}

static int open_range(const char *name, const record_work *work)
{
    const int parent = recorder_open_range();
    pthread_mutex_lock(&lock);
    const record_range *outer = parent >= 0 ? &ranges[parent] : NULL;
    const int at = add_range((record_range){.name = record_name(name),
                                            .path = path_of(outer, name, work),
                                            .parent = parent,
                                            .thread = mine.number,
                                            .step = outer ? outer->step : -1,
                                            .start_us = now_us(),
                                            .end_us = NAN,
                                            .work = work ? *work : (record_work){0}});
    if (work && work->op && parent >= 0)
        ranges[parent].divided = true;
    pthread_mutex_unlock(&lock);
    return at;
}

void recorder_push(const char *name, const record_work *work)
{
    const unsigned now = atomic_load_explicit(&state, memory_order_relaxed);
    if (!(now & ARMED))
        return;
    begin_thread();
    const int at = open_range(name, work);
    if (mine.depth < DEPTH_MAX)
        mine.open[mine.depth] = at;
    mine.depth++;
    if ((now & RECORDING) && (now & ON_GPU))
        cupti_push(at);
}

static void add_host_span(record_span s)
{
    LIST_ADD(host_spans, host_span_count, host_span_room, s);
}

void recorder_pop(void)
{
    const unsigned now = atomic_load_explicit(&state, memory_order_relaxed);
    if (!(now & ARMED) || mine.generation != atomic_load(&generation) || mine.depth == 0)
        return;
    if ((now & RECORDING) && (now & ON_GPU))
        cupti_pop();
    if (--mine.depth >= DEPTH_MAX)
        return;
    pthread_mutex_lock(&lock);
    const int at = mine.open[mine.depth];
    record_range *r = &ranges[at];
    r->end_us = now_us();
    if ((now & RECORDING) && !(now & ON_GPU) && r->work.op && !r->divided && !r->work.elsewhere)
        add_host_span((record_span){.start_us = r->start_us,
                                    .end_us = r->end_us,
                                    .lane = LANE_COMPUTE,
                                    .stream = mine.number,
                                    .range = at,
                                    .step = r->step,
                                    .call = -1,
                                    .name = r->work.part ? r->name : r->work.op,
                                    .kernel = r->work.part ? r->name : r->work.op});
    pthread_mutex_unlock(&lock);
}

void recorder_step(int i)
{
    if (!(atomic_load_explicit(&state, memory_order_relaxed) & ARMED))
        return;
    begin_thread();
    const unsigned now = atomic_load(&state);
    const bool on_gpu = (now & RECORDING) && (now & ON_GPU);
    pthread_mutex_lock(&lock);
    if (mine.step_range >= 0) {
        ranges[mine.step_range].end_us = now_us();
        if (on_gpu)
            cupti_pop();
    }
    mine.step_range = i < 0 ? -1
                            : add_range((record_range){.name = "step",
                                                       .path = "",
                                                       .parent = -1,
                                                       .thread = mine.number,
                                                       .step = i,
                                                       .start_us = now_us(),
                                                       .end_us = NAN});
    pthread_mutex_unlock(&lock);
    if (mine.step_range >= 0 && on_gpu)
        cupti_push(mine.step_range);
}

void recorder_communicated(const char *name, int range, double start_s, double end_s)
{
    if (!(atomic_load_explicit(&state, memory_order_relaxed) & RECORDING))
        return;
    begin_thread();
    const char *held = record_name(name);
    pthread_mutex_lock(&lock);
    add_host_span((record_span){.start_us = start_s * 1e6,
                                .end_us = end_s * 1e6,
                                .lane = LANE_COMMUNICATION,
                                .stream = mine.number,
                                .range = range,
                                .step = range >= 0 ? ranges[range].step : -1,
                                .call = -1,
                                .name = held,
                                .kernel = held});
    pthread_mutex_unlock(&lock);
}

/* ---- arming ---- */

bool recorder_arm(device *d, char *why, size_t why_bytes)
{
    const bool gpu = device_kind_of(d) == DEVICE_CUDA;
    device_sync(d);
    if (gpu && !cupti_arm(recorder_open_range, why, why_bytes))
        return false;
    pthread_mutex_lock(&lock);
    range_count = host_span_count = 0;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&generation, 1);
    atomic_store(&state, gpu ? ARMED | ON_GPU : ARMED);
    return true;
}

void recorder_disarm(void)
{
    if (atomic_exchange(&state, 0) & ON_GPU)
        cupti_disarm();
}

/* ---- recording ---- */

bool recorder_start(device *d, char *why, size_t why_bytes)
{
    device_sync(d);
    if ((atomic_load(&state) & ON_GPU) && !cupti_start(true, why, why_bytes))
        return false;
    pthread_mutex_lock(&lock);
    host_span_count = 0;
    pthread_mutex_unlock(&lock);
    atomic_fetch_or(&state, RECORDING);
    return true;
}

bool recorder_start_spans(device *d, char *why, size_t why_bytes)
{
    if (device_kind_of(d) == DEVICE_CPU) {
        if (!recorder_arm(d, why, why_bytes) || !recorder_start(d, why, why_bytes))
            return false;
        atomic_fetch_or(&state, SPANS_ALONE);
        return true;
    }
    device_sync(d); /* which also makes d the current device of this thread */
    if (!cupti_start(false, why, why_bytes))
        return false;
    pthread_mutex_lock(&lock);
    range_count = 0;
    pthread_mutex_unlock(&lock);
    atomic_store(&state, ON_GPU | RECORDING | SPANS_ALONE);
    return true;
}

static int by_correlation(const void *a, const void *b)
{
    const cupti_link *x = a, *y = b;
    return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

static int linked_range(const cupti_records *raw, uint32_t correlation)
{
    const cupti_link key = {correlation, 0}, *found = raw->link_count ? bsearch(&key, raw->links, raw->link_count,
                                                                                sizeof *raw->links, by_correlation)
                                                                      : NULL;
    return found ? found->range : -1;
}

static int call_of(const uint64_t *by_number, size_t n, uint32_t correlation)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((uint32_t)(by_number[middle] >> 32) < correlation)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && (uint32_t)(by_number[low] >> 32) == correlation ? (int)(uint32_t)by_number[low] : -1;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Which call and range each span comes from, and of which step it is. */
static void attribute(recording *r, const cupti_records *raw)
{
    OWNED uint64_t *calls = xmalloc((r->call_count + 1) * sizeof *calls);
    for (size_t i = 0; i < r->call_count; i++) {
        r->calls[i].range = linked_range(raw, r->calls[i].correlation);
        calls[i] = (uint64_t)r->calls[i].correlation << 32 | i;
    }
    qsort(calls, r->call_count, sizeof *calls, by_number);
    for (size_t i = 0; i < r->span_count; i++) {
        record_span *s = &r->spans[i];
        const int launched_in = linked_range(raw, s->correlation);
        s->call = call_of(calls, r->call_count, s->correlation);
        s->range = s->node ? cupti_node_range(s->node) : launched_in;
        s->step = launched_in >= 0 ? r->ranges[launched_in].step : -1;
    }
}

/* With the lock. */
static void copy_ranges(recording *r)
{
    r->ranges = xmalloc((range_count + 1) * sizeof *r->ranges);
    memcpy(r->ranges, ranges, range_count * sizeof *ranges);
    r->range_count = range_count;
}

static recording *from_gpu(bool spans_alone, char *why, size_t why_bytes)
{
    cupti_records raw;
    if (!cupti_stop(&raw, why, why_bytes)) {
        cupti_records_free(&raw);
        return NULL;
    }
    recording *r = xcalloc(1, sizeof *r);
    r->spans = raw.spans, r->span_count = raw.span_count;
    r->calls = raw.calls, r->call_count = raw.call_count;
    r->costs = raw.costs, r->cost_count = raw.cost_count;
    raw.spans = NULL, raw.calls = NULL, raw.costs = NULL;
    pthread_mutex_lock(&lock);
    copy_ranges(r);
    pthread_mutex_unlock(&lock);
    if (r->call_count)
        qsort(r->calls, r->call_count, sizeof *r->calls, ascending); /* by start_us, the first of each */
    if (r->cost_count)
        qsort(r->costs, r->cost_count, sizeof *r->costs, ascending);
    if (raw.link_count)
        qsort(raw.links, raw.link_count, sizeof *raw.links, by_correlation);
    if (!spans_alone)
        attribute(r, &raw);
    cupti_records_free(&raw);
    return r;
}

static recording *from_host(void)
{
    recording *r = xcalloc(1, sizeof *r);
    pthread_mutex_lock(&lock);
    r->host_spans = true;
    r->spans = host_spans, r->span_count = host_span_count;
    host_spans = NULL, host_span_count = host_span_room = 0;
    copy_ranges(r);
    pthread_mutex_unlock(&lock);
    return r;
}

recording *recorder_stop(device *d, char *why, size_t why_bytes)
{
    device_sync(d);
    const unsigned was = atomic_fetch_and(&state, ~(unsigned)RECORDING);
    if (was & SPANS_ALONE)
        atomic_store(&state, 0);
    recording *r = was & ON_GPU ? from_gpu(was & SPANS_ALONE, why, why_bytes) : from_host();
    if (r && r->span_count == 0) {
        snprintf(why, why_bytes, "nothing ran while it was recorded");
        recording_free(r);
        return NULL;
    }
    if (r)
        qsort(r->spans, r->span_count, sizeof *r->spans, ascending);
    return r;
}

void recording_free(recording *r)
{
    if (!r)
        return;
    free(r->spans);
    free(r->calls);
    free(r->costs);
    free(r->ranges);
    free(r);
}

void recording_move(recording *r, const host_clock *c)
{
    if (c->offset_s == 0 && c->drift == 0)
        return;
#define MOVE(x)                                                                                                        \
    ((x).start_us = host_clock_rank_0_s(c, (x).start_us * 1e-6) * 1e6,                                                 \
     (x).end_us = host_clock_rank_0_s(c, (x).end_us * 1e-6) * 1e6)
    for (size_t i = 0; i < r->span_count; i++)
        MOVE(r->spans[i]);
    for (size_t i = 0; i < r->call_count; i++)
        MOVE(r->calls[i]);
    for (size_t i = 0; i < r->cost_count; i++)
        MOVE(r->costs[i]);
    for (size_t i = 0; i < r->range_count; i++)
        MOVE(r->ranges[i]);
#undef MOVE
}

int record_op_range(const recording *r, int range)
{
    while (range >= 0 && (!r->ranges[range].work.op || r->ranges[range].work.part))
        range = r->ranges[range].parent;
    return range;
}

const record_work *record_op(const recording *r, int range)
{
    const int at = record_op_range(r, range);
    return at < 0 ? NULL : &r->ranges[at].work;
}
