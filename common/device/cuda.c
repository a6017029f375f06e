/* SPDX-License-Identifier: MIT */
/* A GPU as a device, through the CUDA runtime's C interface. Without HAVE_CUDA this file is empty. */
#ifdef HAVE_CUDA

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/core/error.h"
#include "common/core/spread.h"
#include "common/device/clocks.h"
#include "common/device/host.h"
#include "common/device/internal.h"
#include "common/device/visible.h"

/* Left free on the GPU: kernels loaded later and libraries' own buffers need some, and can't report a lack of it as
 * clearly as an allocation can. */
static const size_t reserve_bytes = (size_t)96 << 20;

/* From this size on, threads touch the pages of pinned memory ahead of the runtime, which would do so with one thread. */
static const size_t large_bytes = (size_t)16 << 20;

/* Large pinned memory, of any device: who frees it does not say how much it is. */
typedef struct mapping {
    void *at;
    size_t bytes;
    struct mapping *next;
} mapping;
static mapping *mappings;
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct cuda_device {
    device base;
    int ordinal;
} cuda_device;

struct device_event {
    cudaEvent_t event;
};

struct device_graph {
    cudaGraphExec_t exec;
};

static void check(cudaError_t e, const char *expr, const char *file, int line)
{
    if (e != cudaSuccess)
        die(EXIT_CODE_FAILURE, "%s:%d %s -> %s: %s", file, line, expr, cudaGetErrorName(e), cudaGetErrorString(e));
}
#define CUDA_CHECK(expr) check((expr), #expr, __FILE__, __LINE__)

/* The runtime's current device is per thread, and kernels or a second open device may have changed it. */
static cudaStream_t use(device *d)
{
    CUDA_CHECK(cudaSetDevice(((cuda_device *)d)->ordinal));
    return d->stream;
}

static void close_cuda(device *d)
{
    CUDA_CHECK(cudaStreamDestroy(use(d)));
    free(d);
}

static size_t free_bytes(device *d)
{
    size_t left, total;
    use(d);
    CUDA_CHECK(cudaMemGetInfo(&left, &total));
    return left > reserve_bytes ? left - reserve_bytes : 0;
}

static void *malloc_cuda(device *d, size_t bytes)
{
    void *p;
    if (bytes > free_bytes(d))
        return NULL;
    cudaError_t e = cudaMalloc(&p, bytes);
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* or the next check of a kernel launch would find it */
        return NULL;
    }
    check(e, "cudaMalloc", __FILE__, __LINE__);
    return p;
}

static void free_cuda(device *d, void *p)
{
    use(d);
    CUDA_CHECK(cudaFree(p));
}

