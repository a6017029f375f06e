/* SPDX-License-Identifier: MIT */
/* A GPU's health by NVML; see health.h. Prototypes are those of NVML's stable C interface (nvml.h of any CUDA toolkit). */
#include "common/device/health.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/device/nvml.h"

typedef nvml_handle handle;
enum { UNCORRECTED = 1, SINCE_LOADED = 0, LINKS_MAX = 18, PROCESSES_MAX = 64 };
enum { LINK_REPLAY, LINK_RECOVERY, LINK_CRC }; /* nvmlNvLinkErrorCounter_t */
static const unsigned long long event_xid = 8; /* nvmlEventTypeXidCriticalError */

static const nvml_table *nvml;   /* a function that an older library lacks is NULL */
static nvml_event_set listening; /* NULL: nothing tells of new Xids */

static bool nvml_load(void)
{
    nvml = nvml_functions();
    return nvml && nvml->count && nvml->by_index && nvml->uuid;
}

gpu_health health_unknown(void)
{
    return (gpu_health){.used_pct = NAN,
                        .used_bytes = NAN,
                        .ecc_uncorrected = NAN,
                        .remap_pending = NAN,
                        .remap_failed = NAN,
                        .links = NAN,
                        .links_up = NAN,
                        .pcie_width = NAN,
                        .pcie_width_max = NAN,
                        .nvlink_errors = NAN,
                        .nvlink_crc = NAN,
                        .pcie_replays = NAN,
                        .seconds = NAN};
}

static void read_use(handle h, gpu_health *out)
{
    nvml_utilization use;
    nvml_memory memory;
    if (nvml->utilization && nvml->utilization(h, &use) == NVML_SUCCESS)
        out->used_pct = use.gpu;
    if (nvml->memory && nvml->memory(h, &memory) == NVML_SUCCESS)
        out->used_bytes = (double)memory.used;
}

static void read_links(handle h, gpu_health *out)
{
    if (!nvml->link)
        return;
    out->links = out->links_up = 0;
    for (unsigned i = 0; i < LINKS_MAX; i++) {
        int active;
        if (nvml->link(h, i, &active) == NVML_SUCCESS) {
            out->links++;
            out->links_up += active != 0;
        }
    }
}

/* Adds to *total, which was unknown before the first. */
static void add(double *total, double x)
{
    *total = isnan(*total) ? x : *total + x;
}

static void read_counters(handle h, gpu_health *out)
{
    unsigned replays;
    unsigned long long errors;
    out->nvlink_errors = out->nvlink_crc = out->pcie_replays = NAN;
    for (unsigned i = 0; nvml->link_errors && i < LINKS_MAX; i++)
        for (int counter = LINK_REPLAY; counter <= LINK_CRC; counter++)
            if (nvml->link_errors(h, i, counter, &errors) == NVML_SUCCESS)
                add(counter == LINK_CRC ? &out->nvlink_crc : &out->nvlink_errors, (double)errors);
    if (nvml->pcie_replays && nvml->pcie_replays(h, &replays) == NVML_SUCCESS)
        out->pcie_replays = replays;
    out->seconds = host_seconds();
}

/* ---- Xids: the driver's errors, in the kernel log and as events ---- */

static void add_xid(char *xids, size_t bytes, unsigned long long number)
{
    char text[24];
    const int length = snprintf(text, sizeof text, "%llu", number);
    for (const char *at = xids; *at; at += strcspn(at, "+"), at += *at == '+')
        if (strcspn(at, "+") == (size_t)length && strncmp(at, text, (size_t)length) == 0)
            return;
    const size_t used = strlen(xids);
    if (used + (size_t)length + 2 <= bytes)
        snprintf(xids + used, bytes - used, "%s%s", used ? "+" : "", text);
}

void health_scan_xids(const char *log, const char *bus, char *xids, size_t bytes)
{
    static const char begins[] = "NVRM: Xid (PCI:";
    for (const char *at = log; (at = strstr(at, begins)); at++) {
        unsigned long long number;
        const char *place = at + sizeof begins - 1, *end = strchr(place, ')');
        if (end && strncasecmp(place, bus, strlen(bus)) == 0 && sscanf(end, "): %llu", &number) == 1)
            add_xid(xids, bytes, number);
    }
}

/* A read of the kernel log gives one message, from the oldest on; it may be for the administrator only. */
static void read_kernel_log(const char *bus, gpu_health *out)
{
    char message[8192 + 1];
    const int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t n;
    if (fd < 0)
        return;
    out->xids_known = true;
    while ((n = read(fd, message, sizeof message - 1)) > 0 || (n < 0 && errno == EPIPE))
        if (n > 0) { /* EPIPE: the oldest are gone */
            message[n] = 0;
            health_scan_xids(message, bus, out->xids, sizeof out->xids);
        }
    close(fd);
}

