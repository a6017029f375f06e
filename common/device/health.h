/* SPDX-License-Identifier: MIT */
/* What NVML knows of a GPU's health and of who else uses it. NVML is opened at run time; where it, or one of its
 * functions, is missing, a value is NAN: unknown, which is not the same as well. */
#ifndef STEPBENCH_DEVICE_HEALTH_H
#define STEPBENCH_DEVICE_HEALTH_H

#include <stdbool.h>

typedef struct gpu_health { /* NAN: unknown */
    char uuid[96];          /* "" where there is no NVML */
    double used_pct;        /* share of the last second or so in which kernels ran */
    double used_bytes;      /* of the GPU's memory, by anyone, with what the driver reserves */
    double ecc_uncorrected; /* errors since the driver was loaded */
    double remap_pending;   /* 1: rows of memory are replaced at the next reset */
    double remap_failed;    /* 1: there is no spare row left */
    double links, links_up; /* NVLinks that the GPU has, and those that are active */
    double pcie_width, pcie_width_max;
} gpu_health;

gpu_health health_unknown(void);
/* Reads the health of every GPU of the host, at most `n`, before this process uses one; returns how many. Watches for `seconds`, and
 * used_pct is the mean of what it saw. */
int health_watch(gpu_health *out, int n, double seconds);

#endif