static void upload(device *d, void *dst, const void *host_src, size_t bytes)
{
    cudaStream_t stream = use(d);
    CUDA_CHECK(cudaMemcpyAsync(dst, host_src, bytes, cudaMemcpyHostToDevice, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
}

static void download(device *d, void *host_dst, const void *src, size_t bytes)
{
    cudaStream_t stream = use(d);
    CUDA_CHECK(cudaMemcpyAsync(host_dst, src, bytes, cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
}

/* NULL where the system or the runtime would rather not; more than the host has would end this process instead. */
static void *host_map(size_t bytes)
{
    void *p = bytes < host_available_bytes() ? spread_map(bytes) : NULL;
    if (!p)
        return NULL;
    if (cudaHostRegister(p, bytes, cudaHostRegisterPortable) != cudaSuccess) {
        cudaGetLastError();
        munmap(p, bytes);
        return NULL;
    }
    mapping *m = xmalloc(sizeof *m);
    pthread_mutex_lock(&mappings_lock);
    *m = (mapping){p, bytes, mappings};
    mappings = m;
    pthread_mutex_unlock(&mappings_lock);
    return p;
}

static bool host_unmap(void *p)
{
    pthread_mutex_lock(&mappings_lock);
    mapping **at = &mappings, *m;
    while (*at && (*at)->at != p)
        at = &(*at)->next;
    if ((m = *at))
        *at = m->next;
    pthread_mutex_unlock(&mappings_lock);
    if (!m)
        return false;
    CUDA_CHECK(cudaHostUnregister(p));
    munmap(p, m->bytes);
    free(m);
    return true;
}

static void *host_malloc(device *d, size_t bytes)
{
    void *p;
    use(d);
    if (bytes >= large_bytes && (p = host_map(bytes)))
        return p;
    cudaError_t e = cudaMallocHost(&p, bytes);
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return NULL;
    }
    check(e, "cudaMallocHost", __FILE__, __LINE__);
    return p;
}

static void host_free(device *d, void *p)
{
    use(d);
    if (!host_unmap(p))
        CUDA_CHECK(cudaFreeHost(p));
}

static void memset_cuda(device *d, void *p, int byte, size_t bytes)
{
    CUDA_CHECK(cudaMemsetAsync(p, byte, bytes, use(d)));
}

static void stream_copy(device *d, void *stream, void *dst, const void *src, size_t bytes)
{
    use(d);
    CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
}

static void sync_cuda(device *d)
{
    CUDA_CHECK(cudaStreamSynchronize(use(d)));
}

static device_event *event_create(device *d)
{
    device_event *e = xcalloc(1, sizeof *e);
    use(d);
    CUDA_CHECK(cudaEventCreate(&e->event));
    return e;
}

static void event_destroy(device *d, device_event *e)
{
    use(d);
    CUDA_CHECK(cudaEventDestroy(e->event));
    free(e);
}

static void *stream_create(device *d, stream_priority p, const char *name)
{
    (void)name;
    /* Lower numbers are more urgent; the compute stream sits between the ends, so that there is room on both sides. */
    int least, greatest;
    cudaStream_t stream;
    use(d);
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    const int number = p == STREAM_BACKGROUND ? least : p == STREAM_URGENT ? greatest : (least + greatest) / 2;
    CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, number));
    return stream;
}

static void stream_destroy(device *d, void *stream)
{
    use(d);
    CUDA_CHECK(cudaStreamDestroy(stream));
}

static void stream_record(device *d, void *stream, device_event *e)
{
    use(d);
    CUDA_CHECK(cudaEventRecord(e->event, stream));
}

static void stream_wait(device *d, void *stream, device_event *e)
{
    use(d);
    CUDA_CHECK(cudaStreamWaitEvent(stream, e->event, 0));
}

static void event_mark(device *d, void *stream, device_event *e)
{
    enum cudaStreamCaptureStatus status;
    use(d);
    CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    CUDA_CHECK(cudaEventRecordWithFlags(
        e->event, stream, status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault));
}

/* ---- flags: stream memory operations, asked of the running driver, so that nothing links against libcuda ---- */

typedef int (*flag_fn)(cudaStream_t stream, unsigned long long at, uint32_t value, unsigned flags);

static void flag_op(device *d, const char *name, void *stream, const uint32_t *flag, uint32_t value, unsigned flags)
{
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult how;
    use(d);
    CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how));
    const flag_fn op = (flag_fn)found;
    const int code = how == cudaDriverEntryPointSuccess
                         ? op(stream ? stream : d->stream, (unsigned long long)(uintptr_t)flag, value, flags)
                         : -1;
    if (code != 0)
        die(EXIT_CODE_FAILURE, "%s: CUDA driver error %d", name, code);
}

/* The write has a fence of the whole system in front of it: whoever sees it sees what was written before. */
static void flag_raise(device *d, void *stream, uint32_t *flag)
{
    flag_op(d, "cuStreamWriteValue32", stream, flag, 1, 0);
}

static void flag_lower(device *d, void *stream, uint32_t *flag)
{
    enum { WAIT_EQUAL = 1 /* CU_STREAM_WAIT_VALUE_EQ */ };
    flag_op(d, "cuStreamWaitValue32", stream, flag, 1, WAIT_EQUAL);
    flag_op(d, "cuStreamWriteValue32", stream, flag, 0, 0);
}

static double event_ms(device *d, device_event *from, device_event *to)
{
    float ms = 0;
    use(d);
    CUDA_CHECK(cudaEventSynchronize(to->event));
    if (from != to)
        CUDA_CHECK(cudaEventElapsedTime(&ms, from->event, to->event));
    return ms;
}

static bool graph_begin(device *d)
{
    CUDA_CHECK(cudaStreamBeginCapture(use(d), cudaStreamCaptureModeThreadLocal));
    return true;
}

static device_graph *graph_end(device *d)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t e = cudaStreamEndCapture(use(d), &graph);
    if (e == cudaSuccess)
        e = cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagUseNodePriority);
    if (graph)
        cudaGraphDestroy(graph);
    if (e != cudaSuccess || !exec) {
        cudaGetLastError(); /* a call that can't be captured is no failure */
        return NULL;
    }
    /* Not uploaded here: the first launch does it, and the upload of a graph with NCCL's kernels crashes in the driver
     * (580, NCCL 2.28.3). */
    device_graph *g = xcalloc(1, sizeof *g);
    g->exec = exec;
    return g;
}

static void graph_launch(device *d, device_graph *g)
{
    CUDA_CHECK(cudaGraphLaunch(g->exec, use(d)));
}

static void graph_destroy(device *d, device_graph *g)
{
    use(d);
    CUDA_CHECK(cudaGraphExecDestroy(g->exec));
    free(g);
}

