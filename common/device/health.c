/* SPDX-License-Identifier: MIT */
/* A GPU's health by NVML; see health.h. Prototypes are those of NVML's stable C interface (nvml.h of any CUDA toolkit). */
#include "common/device/health.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct nvml_device *handle;
enum { SUCCESS = 0, UNCORRECTED = 1, SINCE_LOADED = 0, LINKS_MAX = 18 };

typedef struct utilization {
    unsigned gpu, memory;
} utilization;
typedef struct memory_info {
    unsigned long long total, free, used;
} memory_info;

static struct nvml {
    int (*init)(void);
    int (*count)(unsigned *);
    int (*by_index)(unsigned, handle *);
    int (*uuid)(handle, char *, unsigned);
    int (*utilization)(handle, utilization *);
    int (*memory)(handle, memory_info *);
    int (*ecc)(handle, int, int, unsigned long long *);
    int (*remapped)(handle, unsigned *, unsigned *, unsigned *, unsigned *);
    int (*link)(handle, unsigned, int *);
    int (*pcie_width)(handle, unsigned *);
    int (*pcie_width_max)(handle, unsigned *);
} nvml;

/* A function that an older library lacks stays NULL. */
static bool nvml_load(void)
{
    static const struct {
        const char *symbol;
        void *slot;
    } wanted[] = {{"nvmlInit_v2", &nvml.init},
                  {"nvmlDeviceGetCount_v2", &nvml.count},
                  {"nvmlDeviceGetHandleByIndex_v2", &nvml.by_index},
                  {"nvmlDeviceGetUUID", &nvml.uuid},
                  {"nvmlDeviceGetUtilizationRates", &nvml.utilization},
                  {"nvmlDeviceGetMemoryInfo", &nvml.memory},
                  {"nvmlDeviceGetTotalEccErrors", &nvml.ecc},
                  {"nvmlDeviceGetRemappedRows", &nvml.remapped},
                  {"nvmlDeviceGetNvLinkState", &nvml.link},
                  {"nvmlDeviceGetCurrPcieLinkWidth", &nvml.pcie_width},
                  {"nvmlDeviceGetMaxPcieLinkWidth", &nvml.pcie_width_max}};
    static enum { UNTRIED, ABSENT, READY } state = UNTRIED;
    if (state != UNTRIED)
        return state == READY;
    state = ABSENT;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < sizeof wanted / sizeof *wanted; i++) {
        void *symbol = dlsym(library, wanted[i].symbol);
        memcpy(wanted[i].slot, &symbol, sizeof symbol);
    }
    if (nvml.init && nvml.count && nvml.by_index && nvml.uuid && nvml.init() == SUCCESS)
        state = READY;
    return state == READY;
}

gpu_health health_unknown(void)
{
    return (gpu_health){"", NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
}

static void read_use(handle h, gpu_health *out)
{
    utilization use;
    memory_info memory;
    if (nvml.utilization && nvml.utilization(h, &use) == SUCCESS)
        out->used_pct = use.gpu;
    if (nvml.memory && nvml.memory(h, &memory) == SUCCESS)
        out->used_bytes = (double)memory.used;
}

static void read_links(handle h, gpu_health *out)
{
    if (!nvml.link)
        return;
    out->links = out->links_up = 0;
    for (unsigned i = 0; i < LINKS_MAX; i++) {
        int active;
        if (nvml.link(h, i, &active) == SUCCESS) {
            out->links++;
            out->links_up += active != 0;
        }
    }
}

static gpu_health read_all(handle h)
{
    gpu_health out = health_unknown();
    unsigned long long errors;
    unsigned corrected, uncorrected, pending, failed, width;
    if (nvml.uuid(h, out.uuid, sizeof out.uuid) != SUCCESS)
        out.uuid[0] = 0;
    read_use(h, &out);
    if (nvml.ecc && nvml.ecc(h, UNCORRECTED, SINCE_LOADED, &errors) == SUCCESS)
        out.ecc_uncorrected = (double)errors;
    if (nvml.remapped && nvml.remapped(h, &corrected, &uncorrected, &pending, &failed) == SUCCESS) {
        out.remap_pending = pending;
        out.remap_failed = failed;
    }
    read_links(h, &out);
    if (nvml.pcie_width && nvml.pcie_width(h, &width) == SUCCESS)
        out.pcie_width = width;
    if (nvml.pcie_width_max && nvml.pcie_width_max(h, &width) == SUCCESS)
        out.pcie_width_max = width;
    return out;
}

int health_watch(gpu_health *out, int n, double seconds)
{
    enum { LOOKS = 5 };
    unsigned gpus = 0;
    handle h;
    if (!nvml_load() || nvml.count(&gpus) != SUCCESS)
        return 0;
    n = (int)gpus < n ? (int)gpus : n;
    for (int i = 0; i < n; i++)
        out[i] = nvml.by_index((unsigned)i, &h) == SUCCESS ? read_all(h) : health_unknown();
    for (int look = 1; look < LOOKS; look++) {
        const long ns = (long)(seconds / (LOOKS - 1) * 1e9);
        nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
        for (int i = 0; i < n; i++) {
            gpu_health now = health_unknown();
            if (nvml.by_index((unsigned)i, &h) == SUCCESS)
                read_use(h, &now);
            out[i].used_pct += now.used_pct;
            out[i].used_bytes = fmax(out[i].used_bytes, now.used_bytes);
        }
    }
    for (int i = 0; i < n; i++)
        out[i].used_pct /= LOOKS;
    return n;
}
