/* SPDX-License-Identifier: MIT */
/* The GPU's recording through CUPTI's activity interface, opened at run time: a program that records nothing never
 * loads it, and every program runs where it is missing. Its header is needed to build. Records are structures of one
 * version of CUPTI, so only a library of exactly the header's version will do.
 *
 * CUPTI hands back full buffers on threads of its own; what they hold is read there. The device buffers behind them
 * hold 100,000 kernels by default (CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE). The callback for timestamps is registered
 * once in the process: registered twice, CUPTI gives some of the next records times of another clock
 * (pytorch#192021). For the same reason a record whose time lies outside the recording counts as lost. */
#include "common/profile/cupti.h"

#if defined(HAVE_CUDA) && defined(HAVE_CUPTI) && __has_include(<cupti.h>)

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/core/error.h"
#include "common/profile/names.h"

/* 8 MiB are some 35,000 kernels; a further buffer is made when one is full. */
static const size_t buffer_bytes = (size_t)8 << 20;
static const int64_t slack_ns = 10000000; /* that the interpolation of clocks may be wrong by */

static struct {
    __typeof__(cuptiGetVersion) *version;
    __typeof__(cuptiGetResultString) *result_string;
    __typeof__(cuptiGetTimestamp) *timestamp;
    __typeof__(cuptiActivityRegisterTimestampCallback) *register_clock;
    __typeof__(cuptiActivityRegisterCallbacks) *register_buffers;
    __typeof__(cuptiActivityEnable) *enable;
    __typeof__(cuptiActivityDisable) *disable;
    __typeof__(cuptiActivityFlushAll) *flush;
    __typeof__(cuptiActivityGetNextRecord) *next;
    __typeof__(cuptiActivityGetNumDroppedRecords) *dropped;
} cupti;

/* CONCURRENT_KERNEL, unlike KERNEL, lets kernels run side by side, and has those of graphs one by one. */
static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};
enum { KINDS = sizeof kinds / sizeof *kinds, KERNELS_MAX = 512 };

static enum { UNTRIED, ABSENT, READY } state = UNTRIED;
static char absent_why[512];
static bool own_clock; /* records are on CLOCK_MONOTONIC; else on CUPTI's clock, clock_offset_ns ahead of it */
static int64_t clock_offset_ns, started_ns;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static span_list spans;
static size_t timeless; /* records without times, or with impossible ones */
static struct {
    const char *kernel, *name; /* CUPTI gives the same pointer for the same kernel */
    timeline_lane lane;
} known[KERNELS_MAX];
static size_t known_count;

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t CUPTIAPI clock_callback(void)
{
    return (uint64_t)monotonic_ns();
}

/* ---- the library ---- */

static bool take_functions(void *library)
{
    static const struct {
        const char *symbol;
        void *slot;
    } wanted[] = {
        {"cuptiGetVersion", &cupti.version},
        {"cuptiGetResultString", &cupti.result_string},
        {"cuptiGetTimestamp", &cupti.timestamp},
        {"cuptiActivityRegisterTimestampCallback", &cupti.register_clock},
        {"cuptiActivityRegisterCallbacks", &cupti.register_buffers},
        {"cuptiActivityEnable", &cupti.enable},
        {"cuptiActivityDisable", &cupti.disable},
        {"cuptiActivityFlushAll", &cupti.flush},
        {"cuptiActivityGetNextRecord", &cupti.next},
        {"cuptiActivityGetNumDroppedRecords", &cupti.dropped},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *symbol = dlsym(library, wanted[i].symbol);
        if (!symbol)
            return false;
        memcpy(wanted[i].slot, &symbol, sizeof symbol);
    }
    return true;
}

/* True when it is there and of the header's version; else it is remembered why, unless it is just not there. */
static bool open_library(const char *path)
{
    uint32_t version = 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    if (!take_functions(library)) {
        snprintf(absent_why, sizeof absent_why, "%s lacks functions that this program needs", path);
    } else if (cupti.version(&version) != CUPTI_SUCCESS || version != CUPTI_API_VERSION) {
        snprintf(absent_why, sizeof absent_why, "%s is version %u of CUPTI, and this program was built for %d", path,
                 version, CUPTI_API_VERSION);
    } else {
        return true;
    }
    dlclose(library);
    return false;
}

/* The loader's own places and the program's run path first, then where a toolkit keeps it. */
static bool find_library(void)
{
    char name[32], newest[64], path[512];
    snprintf(name, sizeof name, "libcupti.so.%d", CUDA_VERSION / 1000);
    snprintf(newest, sizeof newest, "/usr/local/cuda-%d.%d", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
    snprintf(absent_why, sizeof absent_why, "%s was not found; set CUDA_HOME to the toolkit's folder", name);
    const char *const homes[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), newest, "/usr/local/cuda"};
    static const char *const folders[] = {"extras/CUPTI/lib64", "lib64", "lib"};
    if (open_library(name))
        return true;
    for (size_t h = 0; h < sizeof homes / sizeof *homes; h++)
        for (size_t f = 0; homes[h] && *homes[h] && f < sizeof folders / sizeof *folders; f++) {
            snprintf(path, sizeof path, "%s/%s/%s", homes[h], folders[f], name);
            if (open_library(path))
                return true;
        }
    return false;
}

/* ---- records ---- */

static void add(timeline_lane lane, const char *name, uint32_t stream, uint64_t start, uint64_t end)
{
    const int64_t from = (int64_t)start - clock_offset_ns, to = (int64_t)end - clock_offset_ns;
    if (start == 0 || end < start || from < started_ns - slack_ns || to > monotonic_ns() + slack_ns)
        timeless++;
    else
        span_list_add(&spans, (timed_span){(double)from * 1e-3, (double)to * 1e-3, (int)stream, lane, name});
}

