/* SPDX-License-Identifier: MIT */
/* The recording of a GPU, by CUPTI. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/record/record.h"

typedef struct cupti_link { /* a call to the driver, and the range that made it */
    uint32_t correlation;
    int range;
} cupti_link;

/* In no order. Of links there are several with the same correlation where calls nest; they name the same range. */
typedef struct cupti_records {
    record_span *spans; /* range, step and call are not filled */
    record_call *calls;
    record_cost *costs;
    cupti_link *links;
    size_t span_count, span_room, call_count, call_room, cost_count, cost_room, link_count, link_room;
} cupti_records;
void cupti_records_free(cupti_records *r);

/* Between arm and disarm nodes of graphs that are captured are remembered with open_range(), which is called on the
 * thread that captures. */
bool cupti_arm(int (*open_range)(void), char *why, size_t why_bytes);
void cupti_disarm(void);
int cupti_node_range(uint64_t node); /* -1: unknown */

/* False with a sentence: no CUPTI here, or a recording with holes. Spans alone, or with calls, costs and links. */
bool cupti_start(bool calls, char *why, size_t why_bytes);
bool cupti_stop(cupti_records *out, char *why, size_t why_bytes);

/* What this thread calls between push and pop is linked to the range; they nest. Only while calls are recorded. */
void cupti_push(int range);
void cupti_pop(void);
