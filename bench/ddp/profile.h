/* SPDX-License-Identifier: MIT */
/* A profile of a case: see profile.c. */
#ifndef STEPBENCH_BENCH_DDP_PROFILE_H
#define STEPBENCH_BENCH_DDP_PROFILE_H

#include "bench/ddp/case.h"

/* In place of its timing. All ranks together. */
void ddp_profile(ddp_case *k, replica *r);

#endif
