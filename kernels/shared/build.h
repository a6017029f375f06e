/* SPDX-License-Identifier: MIT */
/* What the library was compiled from, for programs that say so of their measurements. Not part of the API. */
#pragma once

/* A hash of the kernels' sources, and one of the compiler lines: KERNELS of common/build/identity.sh. */
const char *sb_build(void);
