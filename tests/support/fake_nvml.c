/* SPDX-License-Identifier: MIT */
#include "tests/support/fake_nvml.h"

#include <math.h>

#include "common/core/clock.h"
#include "common/device/internal.h"
#include "common/device/nvml.h"

fake_gpu fake;
int fake_readings;

static int by_bus_id(const char *id, nvml_handle *out)
{
    *out = (nvml_handle)(const void *)id;
    return NVML_SUCCESS;
}

static int clock_of(nvml_handle h, int which, unsigned *mhz)
{
    (void)h;
    (void)which;
    *mhz = fake.sm_mhz[fake_readings++ % 3];
    return NVML_SUCCESS;
}

static int throttle(nvml_handle h, unsigned long long *bits)
{
    (void)h;
    *bits = fake.throttle;
    return NVML_SUCCESS;
}

static int mean_power(nvml_handle h, unsigned *mw)
{
    (void)h;
    *mw = (unsigned)(fake.mean_power_w * 1e3);
    return NVML_SUCCESS;
}

static int power_limit(nvml_handle h, unsigned *mw)
{
    (void)h;
    *mw = (unsigned)(fake.limit_w * 1e3);
    return fake.limit_w > 0 ? NVML_SUCCESS : 3;
}

static int energy(nvml_handle h, unsigned long long *mj)
{
    (void)h;
    *mj = (unsigned long long)(floor(host_seconds() / fake.tick_s) * fake.tick_s *
                               (fake.energy_w > 0 ? fake.energy_w : fake.power_w) * 1e3);
    return NVML_SUCCESS;
}

static int fields(nvml_handle h, int n, nvml_field *f)
{
    (void)h;
    f->status = n == 1 && f->id == NVML_FIELD_POWER_INSTANT ? NVML_SUCCESS : 3;
    f->value.whole = (unsigned)(fake.power_w * 1e3);
    return NVML_SUCCESS;
}

void fake_nvml_give(device *d)
{
    nvml_table table = {.by_bus_id = by_bus_id,
                        .clock = clock_of,
                        .throttle = throttle,
                        .power = mean_power,
                        .power_limit = power_limit};
    if (!fake.old_driver) {
        table.energy = energy;
        table.fields = fields;
    }
    nvml_use(&table);
    fake_readings = 0;
    d->clocks = clocks_open("0000:01:00.0");
}

void fake_nvml_take(device *d)
{
    device_sense(d, 0);
    clocks_close(d->clocks);
    d->clocks = NULL;
    nvml_use(NULL);
}
