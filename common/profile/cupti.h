/* SPDX-License-Identifier: MIT */
/* The recording of a GPU, by CUPTI. */
#ifndef STEPBENCH_PROFILE_CUPTI_H
#define STEPBENCH_PROFILE_CUPTI_H

#include <stdbool.h>
#include <stddef.h>

#include "common/profile/spans.h"

/* False with a sentence: no CUPTI here, or a recording with holes. */
bool timeline_cupti_start(char *why, size_t why_bytes);
bool timeline_cupti_stop(span_list *out, char *why, size_t why_bytes); /* in no order */

#endif