static void add_kernel(const CUpti_ActivityKernel10 *r)
{
    const char *name, *kernel = r->name ? r->name : "unnamed kernel";
    timeline_lane lane;
    for (size_t i = 0; i < known_count; i++)
        if (known[i].kernel == kernel) {
            add(known[i].lane, known[i].name, r->streamId, r->start, r->end);
            return;
        }
    lane = timeline_classify(kernel, &name);
    if (known_count < KERNELS_MAX) {
        known[known_count].kernel = kernel;
        known[known_count].name = name;
        known[known_count++].lane = lane;
    }
    add(lane, name, r->streamId, r->start, r->end);
}

static void add_copy(const CUpti_ActivityMemcpy6 *r)
{
    const uint8_t kind = r->copyKind;
    if (kind == CUPTI_ACTIVITY_MEMCPY_KIND_PTOP)
        add(LANE_COMMUNICATION, "peer copy", r->streamId, r->start, r->end);
    else if (kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD)
        add(LANE_COMPUTE, "copy", r->streamId, r->start, r->end);
    else
        add(LANE_COPY, kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD ? "host to device" : "device to host", r->streamId,
            r->start, r->end);
}

static void add_record(const CUpti_Activity *record)
{
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        add_kernel((const CUpti_ActivityKernel10 *)record);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        add_copy((const CUpti_ActivityMemcpy6 *)record);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
        const CUpti_ActivityMemcpyPtoP4 *r = (const CUpti_ActivityMemcpyPtoP4 *)record;
        add(LANE_COMMUNICATION, "peer copy", r->streamId, r->start, r->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *r = (const CUpti_ActivityMemset4 *)record;
        add(LANE_COMPUTE, "memset", r->streamId, r->start, r->end);
    }
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records)
{
    *buffer = aligned_alloc(64, buffer_bytes); /* CUPTI wants 8; NULL: it drops records and counts them */
    *size = *buffer ? buffer_bytes : 0;
    *records = 0; /* as many as fit */
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)size;
    pthread_mutex_lock(&lock);
    while (valid && cupti.next(buffer, valid, &record) == CUPTI_SUCCESS)
        add_record(record);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* ---- recording ---- */

static bool failed(CUptiResult r, const char *what, char *why, size_t why_bytes)
{
    const char *text = NULL;
    if (r == CUPTI_SUCCESS)
        return false;
    cupti.result_string(r, &text);
    snprintf(why, why_bytes, "CUPTI can't %s: %s", what, text ? text : "unknown error");
    return true;
}

static bool load(void)
{
    if (state != UNTRIED)
        return state == READY;
    state = ABSENT;
    if (!find_library() ||
        failed(cupti.register_buffers(give_buffer, take_buffer), "take buffers", absent_why, sizeof absent_why))
        return false;
    own_clock = cupti.register_clock(clock_callback) == CUPTI_SUCCESS; /* WSL refuses it */
    state = READY;
    return true;
}

static void disable(size_t n)
{
    while (n--)
        cupti.disable(kinds[n]);
}

bool timeline_cupti_start(char *why, size_t why_bytes)
{
    size_t forgotten;
    uint64_t theirs = 0;
    if (!load()) {
        snprintf(why, why_bytes, "%s", absent_why);
        return false;
    }
    if (cudaDeviceSynchronize() != cudaSuccess) {
        snprintf(why, why_bytes, "the GPU reports an error: %s", cudaGetErrorString(cudaGetLastError()));
        return false;
    }
    cupti.dropped(NULL, 0, &forgotten); /* reading it sets it to 0 */
    pthread_mutex_lock(&lock);
    spans.n = timeless = known_count = 0;
    clock_offset_ns = 0;
    started_ns = monotonic_ns();
    if (!own_clock && cupti.timestamp(&theirs) == CUPTI_SUCCESS)
        clock_offset_ns = (int64_t)theirs - monotonic_ns();
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < KINDS; i++)
        if (failed(cupti.enable(kinds[i]), "record this GPU", why, why_bytes)) {
            disable(i);
            return false;
        }
    return true;
}

bool timeline_cupti_stop(span_list *out, char *why, size_t why_bytes)
{
    size_t dropped = 0;
    const cudaError_t error = cudaDeviceSynchronize(); /* every stream, not only the device's own */
    /* A plain flush gives the buffers whose records are complete, which after the wait are all; the forced one empties
     * what is left, so that nothing of this recording turns up in the next. */
    const CUptiResult flushed = cupti.flush(0), emptied = cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    disable(KINDS);
    const CUptiResult counted = cupti.dropped(NULL, 0, &dropped);
    pthread_mutex_lock(&lock);
    *out = spans;
    spans = (span_list){0};
    const size_t lost = timeless;
    pthread_mutex_unlock(&lock);
    if (error != cudaSuccess) {
        snprintf(why, why_bytes, "the GPU reports an error: %s", cudaGetErrorString(error));
        return false;
    }
    if (failed(flushed, "hand over its records", why, why_bytes) ||
        failed(emptied, "hand over its records", why, why_bytes) ||
        failed(counted, "count its records", why, why_bytes))
        return false;
    if (dropped || lost) {
        snprintf(why, why_bytes, "CUPTI dropped %zu records and gave no time of this recording to %zu of %zu others",
                 dropped, lost, lost + out->n);
        return false;
    }
    return true;
}

#else
#include <stdio.h>

bool timeline_cupti_start(char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "this program was built without CUPTI, which comes with the CUDA toolkit");
    return false;
}

bool timeline_cupti_stop(span_list *out, char *why, size_t why_bytes)
{
    (void)out;
    return timeline_cupti_start(why, why_bytes);
}
#endif
