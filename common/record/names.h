/* SPDX-License-Identifier: MIT */
/* Lanes, names that stay, and what a kernel is, by its name. */
#pragma once

typedef enum record_lane {
    LANE_COMPUTE,       /* kernels, and memsets and copies within the GPU */
    LANE_COMMUNICATION, /* kernels of NCCL and our own between GPUs (kernels/cuda/collective), copies between GPUs */
    LANE_COPY           /* copies between host and GPU */
} record_lane;
const char *record_lane_name(record_lane lane); /* "compute" */

const char *record_name(const char *name); /* a copy that lives as long as the process, the same for equal names */

/* The lane and the short name of a kernel, by its name as CUPTI has it: mangled C++, C, or readable C++. */
record_lane record_classify(const char *kernel, const char **name);