static bool enable_one_way(device *from, device *to)
{
    int can = 0, peer = ((cuda_device *)to)->ordinal;
    use(from);
    CUDA_CHECK(cudaDeviceCanAccessPeer(&can, ((cuda_device *)from)->ordinal, peer));
    if (!can)
        return false;
    cudaError_t e = cudaDeviceEnablePeerAccess(peer, 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
    else
        check(e, "cudaDeviceEnablePeerAccess", __FILE__, __LINE__);
    return true;
}

static bool peer_enable(device *a, device *b)
{
    return enable_one_way(a, b) && enable_one_way(b, a);
}

static void peer_copy(device *to, void *dst, device *from, const void *src, size_t bytes)
{
    cudaStream_t stream = use(from);
    CUDA_CHECK(
        cudaMemcpyPeerAsync(dst, ((cuda_device *)to)->ordinal, src, ((cuda_device *)from)->ordinal, bytes, stream));
}

static void fill_info(device_info *info, int ordinal, int count)
{
    struct cudaDeviceProp p;
    CUDA_CHECK(cudaGetDeviceProperties(&p, ordinal));
    snprintf(info->name, sizeof info->name, "%.*s", (int)sizeof info->name - 1, p.name);
    info->count = count;
    info->compute_major = p.major;
    info->compute_minor = p.minor;
    info->sm_count = p.multiProcessorCount;
    info->memory_bytes = p.totalGlobalMem;
    info->l2_bytes = (size_t)p.l2CacheSize;
    CUDA_CHECK(cudaDriverGetVersion(&info->driver_version));
    CUDA_CHECK(cudaRuntimeGetVersion(&info->runtime_version));

    size_t used = (size_t)snprintf(info->uuid, sizeof info->uuid, "GPU-");
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        used += (size_t)snprintf(info->uuid + used, sizeof info->uuid - used, "%s%02x", dash ? "-" : "",
                                 (unsigned char)p.uuid.bytes[i]);
    }
}

/* Dies where the user has something to mend: a driver that is too old for this build's toolkit, or a value of
 * CUDA_VISIBLE_DEVICES that leaves no GPU. */
static cudaError_t count_gpus(int *count)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const cudaError_t e = cudaGetDeviceCount(count);
    if (e == cudaErrorInsufficientDriver) {
        int driver = 0;
        cudaDriverGetVersion(&driver);
        die(EXIT_CODE_USAGE,
            "the NVIDIA driver is for CUDA %d.%d at most, and this build needs %d: update the driver, or build with a "
            "CUDA toolkit that it knows; --device cpu measures the CPU",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000);
    }
    if (visible && (e == cudaErrorNoDevice || e == cudaErrorInvalidDevice || (e == cudaSuccess && *count == 0))) {
        char text[512];
        visible_none(visible, clocks_gpus_here(), text, sizeof text);
        die(EXIT_CODE_USAGE, "%s", text);
    }
    return e;
}

bool device_cuda_look(int ordinal, device_info *out)
{
    int count = 0;
    *out = (device_info){.count = 0};
    if (count_gpus(&count) != cudaSuccess || ordinal >= count)
        return false;
    fill_info(out, ordinal, count);
    return true;
}

device *device_cuda_open(int ordinal)
{
    static const device_ops ops = {
        .close = close_cuda,
        .malloc = malloc_cuda,
        .free = free_cuda,
        .upload = upload,
        .download = download,
        .host_malloc = host_malloc,
        .host_free = host_free,
        .memset = memset_cuda,
        .stream_copy = stream_copy,
        .sync = sync_cuda,
        .free_bytes = free_bytes,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .stream_create = stream_create,
        .stream_destroy = stream_destroy,
        .stream_record = stream_record,
        .stream_wait = stream_wait,
        .event_mark = event_mark,
        .flag_raise = flag_raise,
        .flag_lower = flag_lower,
        .event_ms = event_ms,
        .graph_begin = graph_begin,
        .graph_end = graph_end,
        .graph_launch = graph_launch,
        .graph_destroy = graph_destroy,
        .peer_enable = peer_enable,
        .peer_copy = peer_copy,
    };
    int count = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char bus_id[32];
    CUDA_CHECK(count_gpus(&count));
    if (ordinal >= count)
        die(EXIT_CODE_USAGE, "GPU %d was requested, but only 0 to %d are visible%s%s", ordinal, count - 1,
            visible ? " with CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    cuda_device *c = xcalloc(1, sizeof *c);
    device *d = &c->base;
    c->ordinal = ordinal;
    d->kind = DEVICE_CUDA;
    d->ops = &ops;
    fill_info(&d->info, ordinal, count);
    const char *misfit = device_misfit(&d->info, device_archs());
    if (misfit)
        die(EXIT_CODE_USAGE, "%s", misfit);
    use(d);
    d->stream = stream_create(d, STREAM_NORMAL, "compute");
    CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, ordinal));
    d->clocks = clocks_open(bus_id);
    return d;
}

#else
typedef int device_cuda_absent; /* ISO C wants a declaration in every file */
#endif
