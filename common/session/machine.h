/* SPDX-License-Identifier: MIT */
/* What the numbers were measured on, kept beside them; never the whole environment. */
#pragma once

#include "common/options/options.h"
#include "common/device/device.h"

/* "h200-x1", "rtx-4090-x2", "cpu-xeon-platinum-8480-x2": results/<slug>/. Never empty; [a-z0-9-] only. */
void machine_slug(device_kind kind, const device_info *info, char *out, unsigned long bytes);
/* The slug or, where results/<slug> has runs and none on one of these GPUs (words; "" on the CPU), the first of <slug>-2,
 * <slug>-3 and so on that is free or theirs: a folder does not mix the rows of two machines. Caller frees. */
char *machine_name(const char *slug, const char *uuids);
/* Appends key,value lines of this run (columns run_id,key,value) to <folder>/machine.csv: GPU, clocks and limits,
 * driver, CUDA, NCCL (header and library), compiler, flags, commit, CPU, kernel, command line. */
void machine_report(const device *d, const options *o, const char *folder, const char *run_id);
