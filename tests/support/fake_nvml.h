/* SPDX-License-Identifier: MIT */
/* A GPU's sensors without a GPU: an NVML whose GPU draws constant power, so that what is made of its readings is known. */
#pragma once

#include "common/device/device.h"

/* What the GPU does; the counter of energy moves every tick_s, as of the real time. */
typedef struct fake_gpu {
    double power_w, mean_power_w; /* of the moment, and NVML's own mean of a second */
    double energy_w;              /* by the counter of energy; 0: power_w */
    double limit_w;               /* 0: no limit is known */
    double tick_s;
    unsigned sm_mhz[3]; /* one reading after another */
    unsigned long long throttle;
    bool old_driver; /* it has neither a counter of energy nor the power of the moment */
} fake_gpu;
extern fake_gpu fake;

extern int fake_readings; /* of the clock, so far */

/* Gives the device these sensors, and takes them away. */
void fake_nvml_give(device *d);
void fake_nvml_take(device *d);
