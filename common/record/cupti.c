/* SPDX-License-Identifier: MIT */
/* The GPU's recording through CUPTI's activity interface, which needs no privilege.
 *
 * CUPTI hands back full buffers on threads of its own; what they hold is read there. The device buffers behind them
 * hold 100,000 kernels by default (CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE). The callback for timestamps is registered
 * once in the process: registered twice, CUPTI gives some of the next records times of another clock
 * (pytorch#192021). For the same reason a record whose time lies outside the recording counts as lost. Calls are
 * linked to ranges by external correlation; nodes of a graph by callbacks when they are made and cloned, as CUPTI's
 * sample cuda_graphs_trace does. Subscribing fails where another tool has subscribed (nsys, a sanitizer). */
#include "common/record/cupti.h"

#include <stdlib.h>

void cupti_records_free(cupti_records *r)
{
    free(r->spans);
    free(r->calls);
    free(r->costs);
    free(r->links);
    *r = (cupti_records){0};
}

#if defined(HAVE_CUDA) && defined(HAVE_CUPTI) && __has_include(<cupti.h>)

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/core/error.h"
#include "common/core/text.h"
#include "common/record/cupti_library.h"
#include "common/record/names.h"

/* 8 MiB are some 35,000 kernels; a further buffer is made when one is full. */
static const size_t buffer_bytes = (size_t)8 << 20;
static const int64_t slack_ns = 10000000; /* that the interpolation of clocks may be wrong by */

static cupti_functions cupti;

/* CONCURRENT_KERNEL, unlike KERNEL, lets kernels run side by side, and has those of graphs one by one. The first four
 * are spans. */
static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,           CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_RUNTIME,           CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_OVERHEAD,          CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
enum { KINDS = sizeof kinds / sizeof *kinds, SPAN_KINDS = 4, KERNELS_MAX = 512, CALLS_MAX = 2048, SPARE_MAX = 8 };

static enum { UNTRIED, ABSENT, READY } state = UNTRIED;
static char absent_why[512];
static bool own_clock; /* records are on CLOCK_MONOTONIC; else on CUPTI's clock, clock_offset_ns ahead of it */
static int64_t clock_offset_ns, started_ns;
static size_t recorded_kinds;
static CUpti_SubscriberHandle subscriber;
static bool armed;
static int (*open_range_now)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static cupti_records records;
static size_t timeless; /* records without times, or with impossible ones */
static struct {
    const char *kernel, *name; /* CUPTI gives the same pointer for the same kernel */
    const char *whole;         /* kept: the pointer dies with the module */
    record_lane lane;
} known[KERNELS_MAX];
static size_t known_count;
static const char *call_names[2][CALLS_MAX]; /* of the runtime, of the driver; NULL: not asked yet */

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

/* ---- nodes of graphs ---- */

static pthread_mutex_t node_lock = PTHREAD_MUTEX_INITIALIZER;
static struct node {
    uint64_t id; /* 0: free */
    int range;
} * nodes;                           /* a table with open addressing */
static size_t node_count, node_room; /* room: a power of 2 */

static struct node *node_slot(uint64_t id)
{
    size_t at = (size_t)(id * 0x9e3779b97f4a7c15u >> 20) & (node_room - 1);
    while (nodes[at].id && nodes[at].id != id)
        at = (at + 1) & (node_room - 1);
    return &nodes[at];
}

static void node_put(uint64_t id, int range)
{
    if (2 * (node_count + 1) > node_room) {
        struct node *before = nodes;
        const size_t room = node_room;
        node_room = room ? 2 * room : 4096;
        nodes = xcalloc(node_room, sizeof *nodes);
        for (size_t i = 0; i < room; i++)
            if (before[i].id)
                *node_slot(before[i].id) = before[i];
        free(before);
    }
    struct node *n = node_slot(id);
    node_count += !n->id;
    *n = (struct node){id, range};
}

int cupti_node_range(uint64_t node)
{
    pthread_mutex_lock(&node_lock);
    const struct node *n = node_room ? node_slot(node) : NULL;
    const int range = n && n->id ? n->range : -1;
    pthread_mutex_unlock(&node_lock);
    return range;
}

