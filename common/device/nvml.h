/* SPDX-License-Identifier: MIT */
/* The part of NVML that is used, as a table of functions: clocks.c fills it from libnvidia-ml.so.1, a test from its own.
 * Prototypes and numbers are those of NVML's stable C interface (nvml.h of any CUDA toolkit). */
#pragma once

typedef struct nvml_device *nvml_handle;
enum { NVML_SUCCESS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, NVML_TEMPERATURE_GPU = 0 };
enum { NVML_FIELD_POWER_INSTANT = 186 };

typedef struct nvml_field { /* nvmlFieldValue_t */
    unsigned id, scope;
    long long timestamp_us, latency_us;
    int type, status;
    union {
        double real;
        unsigned whole;
        unsigned long long large;
    } value;
} nvml_field;

typedef struct nvml_table {
    int (*init)(void);
    const char *(*error_string)(int);
    int (*driver_version)(char *, unsigned);
    int (*count)(unsigned *);
    int (*by_bus_id)(const char *, nvml_handle *);
    int (*clock)(nvml_handle, int, unsigned *);
    int (*max_clock)(nvml_handle, int, unsigned *);
    int (*throttle)(nvml_handle, unsigned long long *);
    int (*power)(nvml_handle, unsigned *);       /* mW; the mean of a second on many GPUs */
    int (*power_limit)(nvml_handle, unsigned *); /* mW */
    int (*temperature)(nvml_handle, int, unsigned *);
    int (*ecc)(nvml_handle, int *, int *);
    int (*persistence)(nvml_handle, int *);
    /* NULL in old drivers */
    int (*energy)(nvml_handle, unsigned long long *); /* mJ since the driver was loaded */
    int (*fields)(nvml_handle, int, nvml_field *);
} nvml_table;

/* Uses these functions in place of the library's; NULL: the library's again. */
void nvml_use(const nvml_table *table);
