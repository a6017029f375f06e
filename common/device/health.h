/* SPDX-License-Identifier: MIT */
/* What NVML and the kernel log know of a GPU's health and of who else uses it. NVML is opened at run time; where it, or one
 * of its functions, is missing, a value is NAN: unknown, which is not the same as well. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct gpu_health { /* NAN: unknown */
    char uuid[96];          /* "" where there is no NVML */
    double used_pct;        /* share of the last second or so in which kernels ran */
    double used_bytes;      /* of the GPU's memory, by anyone, with what the driver reserves */
    double ecc_uncorrected; /* errors since the driver was loaded */
    double remap_pending;   /* 1: rows of memory are replaced at the next reset */
    double remap_failed;    /* 1: there is no spare row left */
    double links, links_up; /* NVLinks that the GPU has, and those that are active */
    double pcie_width, pcie_width_max;
    double nvlink_errors; /* replays and recoveries of all links, since the driver was loaded */
    double nvlink_crc;    /* packets whose checksum was wrong, and which were sent again */
    double pcie_replays;
    double seconds;  /* when the three above were read, by the host's clock */
    bool xids_known; /* the kernel log can be read, or NVML tells of new ones */
    char xids[64];   /* their numbers, as "31+79": since the host started, or since we began to listen; "" none */
    char who[256]; /* processes on the GPU before we began: "pid 4242, alice, python train.py, since 26-11-25 18:03" */
} gpu_health;

gpu_health health_unknown(void);
/* Reads the health of every GPU of the host, at most `n`, before this process uses one; returns how many. Watches for `seconds`, and
 * used_pct is the mean of what it saw. */
int health_watch(gpu_health *out, int n, double seconds);
/* The same GPU now: its counters become what was added since `before` was read (and `seconds` for how long), and `xids` has
 * what came meanwhile, too. */
gpu_health health_since(const gpu_health *before);

/* Adds the numbers of Xids in a piece of the kernel log that are about the GPU at `bus` ("0000:1b:00") to the list. */
void health_scan_xids(const char *log, const char *bus, char *xids, size_t bytes);
/* A process in words, as /proc has it: only its id where it is hidden, in a container for example. */
void health_describe(int pid, char *out, size_t bytes);
