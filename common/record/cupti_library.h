/* SPDX-License-Identifier: MIT */
/* The functions of CUPTI's library, opened at run time. Included where the header is, only by cupti.c. */
#pragma once

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <stdbool.h>
#include <stddef.h>

/* clang-format off */
#define CUPTI_FUNCTIONS(X)                                                     \
    X(version, cuptiGetVersion)                                                \
    X(result_string, cuptiGetResultString)                                     \
    X(timestamp, cuptiGetTimestamp)                                            \
    X(register_clock, cuptiActivityRegisterTimestampCallback)                  \
    X(register_buffers, cuptiActivityRegisterCallbacks)                        \
    X(enable, cuptiActivityEnable)                                             \
    X(disable, cuptiActivityDisable)                                           \
    X(flush, cuptiActivityFlushAll)                                            \
    X(next, cuptiActivityGetNextRecord)                                        \
    X(dropped, cuptiActivityGetNumDroppedRecords)                              \
    X(subscribe, cuptiSubscribe)                                               \
    X(unsubscribe, cuptiUnsubscribe)                                           \
    X(enable_callback, cuptiEnableCallback)                                    \
    X(callback_name, cuptiGetCallbackName)                                     \
    X(node_id, cuptiGetGraphNodeId)                                            \
    X(choose_runtime, cuptiActivityEnableRuntimeApi)                           \
    X(choose_driver, cuptiActivityEnableDriverApi)                             \
    X(push, cuptiActivityPushExternalCorrelationId)                            \
    X(pop, cuptiActivityPopExternalCorrelationId)
/* clang-format on */

#define CUPTI_SLOT(slot, function) __typeof__(function) *slot;
typedef struct cupti_functions {
    CUPTI_FUNCTIONS(CUPTI_SLOT)
} cupti_functions;

/* Fills `out` from a library of exactly the header's version; else false with a sentence. */
bool cupti_library_open(cupti_functions *out, char *why, size_t why_bytes);
