/* SPDX-License-Identifier: MIT */
/* What the library was compiled from, for programs that say so of their measurements. Not part of the API. */
#ifndef STEPBENCH_KERNELS_BUILD_H
#define STEPBENCH_KERNELS_BUILD_H

/* A hash of the kernels' sources and of the compiler lines (common/build/identity.sh). */
const char *sb_build(void);

#endif