/* On the thread that captures or instantiates. Instantiation makes nodes, too, and says of which each is a clone. */
static void CUPTIAPI on_node(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    const CUpti_ResourceData *resource = data;
    (void)user;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE)
        return;
    const CUpti_GraphData *graph = resource->resourceDescriptor;
    uint64_t original, node;
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
        if (cupti.node_id(graph->node, &node) != CUPTI_SUCCESS)
            return;
        pthread_mutex_lock(&node_lock);
        node_put(node, open_range_now());
        pthread_mutex_unlock(&node_lock);
    } else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
        if (cupti.node_id(graph->originalNode, &original) != CUPTI_SUCCESS ||
            cupti.node_id(graph->node, &node) != CUPTI_SUCCESS)
            return;
        const int range = cupti_node_range(original);
        pthread_mutex_lock(&node_lock);
        node_put(node, range);
        pthread_mutex_unlock(&node_lock);
    }
}

/* ---- records ---- */

/* Microseconds of the host's clock; false for a time that cannot be of this recording. */
static bool times_of(uint64_t start, uint64_t end, double *start_us, double *end_us)
{
    const int64_t from = (int64_t)start - clock_offset_ns, to = (int64_t)end - clock_offset_ns;
    *start_us = (double)from * 1e-3, *end_us = (double)to * 1e-3;
    return start != 0 && end >= start && from >= started_ns - slack_ns && to <= monotonic_ns() + slack_ns;
}

static void add_span(record_span s, uint64_t start, uint64_t end)
{
    if (!times_of(start, end, &s.start_us, &s.end_us)) {
        timeless++;
        return;
    }
    s.range = s.step = s.call = -1;
    LIST_ADD(records.spans, records.span_count, records.span_room, s);
}

static void name_kernel(const char *kernel, record_span *s)
{
    for (size_t i = 0; i < known_count; i++)
        if (known[i].kernel == kernel) {
            s->name = known[i].name, s->kernel = known[i].whole, s->lane = known[i].lane;
            return;
        }
    s->lane = record_classify(kernel, &s->name);
    s->kernel = record_name(kernel);
    if (known_count < KERNELS_MAX) {
        known[known_count].kernel = kernel;
        known[known_count].whole = s->kernel;
        known[known_count].name = s->name;
        known[known_count++].lane = s->lane;
    }
}

static void add_kernel(const CUpti_ActivityKernel10 *r)
{
    record_span s = {.kind = RECORD_KERNEL,
                     .stream = (int)r->streamId,
                     .grid = {r->gridX, r->gridY, r->gridZ},
                     .block = {r->blockX, r->blockY, r->blockZ},
                     .correlation = r->correlationId,
                     .node = r->graphNodeId};
    name_kernel(r->name ? r->name : "unnamed kernel", &s);
    add_span(s, r->start, r->end);
}

static record_span moved(record_kind kind, record_lane lane, const char *name, uint32_t stream, uint64_t bytes,
                         uint32_t correlation, uint64_t node)
{
    return (record_span){.kind = kind,
                         .lane = lane,
                         .stream = (int)stream,
                         .name = name,
                         .kernel = name,
                         .bytes = (double)bytes,
                         .correlation = correlation,
                         .node = node};
}

static void add_copy(const CUpti_ActivityMemcpy6 *r)
{
    const bool peers = r->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    const bool inside = r->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    const record_lane lane = peers ? LANE_COMMUNICATION : inside ? LANE_COMPUTE : LANE_COPY;
    const char *name = peers                                            ? "peer copy"
                       : inside                                         ? "copy"
                       : r->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD ? "host to device"
                                                                        : "device to host";
    add_span(moved(RECORD_COPY, lane, name, r->streamId, r->bytes, r->correlationId, r->graphNodeId), r->start, r->end);
}

static void add_peer_copy(const CUpti_ActivityMemcpyPtoP4 *r)
{
    add_span(
        moved(RECORD_COPY, LANE_COMMUNICATION, "peer copy", r->streamId, r->bytes, r->correlationId, r->graphNodeId),
        r->start, r->end);
}

static void add_memset(const CUpti_ActivityMemset4 *r)
{
    add_span(moved(RECORD_SET, LANE_COMPUTE, "memset", r->streamId, r->bytes, r->correlationId, r->graphNodeId),
             r->start, r->end);
}

/* "cudaLaunchKernel_v7000" -> "cudaLaunchKernel" */
static const char *call_name(bool of_driver, CUpti_CallbackId id)
{
    const CUpti_CallbackDomain domain = of_driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
    const char *name = NULL;
    char text[96];
    if (id < CALLS_MAX && call_names[of_driver][id])
        return call_names[of_driver][id];
    if (cupti.callback_name(domain, id, &name) != CUPTI_SUCCESS || !name)
        name = "a call";
    snprintf(text, sizeof text, "%s", name);
    char *version = strstr(text, "_v");
    if (version && version[2 + strspn(version + 2, "0123456789")] == 0)
        *version = 0;
    name = record_name(text);
    if (id < CALLS_MAX)
        call_names[of_driver][id] = name;
    return name;
}

