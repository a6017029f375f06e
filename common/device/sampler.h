/* SPDX-License-Identifier: MIT */
/* A GPU's clock, power and energy while something is timed. A thread of its own reads the sensors every few
 * milliseconds between begin and end; who times only flips a switch. */
#pragma once

#include "common/core/stats.h"
#include "common/device/clocks.h"

typedef struct sampler sampler; /* NULL reads as unknown everywhere */

/* Drivers renew what their sensors say every 0.1 s: until then it may be of before. */
#define SENSOR_LAG_S 0.1

typedef struct sampled {         /* between begin and end */
    samples sm_mhz, power_w;     /* from SENSOR_LAG_S after begin */
    unsigned long long throttle; /* reasons at any of these readings, as of clocks_throttle */
    double energy_w;             /* mean power by the energy counter; NAN: too short, or there is no counter */
} sampled;

/* NULL when there are no sensors, or every_s is 0. */
sampler *sampler_start(const clocks *c, double every_s);
void sampler_stop(sampler *s);
void sampler_begin(sampler *s);
sampled sampler_end(sampler *s); /* at once: a reading under way is dropped */
/* Within a window, at once: means of the readings since the last call; where there is none, the last one; NAN: none yet. */
void sampler_lately(sampler *s, double *sm_mhz, double *power_w);
void sampled_free(sampled *x);

typedef struct energy_reading {
    double at_s, j;
} energy_reading;
/* The counter moves every 20 to 100 ms (every 100 on an H200), so its rate is that between the first and the last reading at which it has moved.
 * Both are known to one interval of readings: they must be ENERGY_WINDOW_S apart. NAN when they are not. */
#define ENERGY_WINDOW_S 0.4
double energy_rate_w(const energy_reading *r, size_t n);
