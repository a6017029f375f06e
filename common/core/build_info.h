/* SPDX-License-Identifier: MIT */
/* What this binary was built from. The Makefile passes STEPBENCH_COMMIT and STEPBENCH_COMPILER (string literals) and
 * STEPBENCH_DIRTY (0 or 1) to build_info.c alone, so that a new commit recompiles one file. */
#ifndef STEPBENCH_CORE_BUILD_INFO_H
#define STEPBENCH_CORE_BUILD_INFO_H

const char *build_commit(void);   /* "unknown" outside git */
int build_dirty(void);            /* 1: tracked files differed from the commit; -1: unknown */
const char *build_describe(void); /* compiler and flags, "unknown" when the build did not say */

#endif