static void add_call(const CUpti_ActivityAPI *r)
{
    record_call c = {.correlation = r->correlationId, .thread = r->threadId, .range = -1};
    if (!times_of(r->start, r->end, &c.start_us, &c.end_us))
        return; /* a call without times names nothing; its kernels have theirs */
    c.name = call_name(r->kind == CUPTI_ACTIVITY_KIND_DRIVER, r->cbid);
    LIST_ADD(records.calls, records.call_count, records.call_room, c);
}

static void add_cost(const CUpti_ActivityOverhead3 *r)
{
    record_cost c;
    if (!times_of(r->start, r->end, &c.start_us, &c.end_us))
        return;
    switch (r->overheadKind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER: c.name = "driver compiler"; break;
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH: c.name = "buffer flush"; break;
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION: c.name = "instrumentation"; break;
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE: c.name = "resource"; break;
    case CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST: c.name = "buffer request"; break;
    case CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL: return; /* the host is far ahead, recorded or not */
    default: c.name = "other"; break;
    }
    LIST_ADD(records.costs, records.cost_count, records.cost_room, c);
}

static void add_link(const CUpti_ActivityExternalCorrelation *r)
{
    const cupti_link link = {r->correlationId, (int)r->externalId - 1};
    LIST_ADD(records.links, records.link_count, records.link_room, link);
}

static void add_record(const CUpti_Activity *record)
{
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: add_kernel((const CUpti_ActivityKernel10 *)record); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: add_copy((const CUpti_ActivityMemcpy6 *)record); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2: add_peer_copy((const CUpti_ActivityMemcpyPtoP4 *)record); break;
    case CUPTI_ACTIVITY_KIND_MEMSET: add_memset((const CUpti_ActivityMemset4 *)record); break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: add_call((const CUpti_ActivityAPI *)record); break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD: add_cost((const CUpti_ActivityOverhead3 *)record); break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: add_link((const CUpti_ActivityExternalCorrelation *)record); break;
    default: break;
    }
}

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *spare[SPARE_MAX];
static size_t spare_count;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *count)
{
    pthread_mutex_lock(&spare_lock);
    *buffer = spare_count ? spare[--spare_count] : NULL;
    pthread_mutex_unlock(&spare_lock);
    if (!*buffer) /* NULL: CUPTI drops records and counts them */
        *buffer = aligned_alloc(64, buffer_bytes);
    *size = *buffer ? buffer_bytes : 0;
    *count = 0; /* as many as fit */
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)size;
    pthread_mutex_lock(&lock);
    while (valid && cupti.next(buffer, valid, &record) == CUPTI_SUCCESS)
        add_record(record);
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&spare_lock);
    if (spare_count < SPARE_MAX) /* the pages of a new one take milliseconds, which the host would wait for */
        spare[spare_count++] = buffer, buffer = NULL;
    pthread_mutex_unlock(&spare_lock);
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

static bool load(char *why, size_t why_bytes)
{
    if (state == UNTRIED) {
        state = ABSENT;
        if (cupti_library_open(&cupti, absent_why, sizeof absent_why) &&
            !failed(cupti.register_buffers(give_buffer, take_buffer), "take buffers", absent_why, sizeof absent_why)) {
            own_clock = cupti.register_clock(clock_callback) == CUPTI_SUCCESS; /* WSL refuses it */
            state = READY;
        }
    }
    if (state != READY)
        snprintf(why, why_bytes, "%s", absent_why);
    return state == READY;
}

bool cupti_arm(int (*open_range)(void), char *why, size_t why_bytes)
{
    if (armed)
        return true;
    if (!load(why, why_bytes))
        return false;
    const CUptiResult r = cupti.subscribe(&subscriber, on_node, NULL);
    if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
        snprintf(why, why_bytes, "another profiler is attached to this process, and CUPTI serves one");
        return false;
    }
    if (failed(r, "be subscribed to", why, why_bytes))
        return false;
    armed = true;
    open_range_now = open_range;
    node_count = 0;
    if (node_room)
        memset(nodes, 0, node_room * sizeof *nodes);
    if (!failed(cupti.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED),
                "tell of graphs", why, why_bytes) &&
        !failed(cupti.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED),
                "tell of graphs", why, why_bytes))
        return true;
    cupti_disarm();
    return false;
}

void cupti_disarm(void)
{
    if (armed)
        cupti.unsubscribe(subscriber);
    armed = false;
}

