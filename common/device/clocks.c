/* SPDX-License-Identifier: MIT */
/* NVML by dlopen; see clocks.h. */
#include "common/device/clocks.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/device/nvml.h"

struct clocks {
    nvml_handle handle;
};

static nvml_table nvml;
static enum { UNTRIED, ABSENT, READY } state = UNTRIED;
static bool complete; /* it has all that is needed here; health.c needs less */
static const char *absent_why = "";

/* Fills the table; false where a function that is needed is missing. */
static bool find_functions(void *library)
{
#define NVML_WANTED(needed, slot, function, arguments) {#function, &nvml.slot, needed},
    const struct {
        const char *symbol;
        void *slot;
        bool needed;
    } wanted[] = {{"nvmlErrorString", &nvml.error_string, true}, NVML_FUNCTIONS(NVML_WANTED)};
    bool all = true;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *symbol = dlsym(library, wanted[i].symbol);
        all = all && (symbol || !wanted[i].needed);
        memcpy(wanted[i].slot, &symbol, sizeof symbol);
    }
    return all;
}

const nvml_table *nvml_functions(void)
{
    if (state != UNTRIED)
        return state == READY ? &nvml : NULL;
    state = ABSENT;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return NULL;
    complete = find_functions(library);
    if (!complete)
        absent_why = "this libnvidia-ml.so.1 lacks functions";
    const int status = nvml.init ? nvml.init() : !NVML_SUCCESS;
    if (status != NVML_SUCCESS && complete)
        absent_why = nvml.error_string(status);
    if (status == NVML_SUCCESS)
        state = READY;
    return nvml_functions();
}

static bool sensors_known(void)
{
    return nvml_functions() && complete;
}

void nvml_use(const nvml_table *table)
{
    nvml = table ? *table : (nvml_table){0};
    state = table ? READY : UNTRIED;
    complete = table;
}

int clocks_gpu_count(const char **why)
{
    unsigned n;
    if (sensors_known() && nvml.count(&n) == NVML_SUCCESS)
        return (int)n;
    if (why)
        *why = absent_why;
    return -1;
}

const char *clocks_driver(void)
{
    static char version[96];
    if (!sensors_known() || nvml.driver_version(version, sizeof version) != NVML_SUCCESS)
        version[0] = 0;
    return version;
}

clocks *clocks_open(const char *pci_bus_id)
{
    nvml_handle handle;
    if (!sensors_known() || nvml.by_bus_id(pci_bus_id, &handle) != NVML_SUCCESS)
        return NULL;
    clocks *c = xcalloc(1, sizeof *c);
    c->handle = handle;
    return c;
}

void clocks_close(clocks *c)
{
    free(c);
}

/* A reading as a number, NAN when NVML refused it. By address: the call that fills it is an argument too. */
static double reading(int status, const unsigned *value, double scale)
{
    return status == NVML_SUCCESS ? *value * scale : NAN;
}

double clocks_sm_mhz(const clocks *c)
{
    unsigned mhz = 0;
    return c ? reading(nvml.clock(c->handle, NVML_CLOCK_SM, &mhz), &mhz, 1) : NAN;
}

double clocks_power_w(const clocks *c)
{
    nvml_field now = {.id = NVML_FIELD_POWER_INSTANT};
    unsigned mw = 0;
    if (c && nvml.fields && nvml.fields(c->handle, 1, &now) == NVML_SUCCESS && now.status == NVML_SUCCESS)
        return now.value.whole * 1e-3;
    return c ? reading(nvml.power(c->handle, &mw), &mw, 1e-3) : NAN;
}

double clocks_power_limit_w(const clocks *c)
{
    unsigned x = 0;
    return c && nvml.power_limit ? reading(nvml.power_limit(c->handle, &x), &x, 1e-3) : NAN;
}

double clocks_energy_j(const clocks *c)
{
    unsigned long long mj = 0;
    return c && nvml.energy && nvml.energy(c->handle, &mj) == NVML_SUCCESS ? (double)mj * 1e-3 : NAN;
}

unsigned long long clocks_throttle(const clocks *c)
{
    unsigned long long bits = 0;
    return c && nvml.throttle(c->handle, &bits) == NVML_SUCCESS ? bits : 0;
}

void clocks_throttle_words(unsigned long long bits, char *out, size_t out_bytes)
{
    static const struct {
        unsigned long long bit;
        const char *word;
    } words[] = {{0x2, "app_clocks"},  {0x4, "power_cap"},   {0x8, "hw_slowdown"},  {0x10, "sync_boost"},
                 {0x20, "sw_thermal"}, {0x40, "hw_thermal"}, {0x80, "power_brake"}, {0x100, "display_clocks"}};
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (bits & words[i].bit && used < out_bytes)
            used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used ? "+" : "", words[i].word);
}

clocks_facts clocks_read(const clocks *c)
{
    clocks_facts f = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    unsigned x = 0;
    int mode = 0, pending;
    if (!c)
        return f;
    f.sm_mhz = clocks_sm_mhz(c);
    f.sm_max_mhz = reading(nvml.max_clock(c->handle, NVML_CLOCK_SM, &x), &x, 1);
    f.memory_mhz = reading(nvml.clock(c->handle, NVML_CLOCK_MEMORY, &x), &x, 1);
    f.memory_max_mhz = reading(nvml.max_clock(c->handle, NVML_CLOCK_MEMORY, &x), &x, 1);
    f.power_w = reading(nvml.power(c->handle, &x), &x, 1e-3);
    f.power_limit_w = reading(nvml.power_limit(c->handle, &x), &x, 1e-3);
    f.temperature_c = reading(nvml.temperature(c->handle, NVML_TEMPERATURE_GPU, &x), &x, 1);
    f.ecc = nvml.ecc(c->handle, &mode, &pending) == NVML_SUCCESS ? mode : NAN;
    f.persistence = nvml.persistence(c->handle, &mode) == NVML_SUCCESS ? mode : NAN;
    return f;
}

/* Counts GPUs for a driver without NVML: their nodes of Linux, or that of the Windows subsystem or of Jetson. */
static int device_nodes(void)
{
    char path[32];
    int n = 0;
    for (int i = 0; i < 32; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        n += access(path, F_OK) == 0;
    }
    return n ? n : access("/dev/dxg", F_OK) == 0 || access("/dev/nvhost-gpu", F_OK) == 0;
}

int clocks_gpus_here(void)
{
    const int count = clocks_gpu_count(NULL);
    return count < 0 ? device_nodes() : count;
}
