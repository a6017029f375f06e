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

typedef struct nvml_utilization {
    unsigned gpu, memory;
} nvml_utilization;
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;
typedef struct nvml_pci { /* nvmlPciInfo_t */
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} nvml_pci;
typedef struct nvml_process { /* nvmlProcessInfo_v2_t */
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} nvml_process;
typedef struct nvml_event { /* nvmlEventData_t */
    nvml_handle device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} nvml_event;
typedef struct nvml_events *nvml_event_set;

/* Whether sensors are unknown without it; its name in the table and in the library, and its arguments. All return a status. Power
 * is in mW, the mean of a second on many GPUs; energy in mJ since the driver was loaded. */
/* clang-format off */
#define NVML_FUNCTIONS(X) \
    X(1, init, nvmlInit_v2, (void)) \
    X(1, driver_version, nvmlSystemGetDriverVersion, (char *, unsigned)) \
    X(1, count, nvmlDeviceGetCount_v2, (unsigned *)) \
    X(1, by_bus_id, nvmlDeviceGetHandleByPciBusId_v2, (const char *, nvml_handle *)) \
    X(1, clock, nvmlDeviceGetClockInfo, (nvml_handle, int, unsigned *)) \
    X(1, max_clock, nvmlDeviceGetMaxClockInfo, (nvml_handle, int, unsigned *)) \
    X(1, throttle, nvmlDeviceGetCurrentClocksThrottleReasons, (nvml_handle, unsigned long long *)) \
    X(1, power, nvmlDeviceGetPowerUsage, (nvml_handle, unsigned *)) \
    X(1, power_limit, nvmlDeviceGetEnforcedPowerLimit, (nvml_handle, unsigned *)) \
    X(1, temperature, nvmlDeviceGetTemperature, (nvml_handle, int, unsigned *)) \
    X(1, ecc, nvmlDeviceGetEccMode, (nvml_handle, int *, int *)) \
    X(1, persistence, nvmlDeviceGetPersistenceMode, (nvml_handle, int *)) \
    X(0, energy, nvmlDeviceGetTotalEnergyConsumption, (nvml_handle, unsigned long long *)) \
    X(0, fields, nvmlDeviceGetFieldValues, (nvml_handle, int, nvml_field *)) \
    X(0, by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned, nvml_handle *)) \
    X(0, uuid, nvmlDeviceGetUUID, (nvml_handle, char *, unsigned)) \
    X(0, utilization, nvmlDeviceGetUtilizationRates, (nvml_handle, nvml_utilization *)) \
    X(0, memory, nvmlDeviceGetMemoryInfo, (nvml_handle, nvml_memory *)) \
    X(0, ecc_errors, nvmlDeviceGetTotalEccErrors, (nvml_handle, int, int, unsigned long long *)) \
    X(0, remapped, nvmlDeviceGetRemappedRows, (nvml_handle, unsigned *, unsigned *, unsigned *, unsigned *)) \
    X(0, link, nvmlDeviceGetNvLinkState, (nvml_handle, unsigned, int *)) \
    X(0, link_errors, nvmlDeviceGetNvLinkErrorCounter, (nvml_handle, unsigned, int, unsigned long long *)) \
    X(0, pcie_width, nvmlDeviceGetCurrPcieLinkWidth, (nvml_handle, unsigned *)) \
    X(0, pcie_width_max, nvmlDeviceGetMaxPcieLinkWidth, (nvml_handle, unsigned *)) \
    X(0, pcie_replays, nvmlDeviceGetPcieReplayCounter, (nvml_handle, unsigned *)) \
    X(0, pci, nvmlDeviceGetPciInfo_v3, (nvml_handle, nvml_pci *)) \
    X(0, processes, nvmlDeviceGetComputeRunningProcesses_v3, (nvml_handle, unsigned *, nvml_process *)) \
    X(0, events_create, nvmlEventSetCreate, (nvml_event_set *)) \
    X(0, events_register, nvmlDeviceRegisterEvents, (nvml_handle, unsigned long long, nvml_event_set)) \
    X(0, events_wait, nvmlEventSetWait_v2, (nvml_event_set, nvml_event *, unsigned))
/* clang-format on */

#define NVML_SLOT(needed, slot, function, arguments) int(*slot) arguments;
typedef struct nvml_table {
    const char *(*error_string)(int);
    NVML_FUNCTIONS(NVML_SLOT)
} nvml_table;

/* The library's functions, opened by the first call; NULL: there is no driver here. Those that it lacks are NULL. */
const nvml_table *nvml_functions(void);
/* Uses these functions in place of the library's; NULL: the library's again. */
void nvml_use(const nvml_table *table);
