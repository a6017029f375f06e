/* SPDX-License-Identifier: MIT */
/* Sensors of NVIDIA GPUs through NVML, which is opened at run time: neither its header nor its library is needed to
 * build, and where it is missing every reading is unknown. */
#pragma once

#include <stddef.h>

typedef struct clocks clocks; /* one GPU; NULL reads as unknown everywhere */

/* GPUs the driver has, whatever CUDA_VISIBLE_DEVICES says; -1 when NVML can't tell, then *why (may be NULL) is its
 * reason, "" when the library is not there. */
int clocks_gpu_count(const char **why);
int clocks_gpus_here(void);      /* GPUs of this machine, visible or not, with or without NVML */
const char *clocks_driver(void); /* "580.65.06", "" unknown */

clocks *clocks_open(const char *pci_bus_id);
void clocks_close(clocks *c);
double clocks_sm_mhz(const clocks *c);               /* NAN unknown */
double clocks_power_limit_w(const clocks *c);        /* that the driver enforces; NAN unknown */
double clocks_power_w(const clocks *c);              /* at this moment where the driver can tell; NAN unknown */
double clocks_energy_j(const clocks *c);             /* since the driver was loaded; NAN unknown */
unsigned long long clocks_throttle(const clocks *c); /* bits, 0 none or unknown */
/* The bits that slow a GPU under load, as words joined by '+'. */
void clocks_throttle_words(unsigned long long bits, char *out, size_t out_bytes);

typedef struct clocks_facts { /* NAN unknown */
    double sm_mhz, sm_max_mhz, memory_mhz, memory_max_mhz;
    double power_w, power_limit_w, temperature_c, ecc, persistence;
} clocks_facts;
clocks_facts clocks_read(const clocks *c);
