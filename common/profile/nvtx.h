/* SPDX-License-Identifier: MIT */
/* NVTX ranges around phases and ops, for nsys and ncu, and spans of compute in a timeline of the CPU (timeline.h).
 * Costs a few nanoseconds when no tool listens. Ranges nest and belong to the calling thread. */
#ifndef STEPBENCH_PROFILE_NVTX_H
#define STEPBENCH_PROFILE_NVTX_H

void range_push(const char *name);
void range_pop(void);

#endif
