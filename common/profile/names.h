/* SPDX-License-Identifier: MIT */
/* What a kernel is, by its name. */
#ifndef STEPBENCH_PROFILE_NAMES_H
#define STEPBENCH_PROFILE_NAMES_H

#include "common/profile/spans.h"

/* The lane and the short name of a kernel, by its name as CUPTI has it: mangled C++, C, or readable C++. */
timeline_lane timeline_classify(const char *kernel, const char **name);

#endif