static void read_xids(handle h, gpu_health *out)
{
    nvml_pci pci;
    char bus[16];
    if (!nvml->pci || nvml->pci(h, &pci) != NVML_SUCCESS)
        return;
    snprintf(bus, sizeof bus, "%04x:%02x:%02x", pci.domain & 0xffff, pci.bus & 0xff, pci.device & 0xff);
    read_kernel_log(bus, out);
}

static void listen(handle h, gpu_health *out)
{
    if (!nvml->events_create || !nvml->events_register || !nvml->events_wait ||
        (!listening && nvml->events_create(&listening) != NVML_SUCCESS))
        return;
    if (nvml->events_register(h, event_xid, listening) == NVML_SUCCESS)
        out->xids_known = true;
}

/* What was heard about this GPU. Those of others are dropped: each rank asks about its own. */
static void hear(gpu_health *out)
{
    nvml_event event;
    char uuid[sizeof out->uuid];
    while (listening && nvml->events_wait(listening, &event, 0) == NVML_SUCCESS)
        if (event.type == event_xid && nvml->uuid(event.device, uuid, sizeof uuid) == NVML_SUCCESS &&
            strcmp(uuid, out->uuid) == 0)
            add_xid(out->xids, sizeof out->xids, event.data);
}

/* ---- who is there ---- */

static void read_who(handle h, gpu_health *out)
{
    nvml_process processes[PROCESSES_MAX];
    unsigned n = PROCESSES_MAX;
    if (!nvml->processes || nvml->processes(h, &n, processes) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < n && i < PROCESSES_MAX; i++) {
        char one[192];
        const size_t used = strlen(out->who);
        health_describe((int)processes[i].pid, one, sizeof one);
        if (used + 3 < sizeof out->who)
            snprintf(out->who + used, sizeof out->who - used, "%s%s", used ? "; " : "", one);
    }
}

static gpu_health read_all(handle h)
{
    gpu_health out = health_unknown();
    unsigned long long errors;
    unsigned corrected, uncorrected, pending, failed, width;
    if (nvml->uuid(h, out.uuid, sizeof out.uuid) != NVML_SUCCESS)
        out.uuid[0] = 0;
    read_use(h, &out);
    if (nvml->ecc_errors && nvml->ecc_errors(h, UNCORRECTED, SINCE_LOADED, &errors) == NVML_SUCCESS)
        out.ecc_uncorrected = (double)errors;
    if (nvml->remapped && nvml->remapped(h, &corrected, &uncorrected, &pending, &failed) == NVML_SUCCESS) {
        out.remap_pending = pending;
        out.remap_failed = failed;
    }
    read_links(h, &out);
    if (nvml->pcie_width && nvml->pcie_width(h, &width) == NVML_SUCCESS)
        out.pcie_width = width;
    if (nvml->pcie_width_max && nvml->pcie_width_max(h, &width) == NVML_SUCCESS)
        out.pcie_width_max = width;
    read_counters(h, &out);
    read_xids(h, &out);
    listen(h, &out);
    read_who(h, &out);
    return out;
}

int health_watch(gpu_health *out, int n, double seconds)
{
    enum { LOOKS = 5 };
    unsigned gpus = 0;
    handle h;
    if (!nvml_load() || nvml->count(&gpus) != NVML_SUCCESS)
        return 0;
    n = (int)gpus < n ? (int)gpus : n;
    for (int i = 0; i < n; i++)
        out[i] = nvml->by_index((unsigned)i, &h) == NVML_SUCCESS ? read_all(h) : health_unknown();
    for (int look = 1; look < LOOKS; look++) {
        const long ns = (long)(seconds / (LOOKS - 1) * 1e9);
        nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
        for (int i = 0; i < n; i++) {
            gpu_health now = health_unknown();
            if (nvml->by_index((unsigned)i, &h) == NVML_SUCCESS)
                read_use(h, &now);
            out[i].used_pct += now.used_pct;
            out[i].used_bytes = fmax(out[i].used_bytes, now.used_bytes);
        }
    }
    for (int i = 0; i < n; i++)
        out[i].used_pct /= LOOKS;
    return n;
}

gpu_health health_since(const gpu_health *before)
{
    gpu_health out = *before, now = health_unknown();
    unsigned gpus = 0;
    handle h;
    char uuid[sizeof out.uuid];
    if (!*before->uuid || !nvml_load() || nvml->count(&gpus) != NVML_SUCCESS)
        return out;
    for (unsigned i = 0; i < gpus; i++)
        if (nvml->by_index(i, &h) == NVML_SUCCESS && nvml->uuid(h, uuid, sizeof uuid) == NVML_SUCCESS &&
            strcmp(uuid, before->uuid) == 0) {
            read_counters(h, &now);
            read_xids(h, &out);
        }
    hear(&out);
    out.nvlink_errors = now.nvlink_errors - before->nvlink_errors;
    out.nvlink_crc = now.nvlink_crc - before->nvlink_crc;
    out.pcie_replays = now.pcie_replays - before->pcie_replays;
    out.seconds = now.seconds - before->seconds;
    return out;
}
