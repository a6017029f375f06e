/* SPDX-License-Identifier: MIT */
/* A library in NVML's place, of a host with four GPUs: on the second one this process runs, keeps it busy and holds memory, a
 * link errs, and an Xid comes after it was asked to tell of them. tests/device/test_health.c loads it. Prototypes are NVML's. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct gpu {
    int number;
} * handle;
static struct gpu gpus[] = {{0}, {1}, {2}, {3}};
static unsigned long long asked; /* how often counters were read: they grow */
static int told;

int nvmlInit_v2(void)
{
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = sizeof gpus / sizeof *gpus;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, handle *h)
{
    *h = &gpus[i];
    return 0;
}
int nvmlDeviceGetUUID(handle h, char *out, unsigned bytes)
{
    snprintf(out, bytes, "GPU-%d", h->number);
    return 0;
}
int nvmlDeviceGetUtilizationRates(handle h, void *out)
{
    const unsigned percent[] = {h->number == 1 ? 97 : 0, 0};
    memcpy(out, percent, sizeof percent);
    return 0;
}
int nvmlDeviceGetMemoryInfo(handle h, void *out)
{
    const unsigned long long used = h->number == 1 ? 3ull << 30 : 600ull << 20,
                             all[] = {80ull << 30, (80ull << 30) - used, used};
    memcpy(out, all, sizeof all);
    return 0;
}
int nvmlDeviceGetNvLinkErrorCounter(handle h, unsigned link, int counter, unsigned long long *out)
{
    if (link > 1 || counter > 2)
        return 3; /* not supported */
    *out = 100 + (h->number == 1 && link == 1 ? asked++ : 0);
    return 0;
}
int nvmlDeviceGetPcieReplayCounter(handle h, unsigned *out)
{
    (void)h;
    *out = 5;
    return 0;
}
int nvmlDeviceGetPciInfo_v3(handle h, void *out)
{
    struct {
        char legacy[16];
        unsigned domain, bus, device, id, subsystem;
        char bus_id[32];
    } info = {.domain = 0, .bus = 0xfb, .device = (unsigned)h->number};
    memcpy(out, &info, sizeof info);
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(handle h, unsigned *n, void *out)
{
    struct {
        unsigned pid;
        unsigned long long bytes;
        unsigned gpu, compute;
    } processes[] = {{.pid = (unsigned)getpid()}, {.pid = 4194305}}; /* the second is beyond any pid */
    *n = h->number == 1 ? 2 : 0;
    memcpy(out, processes, *n * sizeof *processes);
    return 0;
}
int nvmlEventSetCreate(void **set)
{
    *set = &told;
    return 0;
}
int nvmlDeviceRegisterEvents(handle h, unsigned long long types, void *set)
{
    (void)h;
    return types == 8 && set == &told ? 0 : 2;
}
int nvmlEventSetWait_v2(void *set, void *out, unsigned ms)
{
    struct {
        handle device;
        unsigned long long type, data;
        unsigned gpu, compute;
    } events[] = {{&gpus[0], 8, 31, 0, 0}, {&gpus[1], 8, 74, 0, 0}};
    (void)ms;
    if (set != &told || told == 2)
        return 10; /* timeout */
    memcpy(out, &events[told++], sizeof *events);
    return 0;
}