/* Calls that neither enqueue nor wait are half of what a step makes, and each costs time to record. */
static bool is_bookkeeping(const char *name)
{
    static const char *const starts[] = {
        "Get",         "Set",         "Peek",       "Func",        "StreamIs",     "StreamGet", "StreamWait",
        "StreamQuery", "EventRecord", "EventQuery", "EventCreate", "EventDestroy", "Occupancy", "Pointer",
        "DeviceGet",   "KernelGet",   "TensorMap",  "Ctx",         "LibraryGet",   "ModuleGet", "ThreadExchange"};
    const char *rest = name + (strncmp(name, "cuda", 4) == 0 ? 4 : 2);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (text_starts(rest, starts[i]))
            return strcmp(rest, "CtxSynchronize") != 0;
    return false;
}

static void leave_out_bookkeeping(void)
{
    for (CUpti_CallbackId id = 1; id < CALLS_MAX; id++)
        for (int of_driver = 0; of_driver < 2; of_driver++) {
            if (id >= (of_driver ? (int)CUPTI_DRIVER_TRACE_CBID_SIZE : (int)CUPTI_RUNTIME_TRACE_CBID_SIZE))
                continue;
            pthread_mutex_lock(&lock);
            const char *name = call_name(of_driver, id);
            pthread_mutex_unlock(&lock);
            if (strncmp(name, "cu", 2) == 0 && is_bookkeeping(name))
                (of_driver ? cupti.choose_driver : cupti.choose_runtime)(id, 0);
        }
}

static void disable(size_t n)
{
    while (n--)
        cupti.disable(kinds[n]);
}

bool cupti_start(bool calls, char *why, size_t why_bytes)
{
    size_t forgotten;
    uint64_t theirs = 0;
    if (!load(why, why_bytes))
        return false;
    if (cudaDeviceSynchronize() != cudaSuccess) {
        snprintf(why, why_bytes, "the GPU reports an error: %s", cudaGetErrorString(cudaGetLastError()));
        return false;
    }
    cupti.dropped(NULL, 0, &forgotten); /* reading it sets it to 0 */
    pthread_mutex_lock(&lock);
    records.span_count = records.call_count = records.cost_count = records.link_count = 0;
    timeless = known_count = 0;
    clock_offset_ns = 0;
    started_ns = monotonic_ns();
    if (!own_clock && cupti.timestamp(&theirs) == CUPTI_SUCCESS)
        clock_offset_ns = (int64_t)theirs - monotonic_ns();
    pthread_mutex_unlock(&lock);
    recorded_kinds = calls ? KINDS : SPAN_KINDS;
    for (size_t i = 0; i < recorded_kinds; i++)
        if (failed(cupti.enable(kinds[i]), "record this GPU", why, why_bytes)) {
            disable(i);
            return false;
        }
    if (calls)
        leave_out_bookkeeping();
    return true;
}

bool cupti_stop(cupti_records *out, char *why, size_t why_bytes)
{
    size_t dropped = 0;
    const cudaError_t error = cudaDeviceSynchronize(); /* every stream, not only the device's own */
    /* A plain flush gives the buffers whose records are complete, which after the wait are all; the forced one empties
     * what is left, so that nothing of this recording turns up in the next. */
    const CUptiResult flushed = cupti.flush(0), emptied = cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    disable(recorded_kinds);
    const CUptiResult counted = cupti.dropped(NULL, 0, &dropped);
    pthread_mutex_lock(&lock);
    *out = records;
    records = (cupti_records){0};
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
                 dropped, lost, lost + out->span_count);
        return false;
    }
    return true;
}

void cupti_push(int range)
{
    cupti.push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, (uint64_t)range + 1);
}

void cupti_pop(void)
{
    uint64_t last;
    cupti.pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

#else
#include <stdio.h>

bool cupti_start(bool calls, char *why, size_t why_bytes)
{
    (void)calls;
    snprintf(why, why_bytes, "this program was built without CUPTI, which comes with the CUDA toolkit");
    return false;
}

bool cupti_stop(cupti_records *out, char *why, size_t why_bytes)
{
    *out = (cupti_records){0};
    return cupti_start(false, why, why_bytes);
}

bool cupti_arm(int (*open_range)(void), char *why, size_t why_bytes)
{
    (void)open_range;
    return cupti_start(false, why, why_bytes);
}

void cupti_disarm(void) {}
int cupti_node_range(uint64_t node)
{
    (void)node;
    return -1;
}
void cupti_push(int range)
{
    (void)range;
}
void cupti_pop(void) {}
#endif
