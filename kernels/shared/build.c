/* SPDX-License-Identifier: MIT */
/* The Makefile passes the hash; see build.h. */
#include "kernels/shared/build.h"

#ifndef STEPBENCH_KERNELS
#define STEPBENCH_KERNELS "unknown"
#endif

const char *sb_build(void)
{
    return STEPBENCH_KERNELS;
}
